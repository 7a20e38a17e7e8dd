/*
 * One CPython in one target: where its runtime is and what it looks like. Made by detect.c, used by
 * everything in python/. Holds no C pointer into the target.
 */
#ifndef PYTHON_PYTHON_H
#define PYTHON_PYTHON_H

#include "base/intern.h"
#include "python/layout.h"
#include "target/mem.h"

#include <sys/types.h>

struct python {
    struct mem *mem;      /* borrowed */
    struct intern *names; /* borrowed */
    struct layout layout;
    int major, minor, patch;
    char suffix[8];        /* "", "rc1", "b2" */
    addr_t interp_head;    /* where the pointer to the first interpreter lies */
    addr_t runtime;        /* _PyRuntime; 0 on 2.7 and 3.6 */
    addr_t current_thread; /* where _PyThreadState_Current lies: 2.7 and 3.6; 0 when not found */
    const char *how;       /* how it was found, for people; interned */
    addr_t image;          /* where the program or library that it is begins */
    int cpu_word;          /* where a thread's pthread_t has the number of its CPU; NO when it is not kept */
};

/* Bounds on what a target can make us read. */
#define PY_MAX_INTERPRETERS 4096
#define PY_MAX_THREADS      65536
#define PY_MAX_FRAMES       262144
#define PY_MAX_NAME         4096              /* characters of a name or path that are shown */
#define PY_MAX_LINES        (4 * 1024 * 1024) /* bytes of a line table; decoded it can be eight times as large */
#define PY_MAX_DICT         131072            /* entries of a dict that are looked through */

#endif
