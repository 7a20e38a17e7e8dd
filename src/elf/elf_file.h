/*
 * Finds symbols in the bytes of an ELF file. Every offset is bounds-checked, since the file may be truncated or
 * hostile. 64-bit little-endian only.
 */
#ifndef ELF_ELF_FILE_H
#define ELF_ELF_FILE_H

#include "base/addr.h"

#include <stdbool.h>
#include <stddef.h>

struct elf_file {
    const unsigned char *bytes;
    size_t len;
};

/* True if there is a 64-bit little-endian ELF header. */
bool elf_file_valid(const struct elf_file *f);

/* Sets `*ret` to the address of a defined symbol in .symtab or .dynsym, without the load bias. Returns 0 or
 * ERR_READ. */
int elf_file_symbol(const struct elf_file *f, const char *name, addr_t *ret);

/* The hash of a symbol name in DT_GNU_HASH. */
unsigned int elf_file_gnu_hash(const char *name);

#endif
