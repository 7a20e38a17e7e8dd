/*
 * An ELF file's bytes -> symbols and sections. Pure: no files, no processes; every offset is checked,
 * since the file may be truncated or made up. 64-bit little-endian only.
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

/* True when the header is that of a 64-bit little-endian program or library. */
bool elf_file_valid(const struct elf_file *f);

/* The address (not yet moved by the load bias) of a defined symbol in .symtab or .dynsym, or ERR_READ. */
int elf_file_symbol(const struct elf_file *f, const char *name, addr_t *ret);

/* A section's address and size in memory, or ERR_READ. */
int elf_file_section(const struct elf_file *f, const char *name, addr_t *ret_addr, size_t *ret_size);

/* The GNU hash of a symbol's name. */
unsigned int elf_file_gnu_hash(const char *name);

#endif
