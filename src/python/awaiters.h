/*
 * Who waits for the task that a thread runs: the coroutine frames of the task that awaits it, of the task that awaits that one, and so
 * on. CPython has no such list before 3.14, but each future knows what to call when it is done, and that leads to the next task.
 */
#ifndef PYTHON_AWAITERS_H
#define PYTHON_AWAITERS_H

#include "python/tasks.h"

#define AWAITERS_MAX        32   /* tasks above the running one */
#define AWAITERS_MAX_FRAMES 1024 /* of all of them */

/* Zeroed at first; can be reused for the next stack. */
struct awaiters {
    struct py_frame *frames; /* innermost first */
    const struct code **codes;
    size_t n, cap_frames, cap_codes;
    size_t
        kept; /* this many innermost frames of the thread belong to the running task, and to a task that starts it eagerly; 0: it
                  * runs none */
    /* Up to 3.13: the dict of running tasks in asyncio.tasks. */
    addr_t interp, running;
    uint64_t found_ns;
};

/* Reads them for the thread with this stack, whose code objects are `codes`, while it is paused, or between two equal readings of its
 * stack. `t` has begun. 0 or ERR_NOMEM: what makes no sense is left out. */
int awaiters_read(struct awaiters *a, struct tasks *t, addr_t interp, addr_t tstate, const struct frames *stack,
                  const struct code *const *codes, uint64_t now);

void awaiters_free(struct awaiters *a);

#endif
