/*
 * Where the locks of the GIL are, and who sleeps on them.
 */
#include "python/gil.h"

#include "base/err.h"

#include <pthread.h>

/* struct _gil_runtime_state, 3.7 and later: locked, switch_number, cond, mutex, switch_cond, switch_mutex. glibc and musl
 * agree on the sizes. */
#define LOCKS_AFTER_LOCKED 16
#define COND_BYTES         sizeof(pthread_cond_t)
#define MUTEX_BYTES        sizeof(pthread_mutex_t)

/* musl: a condition variable is a list of waiters. Each waiter is on the stack of its thread, which sleeps on a word in
 * it (struct waiter in pthread_cond_timedwait.c). */
#define MUSL_COND_HEAD    8
#define MUSL_WAITER_NEXT  8
#define MUSL_WAITER_FUTEX 20
#define MUSL_STACK_BYTES  4096 /* from the stack pointer to the waiter, at most */
#define MUSL_MAX_WAITERS  256

bool gil_find(const struct python *py, addr_t interp, struct gil_locks *ret)
{
    const struct layout *l = &py->layout;
    addr_t at;

    *ret = py->gil;
    if (l->in_gil != NO) {
        if (mem_read_addr(py->mem, interp + (addr_t)l->in_gil, &at) < 0 || !at)
            return false;
        at += (addr_t)l->gil_locked;
    } else if (l->rt_gil_locked != NO) {
        at = py->runtime + (addr_t)l->rt_gil_locked;
    } else if (py->interpreter_lock) {
        return mem_read_addr(py->mem, py->interpreter_lock, &ret->semaphore) == 0 && ret->semaphore;
    } else {
        return ret->cond != 0;
    }
    ret->cond = at + LOCKS_AFTER_LOCKED;
    ret->mutex = ret->cond + COND_BYTES;
    ret->switch_cond = ret->mutex + MUTEX_BYTES;
    ret->switch_mutex = ret->switch_cond + COND_BYTES;
    return true;
}

static bool is_inside(addr_t addr, addr_t start, size_t size)
{
    return start && addr >= start && addr - start < size;
}

static bool is_musl_waiter(const struct python *py, addr_t cond, addr_t futex)
{
    addr_t at = cond + MUSL_COND_HEAD, waiter;

    for (int i = 0; cond && i < MUSL_MAX_WAITERS; i++) {
        if (mem_read_addr(py->mem, at, &waiter) < 0 || !waiter)
            return false;
        if (waiter + MUSL_WAITER_FUTEX == futex)
            return true;
        at = waiter + MUSL_WAITER_NEXT;
    }
    return false;
}

bool gil_has_futex(const struct python *py, const struct gil_locks *locks, addr_t futex, addr_t sp)
{
    if (is_inside(futex, locks->cond, COND_BYTES) || is_inside(futex, locks->mutex, MUTEX_BYTES) ||
        is_inside(futex, locks->switch_cond, COND_BYTES) || is_inside(futex, locks->switch_mutex, MUTEX_BYTES) ||
        (locks->semaphore && futex == locks->semaphore))
        return true;
    return is_inside(futex, sp, MUSL_STACK_BYTES) &&
           (is_musl_waiter(py, locks->cond, futex) || is_musl_waiter(py, locks->switch_cond, futex));
}

int gil_is_awaited(const struct python *py, const struct gil_locks *locks, struct task *task)
{
    addr_t futex, sp;
    int r = task_sleeps_on(task, &futex, &sp);

    if (r < 0)
        return r == ERR_TORN ? r : 0;
    return gil_has_futex(py, locks, futex, sp);
}
