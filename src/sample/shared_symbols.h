/*
 * Symbols of files, shared by all processes of a session: the ranks of a training job map the same libraries, and reading their
 * symbols and debug info takes most of the time and memory.
 */
#ifndef SAMPLE_SHARED_SYMBOLS_H
#define SAMPLE_SHARED_SYMBOLS_H

#include "elf/symbols.h"

struct shared_symbols {
    struct shared_module **items;
    size_t n, cap;
};

/* The symbols of one module, and how many processes use them. */
struct shared_module {
    struct symbols *symbols;
    struct shared_symbols *owner; /* NULL: not shared */
    unsigned n_processes;
    uint64_t device, inode, size, changed_ns; /* of the file */
    uint64_t root_device, root_inode;         /* of the target's root directory, where its debug file is */
    int root_fd;
    char *path;
};

/* Like symbols_open, but shares what another process has opened: the same file at the same path below the same root. NULL when
 * out of memory. */
struct shared_module *shared_symbols_open(struct shared_symbols *all, const struct symbols_source *src);

/* Closes the symbols when the last process stops using them. */
void shared_symbols_close(struct shared_module *module);

#endif
