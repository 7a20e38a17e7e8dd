/*
 * Creates and frees a session, and interns functions.
 */
#include "sample/sampler.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/hash_table.h"
#include "target/proc.h"

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#define CORE_NS NS_PER_MS /* on a core of the target, at a stretch */

struct func_table {
    struct func **items;
    size_t n, cap;
    struct hash_table index; /* of `items` */
};

static struct func_table *table_free(struct func_table *t)
{
    if (!t)
        return NULL;
    for (size_t i = 0; i < t->n; i++)
        free(t->items[i]);
    free(t->items);
    hash_table_free(&t->index);
    free(t);
    return NULL;
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

const struct func *sampler_func(struct sampler *s, const struct func *key)
{
    struct func_table *t = s->funcs;
    uint64_t hash = func_hash(key);
    size_t step = 0;
    struct func *f;
    uint32_t at;

    while ((at = hash_table_next(&t->index, hash, &step)) != HASH_TABLE_NONE)
        if (func_equal(t->items[at], key))
            return t->items[at];
    if (hash_table_reserve_item(&t->index, (void **)&t->items, &t->cap, t->n, sizeof(struct func *)) < 0)
        return NULL;
    f = malloc(sizeof(*f));
    if (!f)
        return NULL;
    *f = *key;
    t->items[t->n] = f;
    hash_table_add(&t->index, hash, (uint32_t)t->n++);
    return f;
}

struct sampler *sampler_new(const struct sampler_options *options)
{
    struct sampler *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->options = *options;
    s->since_ticks = proc_clock_ticks();
    task_open(&s->self, getpid(), getpid()); /* the main thread samples */
    s->pauser = (struct pauser){.nonblocking = options->nonblocking,
                                .use_same_core = options->same_core,
                                .sleeper_regs = options->native && !options->recording,
                                .want_idle = options->include_idle,
                                .patience_ns = options->patience_ns,
                                .affinity.cpu = CPU_AFFINITY_ANY};
    s->names = intern_new();
    s->funcs = calloc(1, sizeof(*s->funcs));
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
    task_close(&s->self);
    table_free(s->funcs);
    native_files_free(&s->files);
    intern_free(s->names);
    free(s);
    return NULL;
}

void sampler_leave_core(struct sampler *s)
{
    struct cpu_affinity *c = &s->pauser.affinity;

    if (s->options.recording && c->realtime)
        cpu_affinity_leave(c);
    else if (!s->options.recording && c->cpu >= 0 && cpu_affinity_has_others(c))
        cpu_affinity_move_away(c);
}

void sampler_leave_core_if_long(struct sampler *s)
{
    const struct cpu_affinity *c = &s->pauser.affinity;

    if (c->cpu >= 0 && c->realtime && clock_now_ns() - c->since_ns > CORE_NS)
        sampler_leave_core(s);
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
