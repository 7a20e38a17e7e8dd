/*
 * Addresses of code -> functions as they are shown. Each address is looked up once.
 */
#ifndef SAMPLE_NATIVE_NAMES_H
#define SAMPLE_NATIVE_NAMES_H

#include "elf/symbols.h"
#include "sample/sampler.h"
#include "unwind/unwind.h"

struct perf_map;
struct files;

/* One function at an address: the one that is there, or one that it was inlined into. */
struct native_func {
    const struct func *func;
    int line;
    bool hidden;                    /* the interpreter's own, shown with --native-all only */
    bool hidden_at_root;            /* the same, but only where a thread begins */
    bool hidden_above_eval;         /* the same, but only where it calls the interpreter's loop */
    bool is_eval;                   /* the interpreter's loop */
    struct symbols_name symbols_id; /* for symbols_same_call */
};

/* What is at an address, innermost first. Equal ones are the same. */
struct native_chain {
    uint64_t hash;
    size_t n;
    struct native_func items[];
};

struct native_names {
    struct sampler *sampler;
    const struct files *files;
    int root_fd;        /* the target's root; -1: ours */
    pid_t pid;          /* 0: a core file */
    pid_t inner_pid;    /* as the target sees itself */
    addr_t interpreter; /* start of the module that is Python */
    bool is_python2;
    bool show_hidden; /* hidden functions are shown, too */
    struct mem *mem;
    struct perf_map *perf_map;
    uint64_t perf_map_ns;
    struct native_chain **slots; /* of all chains, by hash */
    size_t n_chains, cap;
};

int native_names_open(struct native_names *names);
void native_names_close(struct native_names *names);

/* The names of a place; kept there. NULL when out of memory. */
const struct native_chain *native_names_of(struct native_names *names, struct unwind_place *place);

/* For unwind_set_free: what a module keeps for its names. */
void native_names_free_module(void *user);

/* For unwind_set_files: the file of a module, if it is the very one that is mapped, or -1. */
int native_names_open_module(void *names, const struct module *mod, const char **ret_path);

#endif
