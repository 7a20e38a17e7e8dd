/*
 * The interpreters of a process and their threads.
 */
#ifndef PYTHON_THREADS_H
#define PYTHON_THREADS_H

#include "python/python.h"

struct py_thread {
    addr_t tstate, interp;
    int64_t interp_id;
    uint64_t thread_id; /* pthread_t */
    uint64_t native_id; /* the kernel's id in the target's pid namespace; 0 when not known (up to 3.10) */
};

struct py_threads {
    struct py_thread *items;
    size_t n, cap;
};

/* All threads of all interpreters. ERR_TORN when the list changed while it was read. */
int threads_read(const struct python *py, struct py_threads *ret);
/* Does its thread state still say that it is this thread's? */
bool threads_is_same(const struct python *py, const struct py_thread *t);

void threads_free(struct py_threads *t);

/* True when each interpreter's list still begins with the thread that it began with. */
bool threads_heads_same(const struct python *py, const struct py_threads *t);

/* The thread state that holds the interpreter's GIL, or 0 when nobody does. */
addr_t threads_gil_holder(const struct python *py, addr_t interp);

/* Up to 3.10 the kernel's id lies in the C library's thread struct, whose address is thread_id. Finds its place
 * there: the one where each thread has one of the ids in `tids`. NO when there is none. */
int threads_find_tid_offset(const struct python *py, const struct py_threads *t, const pid_t *tids, size_t n_tids);
pid_t threads_read_tid(const struct python *py, uint64_t thread_id, int offset);

#endif
