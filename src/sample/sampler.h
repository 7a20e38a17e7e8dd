/*
 * What all sampled processes of a session share: interned strings and functions, the hold, the counts.
 */
#ifndef SAMPLE_SAMPLER_H
#define SAMPLE_SAMPLER_H

#include "base/err.h"
#include "base/intern.h"
#include "pause/pause.h"
#include "sample/trace.h"

struct sampler_options {
    bool nonblocking; /* never hold a thread */
    bool idle;        /* threads that do not run, too */
    bool gil_only;    /* only threads that hold the GIL */
    bool gil;         /* say who holds the GIL */
    bool native;      /* native frames, too */
    bool native_all;  /* and those of the interpreter, and threads without Python */
    bool same_core;   /* read running threads from their own core rather than by ptrace */
    unsigned locals;  /* local variables too: 0 none, 1 short values, 2 and more longer ones */
    bool show_secrets;
    /* How long all of it may wait for threads that get no CPU to stop on: a nice process on a busy machine. 0: not. */
    uint64_t patience_ns;
    bool recording;                      /* the same threads are read again and again */
    const struct known_keys *known_keys; /* stacks whose frames are not wanted again; NULL: none */
};

#define SAMPLER_ERRORS (ERR_END_ - ERR_NOMEM)

struct sampler {
    struct sampler_options options;
    struct intern *names;
    struct pauser pauser;
    /* Counts over the session. */
    uint64_t stacks;                 /* delivered */
    uint64_t idle;                   /* seen and left out because their thread did not run */
    uint64_t no_gil;                 /* left out because their thread did not hold the GIL */
    uint64_t cut_locals;             /* of which not all variables were read */
    uint64_t unsure;                 /* delivered, but read without a hold while the thread moved */
    uint64_t native_none;            /* without native frames: the thread could not be held */
    uint64_t native_cut;             /* native frames that could not be followed to their beginning */
    uint64_t native_failed;          /* Python frames that had no place among them */
    uint64_t errors[SAMPLER_ERRORS]; /* by kind: code - ERR_NOMEM */
    struct func_table *funcs;
};

struct sampler *sampler_new(const struct sampler_options *options); /* NULL when out of memory */
struct sampler *sampler_free(struct sampler *s);

void sampler_count_error(struct sampler *s, int code);
uint64_t sampler_errors(const struct sampler *s);

/* The one `struct func` of these interned strings. NULL when out of memory. */
const struct func *sampler_func(struct sampler *s, const struct func *key);

#endif
