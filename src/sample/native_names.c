/*
 * Looks up the functions at a code address, in ELF symbols, debug info or a perf map.
 */
#include "sample/native_names.h"

#include "base/clock.h"
#include "base/hash.h"
#include "elf/perf_map.h"
#include "sample/hidden_functions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INLINED 16
#define PERF_MAP_NS (200 * NS_PER_MS)

void native_names_close(struct native_names *names)
{
    for (size_t i = 0; i < names->n_chains; i++)
        free(names->chains[i]);
    free(names->chains);
    hash_table_free(&names->chain_index);
    perf_map_free(names->perf_map);
    names->chains = NULL;
    names->n_chains = names->cap_chains = 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

static const struct func *make_func(struct native_names *names, const char *name, const char *file, const char *path)
{
    struct intern *in = names->sampler->names;
    struct func key = {.name = intern_str(in, name),
                       .filename = intern_str(in, file && *file ? file : path),
                       .short_filename = intern_str(in, base_name(file && *file ? file : path)),
                       .module = intern_str(in, path)};

    if (!key.name || !key.filename || !key.short_filename || !key.module)
        return NULL;
    return sampler_func(names->sampler, &key);
}

static bool same_chain(const struct native_chain *a, const struct native_func *items, size_t n)
{
    if (a->n != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (a->items[i].func != items[i].func || a->items[i].line != items[i].line)
            return false;
    return true;
}

static const struct native_chain *chain_of(struct native_names *names, const struct native_func *items, size_t n)
{
    uint64_t hash = n;
    size_t step = 0;
    struct native_chain *c;
    uint32_t at;

    for (size_t i = 0; i < n; i++)
        hash = hash_mix(hash_mix(hash, (uint64_t)(uintptr_t)items[i].func), (uint64_t)items[i].line);
    while ((at = hash_table_next(&names->chain_index, hash, &step)) != HASH_TABLE_NONE)
        if (same_chain(names->chains[at], items, n))
            return names->chains[at];
    if (hash_table_reserve_item(&names->chain_index, (void **)&names->chains, &names->cap_chains, names->n_chains,
                                sizeof(struct native_chain *)) < 0)
        return NULL;
    c = malloc(sizeof(*c) + n * sizeof(*items));
    if (!c)
        return NULL;
    c->hash = hash;
    c->n = n;
    memcpy(c->items, items, n * sizeof(*items));
    names->chains[names->n_chains] = c;
    hash_table_add(&names->chain_index, hash, (uint32_t)names->n_chains++);
    return c;
}

/* CPython names code that runs a Python frame "py::", which is shown anyway: the trampolines of -X perf (3.12 and later)
 * and its JIT compiler's code. */
static bool is_python_code(const struct module *mod, const char *name)
{
    return !mod->is_elf && strncmp(name, "py::", 4) == 0;
}

static bool is_hidden(const struct native_names *names, const struct module *mod, const struct symbols_name *name)
{
    return name->is_helper || is_python_code(mod, name->name) ||
           hidden_functions_match(name->name, mod->path, mod->start == names->interpreter);
}

static int fill_named(struct native_names *names, const struct module *mod, const struct symbols_name *found, size_t n,
                      struct native_func *ret)
{
    bool in_python = mod->start == names->interpreter;

    for (size_t i = 0; i < n; i++) {
        ret[i] =
            (struct native_func){.func = make_func(names, found[i].name, found[i].file, mod->path),
                                 .line = found[i].line,
                                 .hidden = is_hidden(names, mod, &found[i]),
                                 .is_eval = in_python && hidden_functions_is_eval(found[i].name, names->is_python2),
                                 .is_greenlet_start = hidden_functions_is_greenlet_start(found[i].name),
                                 .symbols_id = found[i]};
        if (!ret[i].func)
            return ERR_NOMEM;
        ret[i].symbols_id.name = ret[i].func->name;
        ret[i].symbols_id.file = NULL;
    }
    return 0;
}

/* libfoo.so+0x1a2b: the start of the function, if known, so that all its addresses have the same name. */
static int fill_unnamed(struct native_names *names, const struct pc_entry *p, struct native_func *ret)
{
    const struct module *mod = p->module;
    addr_t at = (p->has_row ? p->row.function : p->pc) - mod->bias;
    char name[320];

    if (mod->is_elf)
        snprintf(name, sizeof(name), "%.256s+0x%llx", base_name(mod->path), (unsigned long long)at);
    else
        snprintf(name, sizeof(name), "[unnamed code]");
    *ret =
        (struct native_func){.func = make_func(names, name, NULL, mod->is_elf ? mod->path : "[memory]"),
                             .hidden = hidden_functions_match(NULL, mod->path, mod->start == names->interpreter),
                             .hidden_at_root = hidden_functions_is_libc(mod->path),
                             .hidden_if_calls_eval = !mod->is_elf}; /* a trampoline of the interpreter (-X perf_jit) */
    return ret->func ? 0 : ERR_NOMEM;
}

/* The target appends to its perf map while it runs. Read the file again when an address is not in it. */
static const char *look_up_perf_map(struct native_names *names, addr_t pc)
{
    const char *name = names->perf_map ? perf_map_find(names->perf_map, pc) : NULL;
    uint64_t now = clock_now_ns();
    size_t len;
    char *text;

    if (name || !names->files || (names->perf_map_ns && now - names->perf_map_ns < PERF_MAP_NS))
        return name;
    names->perf_map_ns = now;
    text = native_files_perf_map(names, &len);
    if (!text)
        return NULL;
    perf_map_free(names->perf_map);
    names->perf_map = perf_map_new(text, len);
    free(text);
    return names->perf_map ? perf_map_find(names->perf_map, pc) : NULL;
}

static int resolve_unnamed(struct native_names *names, struct pc_entry *p, struct native_func *ret)
{
    const char *perf = p->module->is_elf ? NULL : look_up_perf_map(names, p->pc);

    if (!perf)
        return fill_unnamed(names, p, ret);
    *ret =
        (struct native_func){.func = make_func(names, perf, NULL, "[JIT]"), .hidden = is_python_code(p->module, perf)};
    return ret->func ? 0 : ERR_NOMEM;
}

/* Names entries of one module. */
static int resolve_batch(struct native_names *names, struct module *mod, struct pc_entry **entries, size_t n)
{
    uint64_t vaddrs[NATIVE_FILES_BATCH] = {0};
    struct native_lookup lookup = {.n = 0};
    int r = 0;

    for (size_t i = 0; i < n; i++)
        vaddrs[i] = entries[i]->pc - mod->bias;
    if (mod->is_elf || mod->image)
        native_files_lookup(names, mod, vaddrs, n, &lookup);
    for (size_t i = 0; i < n && r == 0; i++) {
        struct native_func items[MAX_INLINED];
        struct symbols_name found[MAX_INLINED];
        size_t n_found = native_lookup_next(&lookup, found, MAX_INLINED);

        r = n_found ? fill_named(names, mod, found, n_found, items) : resolve_unnamed(names, entries[i], items);
        if (r == 0)
            entries[i]->user = chain_of(names, items, n_found ? n_found : 1);
        if (!entries[i]->user)
            r = ERR_NOMEM;
    }
    native_lookup_free(&lookup);
    return r;
}

static bool contains(struct pc_entry *const *entries, size_t n, const struct pc_entry *p)
{
    for (size_t i = 0; i < n; i++)
        if (entries[i] == p)
            return true;
    return false;
}

int native_names_resolve(struct native_names *names, const struct native_stack *stack)
{
    for (size_t i = 0; i < stack->n; i++) {
        struct pc_entry *batch[NATIVE_FILES_BATCH], *first = stack->items[i].pc_entry;
        size_t n = 0;
        int r;

        if (first->user)
            continue;
        for (size_t k = i; k < stack->n && n < NATIVE_FILES_BATCH; k++) {
            struct pc_entry *p = stack->items[k].pc_entry;

            if (!p->user && p->module == first->module && !contains(batch, n, p))
                batch[n++] = p;
        }
        r = resolve_batch(names, first->module, batch, n);
        if (r < 0)
            return r;
    }
    return 0;
}

void native_names_warm_up(struct native_names *names, struct module *mod)
{
    uint64_t vaddr = mod->n_code ? mod->code[0].start - mod->bias : 0;
    struct native_lookup lookup;

    if (!mod->is_elf || !mod->n_code)
        return;
    native_files_lookup(names, mod, &vaddr, 1, &lookup);
    native_lookup_free(&lookup);
}

const struct native_chain *native_names_of(struct native_names *names, struct pc_entry *p)
{
    if (!p->user && resolve_batch(names, p->module, &p, 1) < 0)
        return NULL;
    return p->user;
}
