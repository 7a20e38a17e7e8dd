/*
 * Creates and frees a session, and interns functions.
 */
#include "sample/sampler.h"

#include "base/hash.h"

#include <stddef.h>
#include <stdlib.h>

struct func_table {
    struct func **slots;
    size_t n, cap; /* cap is a power of two */
};

static struct func_table *table_free(struct func_table *t)
{
    if (!t)
        return NULL;
    for (size_t i = 0; t->slots && i < t->cap; i++)
        free(t->slots[i]);
    free(t->slots);
    free(t);
    return NULL;
}

static struct func_table *table_new(size_t cap)
{
    struct func_table *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->cap = cap;
    t->slots = calloc(cap, sizeof(*t->slots));
    return t->slots ? t : table_free(t);
}

static uint64_t func_hash(const struct func *f)
{
    uint64_t h = hash_mix((uint64_t)(uintptr_t)f->name, (uint64_t)(uintptr_t)f->filename);

    return hash_mix(hash_mix(h, (uint64_t)(uintptr_t)f->module), (uint64_t)f->first_line);
}

static bool func_equal(const struct func *a, const struct func *b)
{
    return a->name == b->name && a->filename == b->filename && a->short_filename == b->short_filename &&
           a->module == b->module && a->first_line == b->first_line;
}

static size_t table_slot(const struct func_table *t, const struct func *key)
{
    size_t at = func_hash(key) & (t->cap - 1);

    while (t->slots[at] && !func_equal(t->slots[at], key))
        at = (at + 1) & (t->cap - 1);
    return at;
}

static int table_double(struct func_table *t)
{
    struct func_table bigger = {.cap = t->cap * 2};

    bigger.slots = calloc(bigger.cap, sizeof(*bigger.slots));
    if (!bigger.slots)
        return ERR_NOMEM;
    for (size_t i = 0; i < t->cap; i++)
        if (t->slots[i])
            bigger.slots[table_slot(&bigger, t->slots[i])] = t->slots[i];
    free(t->slots);
    t->slots = bigger.slots;
    t->cap = bigger.cap;
    return 0;
}

const struct func *sampler_func(struct sampler *s, const struct func *key)
{
    struct func_table *t = s->funcs;
    size_t at;

    if (t->n * 2 >= t->cap && table_double(t) < 0)
        return NULL;
    at = table_slot(t, key);
    if (!t->slots[at]) {
        struct func *f = malloc(sizeof(*f));

        if (!f)
            return NULL;
        *f = *key;
        t->slots[at] = f;
        t->n++;
    }
    return t->slots[at];
}

struct sampler *sampler_new(const struct sampler_options *options)
{
    struct sampler *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->options = *options;
    s->pauser = (struct pauser){.nonblocking = options->nonblocking,
                                .use_same_core = options->same_core,
                                .want_idle = options->idle,
                                .patience_ns = options->patience_ns,
                                .affinity.cpu = CPU_AFFINITY_ANY};
    s->names = intern_new();
    s->funcs = table_new(1024);
    return s->names && s->funcs ? s : sampler_free(s);
}

struct sampler *sampler_free(struct sampler *s)
{
    if (!s)
        return NULL;
    tracer_detach(&s->pauser.tracer);
    tracer_sweep(&s->pauser.tracer);
    cpu_affinity_use_realtime(&s->pauser.affinity, false);
    cpu_affinity_unpin(&s->pauser.affinity);
    table_free(s->funcs);
    intern_free(s->names);
    free(s);
    return NULL;
}

void sampler_count_error(struct sampler *s, int code)
{
    if (code < ERR_NOMEM || code >= ERR_END_)
        code = ERR_INTERNAL;
    s->errors[code - ERR_NOMEM]++;
}

uint64_t sampler_errors(const struct sampler *s)
{
    uint64_t n = 0;

    for (size_t i = 0; i < SAMPLER_ERRORS; i++)
        n += s->errors[i];
    return n;
}
