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

/* The values on top of the value stack of a suspended frame, the topmost last: at most `max`. There may be variables among them. Returns
 * their number; 0 if they cannot be read. */
size_t coroutines_values(struct repr *v, addr_t frame, addr_t *values, size_t max);

/* The frame of a suspended generator or coroutine; 0: it is none, or is not suspended. */
addr_t coroutines_suspended_frame(struct repr *v, addr_t object);

void coroutines_free(struct coroutines *c);

#endif
