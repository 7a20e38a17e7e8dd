/*
 * CPU affinity and priority of our own thread. While we run on the core of the thread that we read, the thread cannot
 * run.
 */
#ifndef PAUSE_CPU_AFFINITY_H
#define PAUSE_CPU_AFFINITY_H

#include <stdbool.h>
#include <stdint.h>

#define CPU_AFFINITY_CPUS 4096
#define CPU_AFFINITY_ANY  (-1) /* not pinned */
#define CPU_AFFINITY_AWAY (-2) /* any CPU but one: see cpu_affinity_move_away() */

struct cpu_affinity {
    int cpu;    /* the CPU we are pinned to, or one of the two above */
    bool known; /* `allowed` is valid */
    uint64_t allowed[CPU_AFFINITY_CPUS / 64];
    bool realtime;         /* we have real-time priority */
    bool realtime_refused; /* real-time priority was refused */
    bool returning;        /* we have left a core, and need real-time priority to get back at once */
    uint64_t since_ns;     /* when we came to this core, or last woke up on it */
    uint64_t left_ns;      /* our CPU time when we were last pinned */
    uint64_t away_ns;      /* CPU time while not pinned, up to the last cpu_affinity_pin() */
};

/* Pins us to `cpu` and migrates there. ERR_PERMISSION if we may not. */
int cpu_affinity_pin(struct cpu_affinity *c, int cpu);

/* Restores the original affinity. */
void cpu_affinity_unpin(struct cpu_affinity *c);

/* True if we may run on more than one CPU. Valid after the first cpu_affinity_pin(). */
bool cpu_affinity_has_others(const struct cpu_affinity *c);

/* Migrates to any CPU but the current one. */
void cpu_affinity_move_away(struct cpu_affinity *c);

/* Gives the target its core back, before work that takes longer than reading a stack: drops real-time priority, and
 * moves to another core. If real-time priority is refused, stays: returning would take a whole time slice. */
void cpu_affinity_leave(struct cpu_affinity *c);

/* The CPU time that we have used so far while pinned. */
uint64_t cpu_affinity_pinned_ns(const struct cpu_affinity *c);

/* The CPU we run on now; -1 if unknown. */
int cpu_affinity_current(void);

/* Requests a short time slice, which lets the scheduler (Linux 6.12 and later) run us sooner: otherwise a thread
 * that wakes up on a busy core waits for the end of a time slice of a millisecond or more. Needs no privileges. */
void cpu_affinity_use_short_slice(void);

/* Requests real-time priority, to run as soon as we wake up, for high sampling rates. Does nothing without the
 * privilege. */
void cpu_affinity_use_realtime(struct cpu_affinity *c, bool realtime);

#endif
