/*
 * Code addresses -> functions as they are shown. Each address is looked up once.
 */
#ifndef SAMPLE_NATIVE_NAMES_H
#define SAMPLE_NATIVE_NAMES_H

#include "base/hash_table.h"
#include "elf/symbols.h"
#include "sample/native_files.h"
#include "sample/sampler.h"
#include "unwind/unwind.h"

struct perf_map;
struct files;

/* One function at an address: the function itself, or one that it was inlined into. */
struct native_func {
    const struct func *func;
    int line;
    bool hidden;                    /* internal to the interpreter: shown with --native-all only */
    bool hidden_at_root;            /* hidden if no Python frame is further out */
    bool hidden_if_calls_eval;      /* hidden if it calls the eval function */
    bool is_eval;                   /* the eval function: see hidden_functions.h */
    bool is_greenlet_start;         /* a greenlet's stack begins here: see hidden_functions.h */
    struct symbols_name symbols_id; /* for symbols_same_call */
};

/* The functions at one address, innermost first. Interned: equal chains are the same pointer. */
struct native_chain {
    uint64_t hash;
    size_t n;
    struct native_func items[];
};

struct native_names {
    struct sampler *sampler;
    const struct files *files;
    pid_t pid;          /* 0: a core file */
    pid_t inner_pid;    /* the target's pid in its own namespace */
    addr_t interpreter; /* start address of the module that holds the interpreter */
    bool is_python2;
    bool show_hidden; /* show hidden functions, too */
    struct mem *mem;
    struct perf_map *perf_map;
    uint64_t perf_map_ns;
    struct native_chain **chains;
    size_t n_chains, cap_chains;
    struct hash_table chain_index; /* of `chains`, by content */
};

void native_names_close(struct native_names *names);

/* The functions at a place, cached in place->user. NULL when out of memory. */
const struct native_chain *native_names_of(struct native_names *names, struct pc_entry *place);

/* The same for all places of a stack, in as few requests as possible. 0 or ERR_NOMEM. */
int native_names_resolve(struct native_names *names, const struct native_stack *stack);

/* Reads the symbols of a module and the index of its debug info now, not at the first lookup. */
void native_names_warm_up(struct native_names *names, struct module *mod);

#endif
