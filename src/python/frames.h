/*
 * A thread's frames as the interpreter has them: which code, which instruction. No names yet.
 */
#ifndef PYTHON_FRAMES_H
#define PYTHON_FRAMES_H

#include "python/python.h"

struct py_frame {
    addr_t code;
    int64_t at; /* bytes into the bytecode; negative: before the first instruction */
    bool is_entry;
    bool is_shim_entry; /* the interpreter was entered from C for this one */
};

/* Copies of parts of the target's memory, good for one reading. */
struct frames_window {
    addr_t start;
    size_t len, cap;
    unsigned char *bytes;
};

#define FRAMES_WINDOWS_MAX 4096

/* Reused from one stack to the next. */
struct frames {
    struct py_frame *items; /* innermost first */
    size_t n, cap;
    struct frames_window *windows; /* from the innermost chunk outwards */
    size_t n_windows, cap_windows;
    size_t last_window; /* where the last frame was: the next one is there or in the one after */
};

/* Reads the stack of the thread whose state is at `tstate`. ERR_TORN when what was read cannot have been one
 * stack: cut off before its root, or between two states. ERR_CYCLE, ERR_READ, ERR_NOMEM. */
int frames_read(struct frames *f, const struct python *py, addr_t tstate);
void frames_free(struct frames *f);

#endif
