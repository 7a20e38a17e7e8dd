/*
 * Python's lock objects: which one a sleeping thread waits for, who owns it, and which ones a frame holds in a `with` block.
 *
 * The kernel knows the address of the futex that a thread sleeps on. Up to 3.13, a lock object points to the semaphore that
 * contains it. From 3.13 on, a thread that waits for a PyMutex sleeps on a semaphore on its own stack, next to the address of
 * the mutex (struct wait_entry in Python/parking_lot.c). So the address proves which lock it is.
 */
#ifndef PYTHON_LOCK_OBJECTS_H
#define PYTHON_LOCK_OBJECTS_H

#include "python/frames.h"
#include "python/repr/repr.h"

enum lock_type {
    LOCK_NONE,
    LOCK_PLAIN,     /* threading.Lock */
    LOCK_REENTRANT, /* threading.RLock */
    LOCK_SHARED,    /* of multiprocessing */
    LOCK_QUEUE,     /* queue.SimpleQueue */
};

/* The type of an object; LOCK_NONE for all other objects. */
enum lock_type lock_object_type(struct repr *v, addr_t object);

/* The lock object that a thread waits for: it sleeps on `futex`, and `frame` is its innermost frame; NULL: it has none. 0 if there is
 * none, or no proof. */
addr_t lock_object_find(struct repr *v, const struct py_frame *frame, addr_t futex);

/* 3.13+: the address of the mutex or event for which the thread that sleeps on `futex` has parked. 0 before 3.13; if it sleeps on
 * another kind of futex, any number. */
addr_t lock_object_parked(struct repr *v, addr_t futex);

/* The ident of the thread that owns an RLock, or a lock of multiprocessing that a thread of this process owns; 0: none. */
uint64_t lock_object_owner(struct repr *v, addr_t object, enum lock_type type);

/* Collects up to `max` objects whose `with` block the frame is in, and returns their number. Bound methods count as their object. */
size_t lock_objects_in_with(struct repr *v, const struct py_frame *frame, addr_t *ret, size_t max);

/* True if the code of the frame uses this attribute or global name. */
bool lock_frame_uses_name(struct repr *v, const struct py_frame *frame, const char *name);

#endif
