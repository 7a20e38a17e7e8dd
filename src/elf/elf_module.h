/*
 * One ELF file, by a descriptor or by its bytes -> sections, build id, an Elf of libelf. 64-bit little-endian only.
 * All is read with pread, nothing is mapped: a file that is cut short meanwhile gives errors, not SIGBUS.
 */
#ifndef ELF_ELF_MODULE_H
#define ELF_ELF_MODULE_H

#include "elf/build_id.h"

#include <gelf.h>
#include <libelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELF_MODULE_BUILD_ID_MAX BUILD_ID_MAX

struct elf_module {
    int fd;               /* -1: `image` */
    unsigned char *image; /* NULL: `fd` */
    uint64_t size;
    Elf *elf;
};

/* Takes over `fd`, whatever the result. 0 or ERR_READ. */
int elf_module_open(int fd, struct elf_module *ret);

/* From bytes in allocated memory, taken over whatever the result. (libelf writes to them when it unpacks sections.) */
int elf_module_open_image(void *image, size_t size, struct elf_module *ret);

void elf_module_close(struct elf_module *m);

/* All `len` bytes at `at` of the file, or ERR_READ. */
int elf_module_read(const struct elf_module *m, uint64_t at, void *buf, size_t len);

/* A section that has a name and, unless it is NOBITS, lies in the file as a whole. */
bool elf_module_section(const struct elf_module *m, const char *name, GElf_Shdr *ret);
bool elf_module_section_nth(const struct elf_module *m, size_t i, GElf_Shdr *ret);
const char *elf_module_section_name(const struct elf_module *m, const GElf_Shdr *section); /* "" when damaged */

/* A section's bytes, at most `max` of them, to be freed. A packed section is not unpacked. */
int elf_module_load(const struct elf_module *m, const GElf_Shdr *section, size_t max, unsigned char **ret,
                    size_t *ret_len);

/* The text at `at` of a section of strings, cut to the room there is. Reads no more than it needs. */
bool elf_module_string(const struct elf_module *m, const GElf_Shdr *strings, uint64_t at, char *ret, size_t room);

/* Number of bytes written, 0 when there is none. */
size_t elf_module_build_id(const struct elf_module *m, unsigned char ret[ELF_MODULE_BUILD_ID_MAX]);

#endif
