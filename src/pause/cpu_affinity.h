/*
 * Being on the CPU core of the thread that is read: it cannot run there while we do.
 */
#ifndef PAUSE_CPU_AFFINITY_H
#define PAUSE_CPU_AFFINITY_H

#include <stdbool.h>
#include <stdint.h>

#define CPU_AFFINITY_CPUS 4096
#define CPU_AFFINITY_ANY  (-1) /* we are not bound */
#define CPU_AFFINITY_AWAY (-2) /* we may be anywhere but on one: see cpu_affinity_move_away */

struct cpu_affinity {
    int cpu;      /* where we are bound to, or one of the two below */
    bool refused; /* a cpuset, or the user, keeps us off a core that we wanted */
    bool known;   /* `allowed` is filled */
    uint64_t allowed[CPU_AFFINITY_CPUS / 64];
    bool urgent;       /* we run before everyone else when we wake up */
    bool never_urgent; /* that was refused */
};

/* Binds us to `cpu` and moves there. ERR_PERMISSION when it is not allowed. */
int cpu_affinity_pin(struct cpu_affinity *c, int cpu);

/* Unbinds: we may run where we could before. */
void cpu_affinity_unpin(struct cpu_affinity *c);

/* True when there is more than one CPU that we may run on, as far as is known: after the first cpu_affinity_pin. */
bool cpu_affinity_has_others(const struct cpu_affinity *c);

/* Goes to any other CPU than the one that we are on. */
void cpu_affinity_move_away(struct cpu_affinity *c);

/* The CPU that we run on just now; -1: not told. */
int cpu_affinity_current(void);

/* Asks for short turns, which the kernel gives sooner (6.12 and later): who wakes up on a busy core waits there until a
 * turn of a millisecond or more has ended. Anyone may. */
void cpu_affinity_use_short_slice(void);

/* Asks the kernel to run us at once whenever we wake up: for high rates. Does nothing without the right to it. */
void cpu_affinity_use_realtime(struct cpu_affinity *c, bool urgent);

#endif
