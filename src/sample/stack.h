/*
 * Reads one thread's stack: pause, snapshot, interpret, verify, retry.
 */
#ifndef SAMPLE_STACK_H
#define SAMPLE_STACK_H

#include "python/awaiters.h"
#include "python/code.h"
#include "python/frames.h"
#include "python/repr/locals.h"
#include "sample/native.h"
#include "sample/thread_table.h"

/* Reused from one stack to the next. */
struct stack {
    struct frames frames;
    struct locals locals; /* of `frames`, if requested */
    addr_t *addrs;
    const struct code **codes; /* one per frame */
    struct awaiters awaiters;  /* --async: they replace the event loop */
    size_t cap_addrs, cap_codes;
    uint64_t key;         /* equal for equal stacks */
    uint64_t checked_ns;  /* when the code objects were last checked for changes */
    uint64_t code_reads;  /* code_cache_reads() at the last stack */
    uint64_t new_code_ns; /* when code_cache_reads() last increased */
    char kernel_state;    /* of task_look */
    bool active;          /* the thread was in state R, or has woken up since */
    enum pause_need need; /* of the next try */
    bool retry_at_once;   /* the last try checked the run count only afterwards: see pause.check_after */
    bool owns_gil;
    bool waits_for_gil;             /* it was asleep, waiting for the GIL */
    bool unsure;                    /* read unpaused while the thread ran: only the outermost frames are valid */
    bool heads_checked, heads_same; /* the heads of the thread lists were read, and are unchanged */
    bool truncated;                 /* core file: the callers of the outermost frame could not be read */
    struct code unreadable;         /* placeholder for code objects that are not in the core file */
};

/* What a read needs from the process. */
struct stack_source {
    struct sampler *sampler;
    const struct python *py;
    struct code_cache *codes;
    struct snapshot *snapshot;      /* the memory that `py` reads */
    const struct py_threads *heads; /* not NULL: also check whether threads have started */
    struct native *native;          /* not NULL: also capture the native stack */
    bool stop;                      /* with all registers, so stop the thread */
    struct tasks *tasks;            /* not NULL: also read who awaits the running task */
};

/* Reads the stack of `th`. 0; STACK_IDLE when the thread is not in state R and `include_idle` is false; ERR_GONE when it
 * has ended; ERR_TORN and other errors when no try succeeded. */
int stack_read(struct stack *st, const struct stack_source *src, struct sampled_thread *th, bool include_idle);
/* The same for a thread that has no Python thread state. */
int stack_read_native(struct stack *st, const struct stack_source *src, struct sampled_thread *th, bool include_idle);
/* True if the Python frames of `th` are those of its last stack. It does not pause the thread: the caller checks that
 * the thread is asleep and does not run meanwhile. */
bool stack_is_same(struct stack *st, const struct stack_source *src, struct sampled_thread *th);
/* The number of Python frames that are shown: those of the thread, or with --async those of the running task and the tasks that
 * wait for it. */
size_t stack_frames(const struct stack *st);
void stack_free(struct stack *st);

/* Not an error: the thread is not in state R, and its stack was not requested. */
#define STACK_IDLE 1

#endif
