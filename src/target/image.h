/*
 * A program or library in a target's memory. Its dynamic symbols are read from memory, so it does not
 * matter if the file was deleted, replaced or is out of reach.
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
    addr_t start;     /* address of its ELF header */
    addr_t bias;      /* difference between addresses in memory and in the file */
    const char *path; /* as in maps; borrowed */
    uint64_t inode, device;
    struct build_id id;
    struct image_range writable[IMAGE_MAX_WRITABLE]; /* .data, .bss */
    size_t n_writable;
    /* From the dynamic section; 0 if there is none. */
    addr_t symbols, strings, gnu_hash, sysv_hash;
    uint64_t strings_size;
};

/* Opens the image whose ELF header is at the start of `map`. ERR_READ if there is none. */
int image_open(struct mem *m, const struct proc_map *map, struct image *ret);

/* Looks up a defined symbol by the hash table in memory; ERR_READ if there is none. */
int image_symbol(struct mem *m, const struct image *img, const char *name, addr_t *ret);

/* The same in the image's file, .symtab included. Opens the file below the target's root and requires it to be the
 * one that is mapped. */
int image_file_symbol(const struct files *files, const struct image *img, const char *name, addr_t *ret);

#endif
