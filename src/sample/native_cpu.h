/*
 * The CPU time that a process spends in threads without Python, for a hint at the end of a recording without
 * --native-all.
 *
 * The figure is a lower bound. It adds up the run times of threads that exist at two consecutive measurements and never
 * have a Python thread state at one. The difference between the process CPU clock and the run times of the Python
 * threads would claim too much: it includes Python threads that start and end unseen.
 */
#ifndef SAMPLE_NATIVE_CPU_H
#define SAMPLE_NATIVE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process;

struct native_cpu_thread {
    pid_t tid;
    bool has_python; /* it had a Python thread state at this or an earlier measurement */
    uint64_t run_ns; /* CPU time at the last measurement */
    uint64_t sum_ns; /* CPU time since the first */
};

/* Zeroed at first. */
struct native_cpu {
    struct native_cpu_thread *items; /* sorted by `tid` */
    size_t n;
    uint64_t ended_ns;           /* CPU time of threads without Python that have ended */
    uint64_t begin_ns, total_ns; /* process CPU clock at the first measurement, and its advance until the last */
    uint64_t clock_ns;           /* process CPU clock at the tick `clock_at_ns` */
    uint64_t clock_at_ns;
    uint64_t first_ns, due_ns; /* when the first measurement was; when the next one is due */
    bool gap;                  /* the last measurement failed: do not count the time since the one before it */
};

struct cpu_use {
    uint64_t total_ns;
    uint64_t native_ns; /* in threads without Python */
};

/* Measures if it is due. Call it a few times per second. */
void native_cpu_update(struct process *p, uint64_t now_ns);
/* The CPU time of the process up to this tick that is in threads with Python, as far as that is known; 0 before the first
 * measurement. */
uint64_t native_cpu_python_ns(struct process *p);
/* Measures now, for the end of a recording, and adds what was measured so far to `use`. */
void native_cpu_finish(struct process *p, struct cpu_use *use);
/* Adds what was measured so far to `use`, and frees it. */
void native_cpu_free(struct native_cpu *c, struct cpu_use *use);

#endif
