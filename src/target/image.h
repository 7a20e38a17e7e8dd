/*
 * A program or library as it lies in a target's memory. Its dynamic symbols are read from there, so
 * that a file that was deleted, replaced or is out of reach does not matter.
 */
#ifndef TARGET_IMAGE_H
#define TARGET_IMAGE_H

#include "elf/build_id.h"
#include "target/mem.h"
#include "target/proc.h"

#define IMAGE_MAX_WRITABLE 8

struct files;

struct image_range {
    addr_t start, end;
};

struct image {
    addr_t start;     /* where its ELF header is */
    addr_t bias;      /* what to add to its addresses */
    const char *path; /* as in maps; borrowed */
    uint64_t device, inode;
    bool deleted;
    struct build_id id;
    struct image_range writable[IMAGE_MAX_WRITABLE]; /* .data, .bss */
    size_t n_writable;
    /* From its dynamic section; 0 when it has none. */
    addr_t symbols, strings, gnu_hash, sysv_hash;
    uint64_t strings_size;
};

/* The image whose header is at the start of `map`, or ERR_READ when there is none. */
int image_open(struct mem *m, const struct proc_map *map, struct image *ret);

/* A defined symbol by its hash table in memory; ERR_READ when it is not there. */
int image_symbol(struct mem *m, const struct image *img, const char *name, addr_t *ret);

/* The same by the image's file, .symtab included: through the target's root; only if it is the very
 * file that is mapped. */
int image_file_symbol(const struct files *files, const struct image *img, const char *name, addr_t *ret);

#endif
