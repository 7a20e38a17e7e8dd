/*
 * One CPython in one process: where its runtime is and which layout it has. detect.c fills it in; it
 * holds no C pointer into the target.
 */
#ifndef PYTHON_PYTHON_H
#define PYTHON_PYTHON_H

#include "base/intern.h"
#include "python/layout.h"
#include "target/mem.h"

#include <sys/types.h>

/* The locks of a GIL; 0 where there is none. */
struct gil_locks {
    addr_t cond, mutex, switch_cond, switch_mutex; /* 3.x: pthread_cond_t and pthread_mutex_t */
    addr_t semaphore;                              /* 2.7: sem_t */
};

struct python {
    struct mem *mem;      /* borrowed */
    struct intern *names; /* borrowed */
    struct layout layout;
    int major, minor, patch;
    char suffix[8];            /* "", "rc1", "b2" */
    addr_t interp_head;        /* address of the pointer to the first interpreter */
    addr_t runtime;            /* address of _PyRuntime; 0 on 2.7 and 3.6 */
    addr_t current_thread;     /* address of _PyThreadState_Current on 2.7 and 3.6; 0 if not found */
    struct gil_locks gil;      /* 3.6: static variables; 0 if not found */
    addr_t interpreter_lock;   /* 2.7: address of the pointer to the semaphore of the GIL; 0 if not found */
    addr_t import_lock;        /* 2.7: address of the pointer to the import lock; 0 if not found */
    addr_t import_lock_thread; /* 2.7: address of the ident of its owner */
    const char *how;           /* how it was found, for messages; interned */
    addr_t image;              /* start of the program or library that contains the interpreter */
    int cpu_word;              /* offset of rseq's cpu_id from a thread's pthread_t; NO if it has none */
};

/* Bounds on what a target can make us read. */
#define PY_MAX_INTERPRETERS 4096
#define PY_MAX_THREADS      65536
#define PY_MAX_FRAMES       262144
#define PY_MAX_NAME         4096              /* characters of a name or path */
#define PY_MAX_LINES        (4 * 1024 * 1024) /* bytes of a line table; decoding multiplies the size by up to eight */
#define PY_MAX_DICT         131072            /* entries of a dict */

#endif
