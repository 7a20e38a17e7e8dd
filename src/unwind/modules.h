/*
 * The modules of a process: the program, its shared libraries, the vdso and JIT code. Found by their ELF headers in
 * memory, so their files are not needed.
 */
#ifndef UNWIND_MODULES_H
#define UNWIND_MODULES_H

#include "elf/build_id.h"
#include "target/mem.h"
#include "target/proc.h"
#include "unwind/cfi.h"

#define MODULE_RANGES    16
#define MODULE_PAGE      4096
#define MODULES_UNLOADED 16

struct module_range {
    addr_t start, end;
};

struct module {
    addr_t start, end;
    addr_t bias; /* load bias: address in memory minus address in the ELF file */
    char *path;  /* as in /proc/PID/maps: "" for anonymous memory, "[vdso]" */
    uint64_t device, inode;
    bool deleted;
    bool is_elf; /* false for executable memory without an ELF header, such as JIT code */
    struct module_range code[MODULE_RANGES];
    size_t n_code;
    addr_t eh_frame_hdr; /* address of .eh_frame_hdr in memory; 0 if there is none */
    uint64_t eh_frame_hdr_len;
    struct module_range segments[MODULE_RANGES]; /* the parts of PT_LOAD segments that come from the file */
    size_t n_segments;
    /* For module_tables.c. */
    bool tried_eh_frame, tried_debug_frame;
    struct cfi_table eh_table, debug_table;
    unsigned char *eh_frame_bytes, *hdr_bytes, *debug_frame_bytes;
    bool *chunk_loaded; /* which chunks of `eh_frame_bytes` were read */
    uint64_t table_bytes;
    struct modules *owner;
    struct mem *mem;
    /* For modules.c. */
    bool seen, is_new;
    /* To notice that another module took its place. */
    bool stale;                /* its memory has changed since it was found */
    struct build_id id;        /* empty if the first page holds no build ID */
    addr_t id_addr;            /* of the build ID in memory */
    uint64_t confirmed_round;  /* for module_identity.c */
    unsigned char *first_page; /* as it was when the module was found; NULL if it may change */
    bool never_unloaded;       /* set by the caller: skip the checks */
    bool address_reused;       /* another module was seen at its address before */
    uint64_t visit_round;      /* for unwind.c */
    void *user;                /* for the caller */
    /* For jit_code.c. */
    bool tried_jit_descriptor;
    addr_t jit_descriptor; /* 0 if the module has none */
    unsigned char *image;  /* of an object that a JIT compiler registered: its ELF file, relocated */
    size_t image_len;
};

/* What the files of modules say, for what is not in memory. Each function may be NULL, and returns 0 or an error. */
struct module_files {
    /* As in elf/frame_section.h and elf/symbol_address.h. */
    int (*find_eh_frame)(void *arg, const struct module *mod, uint64_t *ret_addr, uint64_t *ret_len);
    int (*read_debug_frame)(void *arg, const struct module *mod, size_t max, unsigned char **ret, size_t *ret_len);
    int (*find_symbol)(void *arg, const struct module *mod, const char *name, uint64_t *ret);
    void *arg;
};

struct modules {
    struct module **items; /* sorted by start */
    size_t n, cap;
    struct module *unloaded[MODULES_UNLOADED]; /* ring of the modules unloaded last, in case they are loaded again */
    size_t next_unloaded;
    bool any_unloaded;             /* the last update found modules missing */
    uint64_t table_bytes;          /* memory used by unwind tables */
    void (*free_user)(void *user); /* frees module->user; may be NULL */
    struct module_files files;
};

/* Updates the list from the memory map. Sets `*ret_changed` if modules came or went; pointers to modules that went are
 * invalid then. Returns 0 or ERR_NOMEM. */
int modules_update(struct modules *ms, struct mem *m, const struct proc_maps *maps, bool *ret_changed);
void modules_free(struct modules *ms);

/* Frees a module that is not in the list. Accepts NULL, returns NULL. */
struct module *module_free(struct modules *ms, struct module *mod);

/* The module whose code contains `pc`, or NULL. */
struct module *modules_find(const struct modules *ms, addr_t pc);

#endif
