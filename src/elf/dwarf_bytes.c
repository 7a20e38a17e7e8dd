/*
 * Reads the number formats of DWARF, with bounds checks.
 */
#include "elf/dwarf_bytes.h"

#include <string.h>

#define MAX_LEB 16 /* bytes of a LEB128 number; 10 hold 64 bits, but some producers pad */

uint64_t dwarf_bytes_fixed(struct dwarf_bytes *b, size_t size)
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

uint64_t dwarf_bytes_uleb(struct dwarf_bytes *b)
{
    uint64_t value = 0, byte = 0x80;

    for (unsigned shift = 0; byte & 0x80 && !b->bad; shift += 7) {
        byte = dwarf_bytes_fixed(b, 1);
        if (shift < 64)
            value |= (byte & 0x7f) << shift;
        b->bad |= shift >= 7 * MAX_LEB;
    }
    return b->bad ? 0 : value;
}

int64_t dwarf_bytes_sleb(struct dwarf_bytes *b)
{
    uint64_t value = 0, byte = 0x80;
    unsigned shift = 0;

    for (; byte & 0x80 && !b->bad; shift += 7) {
        byte = dwarf_bytes_fixed(b, 1);
        if (shift < 64)
            value |= (byte & 0x7f) << shift;
        b->bad |= shift >= 7 * MAX_LEB;
    }
    if (shift < 64 && byte & 0x40)
        value |= ~0ull << shift;
    return b->bad ? 0 : (int64_t)value;
}

void dwarf_bytes_skip(struct dwarf_bytes *b, uint64_t n)
{
    if (b->bad || n > b->end - b->pos)
        b->bad = true;
    else
        b->pos += n;
}

const char *dwarf_bytes_string(struct dwarf_bytes *b)
{
    const unsigned char *s = b->start + b->pos, *nul = b->bad ? NULL : memchr(s, '\0', b->end - b->pos);

    if (!nul) {
        b->bad = true;
        return NULL;
    }
    b->pos += (size_t)(nul - s) + 1;
    return (const char *)s;
}
