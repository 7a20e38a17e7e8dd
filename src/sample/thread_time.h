/*
 * How long a thread ran, and how long it waited for a core, since its last sample, according to the kernel. The sampler
 * weights each stack by it, so that a profile adds up to the CPU time that the threads have actually used.
 */
#ifndef SAMPLE_THREAD_TIME_H
#define SAMPLE_THREAD_TIME_H

#include "target/task.h"

/* How much of a thread's time has been attributed to stacks so far. */
struct thread_time {
    bool is_known;                 /* false: the kernel has no schedstat */
    bool is_new;                   /* no stack has been attributed yet */
    bool is_recorded;              /* the thread started during the recording */
    bool was_elsewhere;            /* before that, it ran for a while without Python */
    uint64_t run_ns, core_wait_ns; /* of sched_stats */
    uint64_t at_ns;                /* on the clock of clock_now_ns() */
    /* Of thread_time_competes(). */
    struct sched_stats seen;
    uint64_t recent_run_ns, recent_wait_ns; /* decaying sums */
};

/* The time since the last sample, and how much of it the thread ran or waited for a CPU. */
struct time_parts {
    uint64_t elapsed_ns;
    uint64_t run_ns;       /* on a CPU */
    uint64_t core_wait_ns; /* waiting for a CPU */
    uint64_t lost_ns;      /* CPU time that is too old to be attributed to the current stack */
};

/* Begins at zero for a thread that started during the recording, else with what it has used up to now. */
void thread_time_begin(struct thread_time *t, struct task *task, bool during_recording, uint64_t now_ns);

/* True if the thread often waits for a core. Call it at each sample. */
bool thread_time_competes(struct thread_time *t, const struct sched_stats *stats);

/*
 * Takes the time since the last call. `stats` are current; they are exact if the thread has been descheduled since it
 * last ran. While the thread runs on another CPU, they can be as old as the kernel's last timer tick; then this charges
 * the elapsed time, and later calls correct the error. `limit_ns`: the most time to attribute to the first stack.
 */
struct time_parts thread_time_take(struct thread_time *t, const struct sched_stats *stats, bool is_exact,
                                   uint64_t now_ns, uint64_t limit_ns);

/* CPU time that has not been taken. */
uint64_t thread_time_left(const struct thread_time *t, const struct sched_stats *stats);

#endif
