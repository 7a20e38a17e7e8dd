/*
 * Bytes -> numbers. Called by cfi.c and by the evaluator of expressions.
 */
#include "unwind/cfi_bytes.h"

#include <string.h>

#define PE_OMIT     0xff
#define PE_FORM     0x0f
#define PE_RELATIVE 0x70
#define PE_PCREL    0x10
#define PE_DATAREL  0x30
#define PE_ALIGNED  0x50
#define MAX_LEB     16 /* bytes of a number; 10 are enough, some pad them */

uint64_t cfi_bytes_fixed(struct cfi_bytes *b, size_t size)
{
    uint64_t value = 0;

    if (b->bad || size > b->end - b->pos) {
        b->bad = true;
        return 0;
    }
    memcpy(&value, b->start + b->pos, size);
    b->pos += size;
    return value;
}

uint64_t cfi_bytes_uleb(struct cfi_bytes *b)
{
    uint64_t value = 0, byte = 0x80;

    for (unsigned shift = 0; byte & 0x80 && !b->bad; shift += 7) {
        byte = cfi_bytes_fixed(b, 1);
        if (shift < 64)
            value |= (byte & 0x7f) << shift;
        b->bad |= shift >= 7 * MAX_LEB;
    }
    return b->bad ? 0 : value;
}

int64_t cfi_bytes_sleb(struct cfi_bytes *b)
{
    uint64_t value = 0, byte = 0x80;
    unsigned shift = 0;

    for (; byte & 0x80 && !b->bad; shift += 7) {
        byte = cfi_bytes_fixed(b, 1);
        if (shift < 64)
            value |= (byte & 0x7f) << shift;
        b->bad |= shift >= 7 * MAX_LEB;
    }
    if (shift < 64 && byte & 0x40)
        value |= ~0ull << shift;
    return b->bad ? 0 : (int64_t)value;
}

void cfi_bytes_skip(struct cfi_bytes *b, uint64_t n)
{
    if (b->bad || n > b->end - b->pos)
        b->bad = true;
    else
        b->pos += n;
}

static uint64_t pointer_form(struct cfi_bytes *b, unsigned form)
{
    switch (form) {
    case 0x00: /* absptr */
    case 0x04: /* udata8 */
    case 0x0c: /* sdata8 */
        return cfi_bytes_fixed(b, 8);
    case 0x01:
        return cfi_bytes_uleb(b);
    case 0x02:
        return cfi_bytes_fixed(b, 2);
    case 0x03:
        return cfi_bytes_fixed(b, 4);
    case 0x09:
        return (uint64_t)cfi_bytes_sleb(b);
    case 0x0a:
        return (uint64_t)(int64_t)(int16_t)cfi_bytes_fixed(b, 2);
    case 0x0b:
        return (uint64_t)(int64_t)(int32_t)cfi_bytes_fixed(b, 4);
    default:
        b->bad = true;
        return 0;
    }
}

uint64_t cfi_bytes_pointer(struct cfi_bytes *b, unsigned encoding, uint64_t base)
{
    uint64_t here = b->at + b->pos, value;

    if (encoding == PE_OMIT)
        return 0;
    if (encoding == PE_ALIGNED) {
        cfi_bytes_skip(b, (0 - here) & 7);
        return cfi_bytes_fixed(b, 8);
    }
    value = pointer_form(b, encoding & PE_FORM);
    if (!value || b->bad)
        return 0;
    if ((encoding & PE_RELATIVE) == PE_PCREL)
        value += here;
    else if ((encoding & PE_RELATIVE) == PE_DATAREL && base)
        value += base;
    else if (encoding & PE_RELATIVE)
        b->bad = true;
    return value;
}
