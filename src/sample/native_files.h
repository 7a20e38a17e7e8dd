/*
 * What the files of modules say: symbols, unwind tables, perf maps. A helper process reads them (base/helper.h), since a file
 * system may hang, and libdw may exit when memory is short.
 */
#ifndef SAMPLE_NATIVE_FILES_H
#define SAMPLE_NATIVE_FILES_H

#include "base/helper.h"
#include "elf/symbols.h"
#include "unwind/modules.h"

struct native_names;
struct sampler;

/* The symbols of a module, which the helper has opened; module->user. */
struct native_symbols {
    struct sampler *sampler;
    uint64_t id, generation; /* of the helper; another one has to open them again */
    unsigned deaths; /* of helpers that read them: after the first, leave out debug info; after the second, give up */
    bool failed;
    bool in_memory; /* a lookup reads no more files */
};

/* Symbols that are no longer needed. The next call closes them. */
struct native_files {
    uint64_t *closed, closed_generation;
    size_t n_closed, cap_closed;
};

void native_files_free(struct native_files *f);

/* What the helper found at each address, in order. */
#define NATIVE_FILES_BATCH 64
struct native_lookup {
    size_t n; /* addresses; 0: nothing was found */
    struct helper_answer answer;
    struct unpack names; /* in it, those not returned yet */
};

/* Looks up addresses, without the load bias, of one module; at most NATIVE_FILES_BATCH. */
void native_files_lookup(struct native_names *names, struct module *mod, const uint64_t *vaddrs, size_t n,
                         struct native_lookup *ret);
/* The functions at the next address: as symbols_lookup. The strings live as long as the lookup. */
size_t native_lookup_next(struct native_lookup *l, struct symbols_name *ret, size_t max);
void native_lookup_free(struct native_lookup *l);

/* For unwind_set_free. */
void native_files_close_module(void *user);

/* For unwind_set_files; `arg` is a struct native_names. */
int native_files_find_eh_frame(void *arg, const struct module *mod, uint64_t *ret_addr, uint64_t *ret_len);
int native_files_read_debug_frame(void *arg, const struct module *mod, size_t max, unsigned char **ret,
                                  size_t *ret_len);
int native_files_find_symbol(void *arg, const struct module *mod, const char *name, uint64_t *ret);

/* The perf map of the process. NULL if there is none; the caller frees it. */
char *native_files_perf_map(struct native_names *names, size_t *ret_len);

#endif
