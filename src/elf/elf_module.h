/*
 * An ELF file opened with libelf: sections, strings, build ID. 64-bit little-endian only. Everything is read with
 * pread, not mapped: if the file is truncated meanwhile, reads fail instead of raising SIGBUS. The exception is a file
 * with debug info, see elf_module_map.
 */
#ifndef ELF_ELF_MODULE_H
#define ELF_ELF_MODULE_H

#include "elf/build_id.h"

#include <gelf.h>
#include <libelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Backed by a file (`fd`) or by memory (`image`). */
struct elf_module {
    int fd;               /* -1 if backed by memory */
    unsigned char *image; /* NULL if backed by a file */
    bool mapped;          /* `image` is a mapping of the file */
    uint64_t size;
    Elf *elf;
};

/* Takes ownership of `fd`, also on failure. Returns 0 or ERR_READ. */
int elf_module_open(int fd, struct elf_module *ret);

/* Takes ownership of the malloc'ed `image`, also on failure; libelf writes to it when it decompresses sections. Returns
 * 0 or ERR_READ. */
int elf_module_open_image(void *image, size_t size, struct elf_module *ret);

/*
 * Maps the file, so that libelf does not copy whole sections of which we need a part. From then on, reading a truncated
 * file raises SIGBUS: call it in the helper process. Invalidates what libelf returned for this file. If the file cannot
 * be mapped, or is backed by memory, nothing changes.
 */
void elf_module_map(struct elf_module *m);

/* Frees the memory that a mapping takes so far. Pointers into it stay valid: the kernel reads the page again. */
void elf_module_drop_pages(const struct elf_module *m);

void elf_module_close(struct elf_module *m);

/* Reads `len` bytes at file offset `at`. Returns 0, or ERR_READ if any of them cannot be read. */
int elf_module_read(const struct elf_module *m, uint64_t at, void *buf, size_t len);

/* Finds a section by name or by index. A section that is not SHT_NOBITS is only found if it lies within the file. */
bool elf_module_section(const struct elf_module *m, const char *name, GElf_Shdr *ret);
bool elf_module_section_nth(const struct elf_module *m, size_t i, GElf_Shdr *ret);
const char *elf_module_section_name(const struct elf_module *m, const GElf_Shdr *section); /* "" if invalid */

/* Reads a section into malloc'ed memory, without decompressing it. Returns 0, ERR_NOMEM, or ERR_READ, also if the
 * section is empty or larger than `max` bytes. */
int elf_module_read_section(const struct elf_module *m, const GElf_Shdr *section, size_t max, unsigned char **ret,
                            size_t *ret_len);

/* Reads the string at `at` of the string table `strings`, truncated to `room` bytes with its NUL. */
bool elf_module_read_string(const struct elf_module *m, const GElf_Shdr *strings, uint64_t at, char *ret, size_t room);

/* The build ID; its length is 0 if there is none. */
struct build_id elf_module_build_id(const struct elf_module *m);

#endif
