/*
 * Reads DWARF numbers from untrusted bytes. A read past the end sets `bad`; from then on every read returns 0.
 */
#ifndef ELF_DWARF_BYTES_H
#define ELF_DWARF_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dwarf_bytes {
    const unsigned char *start; /* of the section */
    size_t pos, end;
    uint64_t addr; /* of start[0] in the target */
    bool bad;
};

uint64_t dwarf_bytes_fixed(struct dwarf_bytes *b, size_t size);
uint64_t dwarf_bytes_uleb(struct dwarf_bytes *b);
int64_t dwarf_bytes_sleb(struct dwarf_bytes *b);
void dwarf_bytes_skip(struct dwarf_bytes *b, uint64_t n);

/* Reads a string that ends with NUL; NULL if `bad`. */
const char *dwarf_bytes_string(struct dwarf_bytes *b);

#endif
