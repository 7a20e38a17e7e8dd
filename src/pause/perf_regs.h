/*
 * The registers that a thread had when it was last taken off its CPU, as the kernel notes them at each such switch
 * (perf_event_open(2)). They are those of a thread that does not run now, without a call on it: nothing holds it for this.
 * Needs rights that root has, and others seldom.
 *
 *     perf_regs_open(&s, tid);              // from now on switches are noted
 *     … the thread does not run …
 *     perf_regs_read(&s, &regs);
 */
#ifndef PAUSE_PERF_REGS_H
#define PAUSE_PERF_REGS_H

#include "target/regs.h"

#include <stdbool.h>
#include <sys/types.h>

/* Zeroed at first. */
struct perf_regs {
    void *ring; /* shared with the kernel; NULL: not open */
    bool tried;
};

/* Once; does nothing where it is not allowed. */
void perf_regs_open(struct perf_regs *s, pid_t tid);
void perf_regs_close(struct perf_regs *s);

/* True when a switch has been noted: from then on there is always a last one. */
bool perf_regs_ready(const struct perf_regs *s);
/* Of a thread that does not run now, and has not since its last switch. ERR_UNSUPPORTED when there is no note of it. */
int perf_regs_read(const struct perf_regs *s, struct regs *ret);

#endif
