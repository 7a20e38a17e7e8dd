/*
 * Thread names: threading._active of each interpreter maps the ident to a Thread object, which has the
 * name.
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
    /* Which threads to look up; NULL: all. For selected threads the last address of threading._active is reused,
     * since finding it means searching sys.modules. */
    const uint64_t *wanted;
    size_t n_wanted;
    addr_t interp, active;
};

/* Adds the names from one interpreter. If the threading module is not loaded there are none; that is not an error. */
int names_read(const struct python *py, addr_t interp, struct thread_names *names);

/* Call it before names_find(). */
void names_sort(struct thread_names *names);

/* NULL if there is none. */
const char *names_find(const struct thread_names *names, addr_t interp, uint64_t thread_id);

#endif
