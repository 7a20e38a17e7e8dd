/*
 * The registers that a thread had when it was last taken off its CPU, as the kernel notes them at each such switch
 * (perf_event_open(2)). They are those of a thread that does not run now, without a call on it: nothing holds it for this.
 * Needs rights that root has, and others seldom.
 *
 *     switched_open(&s, tid);              // from now on switches are noted
 *     … the thread does not run …
 *     switched_regs(&s, &regs);
 */
#ifndef TARGET_SWITCHED_H
#define TARGET_SWITCHED_H

#include "target/regs.h"

#include <stdbool.h>
#include <sys/types.h>

/* Zeroed at first. */
struct switched {
    void *ring; /* shared with the kernel; NULL: not open */
    bool tried;
};

/* Once; does nothing where it is not allowed. */
void switched_open(struct switched *s, pid_t tid);
void switched_close(struct switched *s);

/* True when a switch has been noted: from then on there is always a last one. */
bool switched_ready(const struct switched *s);
/* Of a thread that does not run now, and has not since its last switch. ERR_UNSUPPORTED when there is no note of it. */
int switched_regs(const struct switched *s, struct regs *ret);

#endif
