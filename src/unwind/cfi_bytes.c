/*
 * Reads the pointer formats of DWARF, with bounds checks.
 */
#include "unwind/cfi_bytes.h"

#include <dwarf.h>

#define PE_FORMAT      0x0f /* the parts of a DW_EH_PE_ encoding */
#define PE_APPLICATION 0x70

static uint64_t read_format(struct dwarf_bytes *b, unsigned format)
{
    switch (format) {
    case DW_EH_PE_absptr:
    case DW_EH_PE_udata8:
    case DW_EH_PE_sdata8:
        return dwarf_bytes_fixed(b, 8);
    case DW_EH_PE_uleb128:
        return dwarf_bytes_uleb(b);
    case DW_EH_PE_udata2:
        return dwarf_bytes_fixed(b, 2);
    case DW_EH_PE_udata4:
        return dwarf_bytes_fixed(b, 4);
    case DW_EH_PE_sleb128:
        return (uint64_t)dwarf_bytes_sleb(b);
    case DW_EH_PE_sdata2:
        return (uint64_t)(int64_t)(int16_t)dwarf_bytes_fixed(b, 2);
    case DW_EH_PE_sdata4:
        return (uint64_t)(int64_t)(int32_t)dwarf_bytes_fixed(b, 4);
    default:
        b->bad = true;
        return 0;
    }
}

uint64_t cfi_bytes_pointer(struct dwarf_bytes *b, unsigned encoding, uint64_t base)
{
    uint64_t here = b->addr + b->pos, value;

    if (encoding == DW_EH_PE_omit)
        return 0;
    if (encoding == DW_EH_PE_aligned) {
        dwarf_bytes_skip(b, (0 - here) & 7);
        return dwarf_bytes_fixed(b, 8);
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
