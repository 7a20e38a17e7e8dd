/*
 * Which threads wait for the GIL, found without unwinding: a thread that waits for a lock sleeps on a futex, and the
 * kernel tells its address.
 *
 *     struct gil_locks locks;
 *
 *     if (gil_find(py, thread->interp, &locks))                 once per thread: one read of the target's memory
 *         waits = gil_is_awaited(py, &locks, task) > 0;         each time: one read of /proc/PID/task/TID/syscall
 */
#ifndef PYTHON_GIL_H
#define PYTHON_GIL_H

#include "python/python.h"
#include "target/task.h"

/* Finds the locks of the GIL that the threads of an interpreter share. They stay where they are as long as the
 * interpreter exists. False if they are unknown, or not created yet: on 2.7 and 3.6, without .symtab; on 2.7, before the
 * first thread starts. */
bool gil_find(const struct python *py, addr_t interp, struct gil_locks *ret);

/*
 * 1 if the thread is asleep until it gets the GIL (take_gil in CPython), or until another thread has taken the GIL that it
 * has just released (drop_gil). 0 if it sleeps for another reason, or if we may not know. ERR_TORN if it is awake: a thread
 * that waits for the GIL wakes up every sys.getswitchinterval() seconds to look whether it can have it now.
 *
 * The result is certain for the instant of the call. The holder of the GIL can sleep on the same locks, in order to
 * release it: check threads_gil_holder() first.
 */
int gil_is_awaited(const struct python *py, const struct gil_locks *locks, struct task *task);

/* True if a thread that sleeps on `futex` waits for one of the locks. `sp` is its stack pointer. */
bool gil_has_futex(const struct python *py, const struct gil_locks *locks, addr_t futex, addr_t sp);

#endif
