/*
 * Time: samples a tree of processes at a steady rate until told to end, or until all of it has ended. Late ticks are
 * dropped, never made up.
 */
#ifndef SAMPLE_LOOP_H
#define SAMPLE_LOOP_H

#include "sample/process_tree.h"

enum loop_end { LOOP_DURATION, LOOP_STOPPED, LOOP_GONE };

/* What the caller wants done between two samples: false ends the loop. */
typedef bool (*loop_tick)(void *arg, uint64_t elapsed_ns);
/* One stack, seen `elapsed_ns` after the start. 0, or an error that ends the loop. */
typedef int (*loop_trace)(const struct trace *trace, uint64_t elapsed_ns, void *arg);

struct loop {
    struct process_tree *tree;
    uint64_t interval_ns;
    uint64_t duration_ns; /* 0: no end */
    loop_tick tick;
    loop_trace trace;
    void *arg;
    /* Results. */
    uint64_t ticks, missed;
    uint64_t elapsed_ns;
    enum loop_end end;
    uint64_t random;                       /* state of the jitter */
    uint64_t late;                         /* ticks at which we were woken long after we should have been */
    uint64_t woke_ns;                      /* when we last slept */
    double mean_read_ns;                   /* how long we are on the target's core for a tick, */
    uint64_t n_reads;                      /* as a mean over so many */
    uint64_t same_core_reads, other_reads; /* stacks that were read there so far, and not there */
    uint64_t root_checked_ns;              /* when the root was last looked at */
    uint64_t python_seen_ns;               /* when the root, or any Python, was last there */
    uint64_t housekept_ns;                 /* when signals and the target were last looked at */
    uint64_t refreshed_ns;                 /* when new processes were last looked for */
    int error;                             /* that a look around met with */
};

/* 0, or an error. */
int loop_run(struct loop *l);

#endif
