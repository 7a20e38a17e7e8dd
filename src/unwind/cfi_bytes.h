/*
 * Reads the pointers of unwind tables.
 */
#ifndef UNWIND_CFI_BYTES_H
#define UNWIND_CFI_BYTES_H

#include "elf/dwarf_bytes.h"

/* Reads a pointer with a DW_EH_PE_... encoding. `base` is the base of data-relative pointers; 0 if there is none, which
 * makes them bad. With DW_EH_PE_indirect the result is the address of the pointer, not the pointer. */
uint64_t cfi_bytes_pointer(struct dwarf_bytes *b, unsigned encoding, uint64_t base);

#endif
