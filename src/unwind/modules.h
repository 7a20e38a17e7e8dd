/*
 * The programs and libraries in a process's memory, found by their ELF headers there: where their code is, and the
 * headers of the tables to unwind it with. Files are not needed.
 */
#ifndef UNWIND_MODULES_H
#define UNWIND_MODULES_H

#include "elf/build_id.h"
#include "target/mem.h"
#include "target/proc.h"
#include "unwind/cfi.h"

#define MODULE_RANGES 16

struct module_range {
    addr_t start, end;
};

struct module {
    addr_t start, end; /* from its first byte to its last */
    addr_t bias;       /* what to add to the addresses in its file */
    char *path;        /* as in maps: "" for memory without a file, "[vdso]" */
    uint64_t device, inode;
    bool deleted;
    bool is_elf; /* otherwise code that somebody made: a JIT compiler */
    struct module_range code[MODULE_RANGES];
    size_t n_code;
    addr_t header_at; /* .eh_frame_hdr in memory, 0 when there is none */
    uint64_t header_len;
    struct module_range segments[MODULE_RANGES]; /* as the file has them: what is in memory of it */
    size_t n_segments;
    /* Of module_tables.c: what was made of .eh_frame and .debug_frame, and the bytes behind it. */
    bool tried_eh, tried_debug;
    struct cfi_table eh, debug;
    unsigned char *frame_bytes, *header_bytes, *debug_bytes;
    bool *pieces; /* of `frame_bytes`: which are there */
    uint64_t held;
    struct modules *owner;
    struct mem *mem;
    bool kept, is_new;  /* for modules_update */
    bool stale;         /* it was seen that it is not there any more */
    struct build_id id; /* at `id_at` in memory; none: its first page has none */
    addr_t id_at;
    uint64_t vouched;          /* for marks.c */
    unsigned char *first_page; /* as it was when the module was found; NULL: not compared */
    bool fixed;                /* the caller knows that it is never unloaded: unwind_still passes over it */
    bool shares;               /* another one was seen in its place before */
    uint64_t round;            /* for unwind_still */
    void *user;                /* the caller's */
};

/* Where the files of modules are. */
struct module_files {
    /* A descriptor or -1; the path is as the target sees it. NULL: files are not looked at. */
    int (*open)(void *arg, const struct module *mod, const char **ret_path);
    void *arg;
    int root_fd; /* as in symbols.h */
};

#define MODULE_PAGE  4096
#define MODULES_GONE 16

struct modules {
    struct module **items; /* by their start */
    size_t n, cap;
    struct module *gone[MODULES_GONE]; /* those that went last, in case that they come back: a ring */
    size_t next_gone;
    bool lost;                     /* the last update found that some have gone */
    uint64_t held;                 /* bytes of their tables */
    void (*free_user)(void *user); /* NULL: nothing to free */
    struct module_files files;
};

/* Brings the list up to date with the maps. `ret_changed` is set when one has come or gone: pointers to those
 * that have gone are bad. 0 or ERR_NOMEM. */
int modules_update(struct modules *ms, struct mem *m, const struct proc_maps *maps, bool *ret_changed);
void modules_free(struct modules *ms);

/* The module whose code is at `pc`, or NULL. */
struct module *modules_find(const struct modules *ms, addr_t pc);

#endif
