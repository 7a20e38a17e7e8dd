/*
 * Which directories are packages, as the interpreter knows it: from the modules in sys.modules. No file is looked at.
 */
#ifndef PYTHON_PACKAGES_H
#define PYTHON_PACKAGES_H

#include "python/python.h"
#include "python/threads.h"

struct package_module {
    addr_t module;
    uint64_t hash; /* of the last part of its name: "nn" of "torch.nn"; 0: unknown */
};

struct packages {
    struct package_module *items;
    size_t n, cap;
    uint64_t listed_ns; /* 0: never */
    uint64_t spent_ns;  /* CPU time; a hostile sys.modules could cost hours */
};

/* Reads the names in sys.modules of all interpreters again, unless that was a moment ago. */
void packages_update(struct packages *p, const struct python *py, const struct py_threads *threads);

/* True if a module was imported from the __init__.py in the directory `path[0..len]`. */
bool packages_have(struct packages *p, const struct python *py, const char *path, size_t len);

void packages_free(struct packages *p);

#endif
