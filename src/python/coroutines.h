/*
 * The stack of a suspended coroutine: its frame, the frame of what it awaits, and so on to the object that cannot be followed any
 * further, usually a future.
 */
#ifndef PYTHON_COROUTINES_H
#define PYTHON_COROUTINES_H

#include "python/frames.h"
#include "python/repr/repr.h"

#define COROUTINES_MAX_FRAMES 4096

/* Zeroed at first; can be reused for the next coroutine. */
struct coroutines {
    struct py_frame *frames; /* outermost first */
    size_t n, cap;
    addr_t leaf;    /* the object that the innermost frame awaits; 0: none, or unknown */
    bool executing; /* the outermost frame runs: the frames below it are those of the thread */
    bool created;   /* the outermost frame has not started */
    bool cut;       /* a cycle, or too many frames */
};

/* Follows the coroutine, generator or other awaitable at `object`. 0, ERR_READ, ERR_BOUNDS or ERR_NOMEM. */
int coroutines_read(struct coroutines *c, struct repr *v, addr_t object);

void coroutines_free(struct coroutines *c);

#endif
