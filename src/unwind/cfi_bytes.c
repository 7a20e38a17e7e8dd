/*
 * Reads the number and pointer formats of DWARF, with bounds checks.
 */
#include "unwind/cfi_bytes.h"

#include <dwarf.h>
#include <string.h>

#define PE_FORMAT      0x0f /* the parts of a DW_EH_PE_ encoding */
#define PE_APPLICATION 0x70
#define MAX_LEB        16 /* bytes of a LEB128 number; 10 hold 64 bits, but some producers pad */

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

static uint64_t read_format(struct cfi_bytes *b, unsigned format)
{
    switch (format) {
    case DW_EH_PE_absptr:
    case DW_EH_PE_udata8:
    case DW_EH_PE_sdata8:
        return cfi_bytes_fixed(b, 8);
    case DW_EH_PE_uleb128:
        return cfi_bytes_uleb(b);
    case DW_EH_PE_udata2:
        return cfi_bytes_fixed(b, 2);
    case DW_EH_PE_udata4:
        return cfi_bytes_fixed(b, 4);
    case DW_EH_PE_sleb128:
        return (uint64_t)cfi_bytes_sleb(b);
    case DW_EH_PE_sdata2:
        return (uint64_t)(int64_t)(int16_t)cfi_bytes_fixed(b, 2);
    case DW_EH_PE_sdata4:
        return (uint64_t)(int64_t)(int32_t)cfi_bytes_fixed(b, 4);
    default:
        b->bad = true;
        return 0;
    }
}

uint64_t cfi_bytes_pointer(struct cfi_bytes *b, unsigned encoding, uint64_t base)
{
    uint64_t here = b->addr + b->pos, value;

    if (encoding == DW_EH_PE_omit)
        return 0;
    if (encoding == DW_EH_PE_aligned) {
        cfi_bytes_skip(b, (0 - here) & 7);
        return cfi_bytes_fixed(b, 8);
    }
    value = read_format(b, encoding & PE_FORMAT);
    if (!value || b->bad)
        return 0;
    if ((encoding & PE_APPLICATION) == DW_EH_PE_pcrel)
        value += here;
    else if ((encoding & PE_APPLICATION) == DW_EH_PE_datarel && base)
        value += base;
    else if (encoding & PE_APPLICATION)
        b->bad = true;
    return value;
}
