/*
 * Reads DWARF numbers from untrusted bytes. A read past the end sets `bad`; from then on every read returns 0.
 */
#ifndef UNWIND_CFI_BYTES_H
#define UNWIND_CFI_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cfi_bytes {
    const unsigned char *start; /* of the section */
    size_t pos, end;
    uint64_t addr; /* of start[0] in the target */
    bool bad;
};

uint64_t cfi_bytes_fixed(struct cfi_bytes *b, size_t size);
uint64_t cfi_bytes_uleb(struct cfi_bytes *b);
int64_t cfi_bytes_sleb(struct cfi_bytes *b);
void cfi_bytes_skip(struct cfi_bytes *b, uint64_t n);

/* Reads a pointer with a DW_EH_PE_... encoding. `base` is the base of data-relative pointers; 0 if there is none, which
 * makes them bad. With DW_EH_PE_indirect the result is the address of the pointer, not the pointer. */
uint64_t cfi_bytes_pointer(struct cfi_bytes *b, unsigned encoding, uint64_t base);

#endif
