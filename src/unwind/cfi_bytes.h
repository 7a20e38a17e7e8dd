/*
 * Reading DWARF's numbers from bytes that may be cut off or wrong. After a read past the end `bad` is set, and
 * everything that is read is 0.
 */
#ifndef UNWIND_CFI_BYTES_H
#define UNWIND_CFI_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cfi_bytes {
    const unsigned char *start; /* of the section */
    size_t pos, end;
    uint64_t at; /* the address of the section's first byte */
    bool bad;
};

uint64_t cfi_bytes_fixed(struct cfi_bytes *b, size_t size);
uint64_t cfi_bytes_uleb(struct cfi_bytes *b);
int64_t cfi_bytes_sleb(struct cfi_bytes *b);
void cfi_bytes_skip(struct cfi_bytes *b, uint64_t n);

/* A pointer as DW_EH_PE_… encodes it; `base` is what data-relative ones are relative to, 0: there is no such thing. The
 * result is where the address is to be read when the encoding has the bit CFI_BYTES_INDIRECT. */
#define CFI_BYTES_INDIRECT 0x80
uint64_t cfi_bytes_pointer(struct cfi_bytes *b, unsigned encoding, uint64_t base);

#endif
