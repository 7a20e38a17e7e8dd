/*
 * The interpreters of a process and their thread states.
 */
#ifndef PYTHON_THREADS_H
#define PYTHON_THREADS_H

#include "python/python.h"

struct py_thread {
    addr_t tstate, interp;
    uint64_t thread_id; /* pthread_t */
    uint64_t native_id; /* tid in the target's pid namespace; 0 if unknown (up to 3.10) */
};

struct interp_head {
    addr_t interp;
    addr_t tstate; /* its newest thread state; 0: none, as in an interpreter of 3.13 and later that does not run */
};

struct py_threads {
    struct py_thread *items;
    size_t n, cap;
    struct interp_head *heads; /* all interpreters, newest first */
    size_t n_heads, cap_heads;
};

/* Reads all thread states of all interpreters. ERR_TORN if the list changed meanwhile. */
int threads_read(const struct python *py, struct py_threads *ret);
/* True if the thread state still belongs to this thread. */
bool threads_is_same(const struct python *py, const struct py_thread *t);

void threads_free(struct py_threads *t);

/* True if the interpreters, and the first thread state of each, are still the same. */
bool threads_heads_same(const struct python *py, const struct py_threads *t);

/* The thread state that holds the GIL of the interpreter, or 0 if none does. */
addr_t threads_gil_holder(const struct python *py, addr_t interp);

/* Up to 3.10 the tid is in the C library's struct pthread, at address thread_id. Finds its offset: the one at which
 * each thread has one of `tids`. NO if there is none. */
int threads_find_tid_offset(const struct python *py, const struct py_threads *t, const pid_t *tids, size_t n_tids);
pid_t threads_read_tid(const struct python *py, uint64_t thread_id, int offset);
/* Reads the tid from glibc's struct pthread; 0 if there is none. */
pid_t threads_read_glibc_tid(const struct python *py, uint64_t thread_id);

#endif
