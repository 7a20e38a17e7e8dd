/*
 * The recording loop: samples a process tree at a steady rate until the duration is over, the caller stops it, or all
 * processes have ended. Late ticks are dropped; the loop never catches up.
 */
#ifndef SAMPLE_LOOP_H
#define SAMPLE_LOOP_H

#include "sample/sampled_tree.h"

enum loop_end { LOOP_DURATION, LOOP_STOPPED, LOOP_GONE };

/* Called between samples. False stops the loop. */
typedef bool (*loop_tick)(void *arg, uint64_t elapsed_ns);
/* Receives one stack, sampled `elapsed_ns` after the start. 0, or an error that ends the loop. */
typedef int (*loop_trace)(const struct trace *trace, uint64_t elapsed_ns, void *arg);

struct loop {
    struct process_tree *tree;
    uint64_t interval_ns;
    uint64_t duration_ns; /* 0: no limit */
    loop_tick tick;
    loop_trace trace;
    void *arg;
    /* Results. */
    uint64_t ticks, missed;
    uint64_t slowed; /* ticks at a lower rate than requested, to limit the slowdown of the target */
    uint64_t late;   /* ticks with a wakeup that was more than 300 us late */
    uint64_t elapsed_ns;
    enum loop_end end;
    bool is_early; /* it ended before the first regular tick */
    /* State. */
    uint64_t random;                       /* state of the generator */
    uint64_t woke_ns;                      /* when the last sleep ended */
    double mean_read_ns;                   /* mean time that the sampler spends on the target's core per tick, */
    uint64_t n_reads;                      /* over this many ticks */
    uint64_t same_core_reads, other_reads; /* pauser.reads at the last tick: same core, and ptrace or unpaused */
    uint64_t pauses, paused_ns;            /* of the pauser, at the last tick */
    uint64_t pinned_ns;                    /* our CPU time on the target's core then */
    uint64_t cpus;                         /* of the machine */
    double min_interval_ns;   /* mean of the shortest intervals that do not slow the target down too much */
    uint64_t held_ns;         /* the interval in effect */
    uint64_t root_checked_ns; /* when the root was last checked */
    uint64_t python_seen_ns;  /* when the root or another Python process last existed */
    uint64_t housekept_ns;    /* when signals and the target were last checked */
    uint64_t refreshed_ns;    /* when the process tree was last refreshed */
    int error;                /* from a refresh; it ends the loop */
};

/* Waits until a process of the tree is attached (tree->has_python), calling `tick` meanwhile. Otherwise l->end says why not:
 * LOOP_STOPPED or LOOP_GONE. 0 or an error. */
int loop_wait(struct loop *l);

/* The share of its speed that the target may lose at this interval. */
unsigned loop_most_loss_percent(uint64_t interval_ns);

/* 0 or an error. */
int loop_run(struct loop *l);

#endif
