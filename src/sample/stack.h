/*
 * One thread's stack, read so that it is true.
 */
#ifndef SAMPLE_STACK_H
#define SAMPLE_STACK_H

#include "python/code.h"
#include "python/frames.h"
#include "python/repr/locals.h"
#include "sample/native.h"
#include "sample/thread_table.h"

/* Reused from one stack to the next. */
struct stack {
    struct frames frames;
    struct locals locals; /* of these frames, when they were asked for */
    addr_t *addrs;
    const struct code **codes; /* of each frame */
    size_t cap_addrs, cap_codes;
    uint64_t key;         /* of what was read */
    uint64_t checked_ns;  /* when the code objects were last checked */
    uint64_t code_reads;  /* of code objects, as of the last stack */
    uint64_t new_code_ns; /* when there was last a new one */
    bool active;          /* the kernel ran the thread, or was about to */
    bool need_ptrace;     /* the next try cannot do without */
    bool retry_at_once;   /* the last try read it first and asked then: see freeze.h */
    bool owns_gil;
    bool unsure;
    bool heads_checked, heads_same; /* `heads` of the source was looked at, and is still so */
    bool truncated;                 /* of a core file: what the outermost frame was called from could not be read */
    struct code unreadable;         /* stands for code objects that are not in a core file */
};

/* What a reading needs of the process. */
struct stack_source {
    struct sampler *sampler;
    const struct python *py;
    struct code_cache *codes;
    struct snapshot *snapshot;      /* the memory that `py` reads */
    const struct py_threads *heads; /* not NULL: see with the stack whether a thread has come */
    struct native *native;          /* not NULL: capture the native stack, too */
};

/* Reads the stack of `k`. With `idle` false a thread that does not run is not read: ERR_IDLE_. ERR_GONE when the
 * thread has ended. */
int stack_read(struct stack *st, const struct stack_source *src, struct sampled_thread *th, bool idle);
/* The same for a thread that has no Python. */
int stack_read_native(struct stack *st, const struct stack_source *src, struct sampled_thread *th, bool idle);
void stack_free(struct stack *st);

/* Not an error: the thread does not run and was not asked for. */
#define STACK_IDLE 1

#endif
