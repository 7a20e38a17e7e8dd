/*
 * What a thread waits for, from its innermost frames and the lock that it sleeps on.
 */
#ifndef PYTHON_THREAD_WAITS_H
#define PYTHON_THREAD_WAITS_H

#include "python/code.h"
#include "python/frames.h"
#include "python/repr/repr.h"

enum thread_wait_kind {
    THREAD_WAIT_UNKNOWN,
    THREAD_WAIT_LOCK,
    THREAD_WAIT_RLOCK,
    THREAD_WAIT_IMPORT,
    THREAD_WAIT_SHARED_LOCK, /* of multiprocessing */
    THREAD_WAIT_THREAD,      /* for the end of a thread */
    THREAD_WAIT_OPERATION,   /* an operation of the standard library, such as Queue.get */
};

struct thread_wait {
    enum thread_wait_kind kind;
    addr_t object;         /* 0: unknown */
    const char *operation; /* "Queue.get"; NULL: none. Interned */
    const char *module;    /* the module whose import lock it is. Interned */
    uint64_t owner;        /* ident of the thread that owns the lock, or whose end is awaited; 0: nobody, or unknown */
    bool certain;          /* `kind` and `object` are proven */
    bool owner_certain;    /* so is `owner` */
    bool is_shutdown;      /* the interpreter waits for a thread to end: see thread_wait_ending() */
    size_t n_frames;       /* innermost frames that belong to the standard library's part of it */
};

/* `futex`: the address that the thread sleeps on; 0: it waits in another way. The thread does not run meanwhile. 0 or ERR_NOMEM. */
int thread_wait_read(struct repr *v, const struct py_frame *frames, const struct code *const *codes, size_t n,
                     addr_t futex, struct thread_wait *ret);

/* Reads the owner of a lock of `kind` again. 0 if nobody owns it. */
uint64_t thread_wait_owner(struct repr *v, enum thread_wait_kind kind, addr_t object);

/* The name under which a frame knows an object, with the attribute for one of `self`: "stock", "self._lock". NULL if there is none. */
const char *thread_wait_name(struct repr *v, const struct py_frame *frame, addr_t object);

/* The same as the program's code calls it, outside of the frames of the standard library: "jobs.mutex". */
const char *thread_wait_name_outside(struct repr *v, const struct py_frame *frames, const struct code *const *codes,
                                     size_t n, addr_t object);

/* The ident of the thread whose end threading._shutdown() waits for; 0: unknown. `active`: the dict threading._active. */
uint64_t thread_wait_ending(struct repr *v, addr_t active, addr_t futex, addr_t lock);

/* True if a local variable of the frame, an attribute of its `self`, or a global that it uses is the object. */
bool thread_frame_knows(struct repr *v, const struct py_frame *frame, addr_t object);

/* The lock of a Condition; 0 if the object is none. */
addr_t thread_wait_lock_of(struct repr *v, addr_t condition);

/* The Condition.wait() that the frame is in has released this lock; 0: it is another function. */
addr_t thread_wait_released(struct repr *v, const struct py_frame *frame, const struct code *code);

#endif
