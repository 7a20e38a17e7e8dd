/*
 * Being on the CPU core of the thread that is read: it cannot run there while we do.
 */
#ifndef TARGET_CORE_H
#define TARGET_CORE_H

#include <stdbool.h>
#include <stdint.h>

#define CORE_CPUS 4096
#define CORE_ANY  (-1) /* we are not bound */
#define CORE_AWAY (-2) /* we may be anywhere but on one: see core_flee */

struct core {
    int cpu;      /* where we are bound to, or one of the two below */
    bool refused; /* a cpuset, or the user, keeps us off a core that we wanted */
    bool known;   /* `allowed` is filled */
    uint64_t allowed[CORE_CPUS / 64];
    bool urgent;       /* we run before everyone else when we wake up */
    bool never_urgent; /* that was refused */
};

/* Binds us to `cpu` and moves there. ERR_PERMISSION when it is not allowed. */
int core_go(struct core *c, int cpu);

/* Unbinds: we may run where we could before. */
void core_leave(struct core *c);

/* True when there is more than one CPU that we may run on, as far as is known: after the first core_go. */
bool core_has_others(const struct core *c);

/* Goes to any other CPU than the one that we are on. */
void core_flee(struct core *c);

/* The CPU that we run on just now; -1: not told. */
int core_here(void);

/* Asks for short turns, which the kernel gives sooner (6.12 and later): who wakes up on a busy core waits there until a
 * turn of a millisecond or more has ended. Anyone may. */
void core_be_prompt(void);

/* Asks the kernel to run us at once whenever we wake up: for high rates. Does nothing without the right to it. */
void core_be_urgent(struct core *c, bool urgent);

#endif
