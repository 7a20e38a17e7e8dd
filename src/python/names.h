/*
 * Names of threads: threading._active of each interpreter, ident -> Thread -> its name.
 */
#ifndef PYTHON_NAMES_H
#define PYTHON_NAMES_H

#include "python/python.h"

struct thread_name {
    uint64_t thread_id;
    addr_t interp;
    const char *name; /* interned */
};

struct thread_names {
    struct thread_name *items;
    size_t n, cap;
    /* The threads whose names are wanted; NULL: all. For a few, threading._active is taken to be where it was found last:
     * it takes a walk through all modules to find it. */
    const uint64_t *wanted;
    size_t n_wanted;
    addr_t interp, active;
};

/* Adds the names in one interpreter. Without the threading module there are none, which is no error. */
int names_read(const struct python *py, addr_t interp, struct thread_names *names);

/* Sorts them, for names_find. */
void names_sort(struct thread_names *names);

/* NULL when there is none. */
const char *names_find(const struct thread_names *names, addr_t interp, uint64_t thread_id);

#endif
