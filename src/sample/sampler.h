/*
 * State of a sampling session, shared by all processes: options, interned strings and functions, the pauser, counters.
 */
#ifndef SAMPLE_SAMPLER_H
#define SAMPLE_SAMPLER_H

#include "base/err.h"
#include "base/intern.h"
#include "pause/pause.h"
#include "sample/native_cpu.h"
#include "sample/native_files.h"
#include "sample/trace.h"

/* What a stack counts for. */
enum sampler_mode {
    SAMPLER_COUNT, /* one sample: as in py-spy, and with --idle and --gil */
    SAMPLER_CPU,   /* the CPU time that the thread has used since its last stack */
    SAMPLER_WALL,  /* the time since its last stack, divided into running and waiting */
    SAMPLER_GIL,   /* the time since the last tick, for the thread that holds the GIL */
    SAMPLER_WAIT,  /* the time that it waited since its last stack */
};

struct sampler_options {
    enum sampler_mode mode;
    bool nonblocking;     /* never stop a thread */
    bool await_stacks;    /* show a running task of asyncio below the tasks that await it */
    bool all_tasks;       /* also show the tasks that wait: needs `await_stacks` and SAMPLER_WALL */
    bool include_idle;    /* include threads that are not in state R */
    bool gil_only;        /* only threads that hold the GIL */
    bool find_gil_holder; /* report which thread holds the GIL, and which wait for it */
    bool native;          /* include native frames */
    bool native_all;      /* also those of the interpreter, and threads without Python */
    bool kernel_names;    /* show the kernel's name of a thread that has none in Python */
    bool same_core;       /* read running threads from their own core instead of with ptrace */
    unsigned locals;      /* read local variables: 0 none, 1 short values, 2 and more longer ones */
    bool show_secrets;
    bool positions; /* the columns of each Python frame, as frame->source */
    bool waits;     /* why a thread waits, as trace->wait */
    /* Total time to wait for threads that get no CPU to stop on, such as a nice process on a busy machine. 0: do not
     * wait. */
    uint64_t patience_ns;
    bool recording;                      /* the same threads are read repeatedly */
    const struct known_keys *known_keys; /* emit these stacks without frames; NULL: none */
};

#define SAMPLER_ERRORS (ERR_END_ - ERR_NOMEM)

struct sampler {
    struct sampler_options options;
    struct intern *names;
    struct pauser pauser;
    /* Counters. */
    uint64_t stacks;                 /* passed to a sink */
    uint64_t unweighted;             /* skipped because the thread has not run since its last stack */
    uint64_t idle;                   /* skipped because the thread was not in state R */
    uint64_t no_gil;                 /* skipped because the thread did not hold the GIL */
    uint64_t unread;                 /* emitted without their stacks, since the deadline had passed */
    uint64_t cut_locals;             /* with some variables not read */
    uint64_t unsure;                 /* emitted, but read unpaused while the thread ran */
    uint64_t native_none;            /* without native frames, since no registers could be read */
    uint64_t native_cut;             /* native stacks not unwound to the start of the thread */
    uint64_t native_failed;          /* stacks with Python frames that match no native frame */
    uint64_t task_readings;          /* how often the waiting tasks were read, or had not changed since, */
    uint64_t tasks_most;             /* and the largest number of tasks then */
    uint64_t errors[SAMPLER_ERRORS]; /* by code - ERR_NOMEM */
    /* Time of all threads, in ns. */
    uint64_t attributed_ns; /* CPU time that stacks were weighted by, */
    uint64_t lost_ns;       /* CPU time without a stack */
    uint64_t core_wait_ns;  /* time spent waiting for a CPU */
    /* State. */
    struct task self;            /* the sampling thread */
    bool is_last;                /* no tick follows the current one */
    uint64_t tick_ns;            /* time that the current tick covers */
    uint64_t limit_ns;           /* the most CPU time to attribute to the first stack of a thread */
    unsigned contended;          /* threads compete for cores, or did so this many ticks ago, counted down */
    uint64_t since_ticks;        /* when the session began, in clock ticks since boot */
    unsigned gil_looks;          /* at threads that may be about to wait for the GIL; bounded */
    struct cpu_use cpu_of_ended; /* of processes that are no longer sampled */
    struct func_table *funcs;
    struct native_files files; /* symbols in the helper process */
};

struct sampler *sampler_new(const struct sampler_options *options); /* NULL when out of memory */
struct sampler *sampler_free(struct sampler *s);

/* Before work that takes longer than reading a stack: gives up real-time priority, and leaves the target's core until the next
 * stack. */
void sampler_leave_core(struct sampler *s);
/* The same, but only if we have been on that core for a while: there may be many threads and processes left to read. */
void sampler_leave_core_if_long(struct sampler *s);
void sampler_count_error(struct sampler *s, int code);
uint64_t sampler_errors(const struct sampler *s);

/* Returns the one `struct func` with these interned strings. NULL when out of memory. */
const struct func *sampler_func(struct sampler *s, const struct func *key);

#endif
