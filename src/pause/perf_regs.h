/*
 * User-space registers of a thread at its last context switch, which perf records (perf_event_open(2)).
 * While a thread is off-CPU they are its current registers, without stopping it. Usually requires root.
 */
#ifndef PAUSE_PERF_REGS_H
#define PAUSE_PERF_REGS_H

#include "target/regs.h"

#include <stdbool.h>
#include <sys/types.h>

/* Zero-initialise. */
struct perf_regs {
    void *ring; /* ring buffer shared with the kernel; NULL: not open */
    bool tried;
};

/* Starts recording, once; does nothing without the privilege. */
void perf_regs_open(struct perf_regs *s, pid_t tid);
void perf_regs_close(struct perf_regs *s);

/* Registers of a thread that is off-CPU. ERR_UNSUPPORTED if no context switch was recorded yet. */
int perf_regs_read(const struct perf_regs *s, struct regs *ret);

#endif
