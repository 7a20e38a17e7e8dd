/*
 * The tasks of asyncio and trio: where the interpreter lists them, and what each one does and waits for.
 *
 *     tasks_begin(t, py, codes);                   // the threads of the loops are paused from here
 *     tasks_list(t, interp, tstates, n);           // fills t->found
 *     tasks_read(t, &t->found[i]);                 // fills t->coro, t->codes, t->wait, t->awaits, t->holds
 *     ...                                          // to here
 *
 * Every link, length and type comes from the target and may be wrong: walks are bounded, and what makes no sense is left out.
 */
#ifndef PYTHON_TASKS_H
#define PYTHON_TASKS_H

#include "python/code.h"
#include "python/coroutines.h"

#define TASKS_MAX        262144
#define TASKS_TYPES      16
#define TASKS_SLOTS      64
#define TASKS_AWAITS_MAX 1000000 /* of all tasks */

struct found_task {
    addr_t addr;
    addr_t tstate; /* 3.14+: the thread that lists it; 0: unknown */
};

enum py_task_state { PY_TASK_NEW, PY_TASK_READY, PY_TASK_RUNNING, PY_TASK_WAITING, PY_TASK_DONE };

/* What a task waits for. */
struct py_wait {
    const char *kind; /* "sleep", "lock": see the rows in task_waits.c; NULL: it does not wait */
    const char *what; /* interned: "Queue.get" */
    addr_t object;    /* the queue, lock or future */
    bool has_fd;      /* a socket: */
    int64_t number;   /* its file descriptor; the pid of a process */
    double seconds;   /* how long to sleep; negative: unknown */
    double when;      /* when the sleep ends, on CLOCK_MONOTONIC; negative: unknown */
    bool is_queued;   /* executor: the job has not started */
    addr_t owner;     /* the task that holds the lock; 0: the lock does not say */
    /* Of trio's cancel scopes; also of tasks that do not wait. */
    double deadline;   /* when the task is cancelled, on CLOCK_MONOTONIC; negative: never, or unknown */
    bool is_cancelled; /* its scope is cancelled: the next checkpoint raises Cancelled */
};

/* Where the objects of a class keep one of the __slots__. */
struct slot_offset {
    addr_t type;
    const char *name; /* by address */
    uint64_t offset;
};

/* What tells whether a task has changed: all but the frames of a coroutine that runs. */
struct task_mark {
    addr_t words[5];
};

struct tasks {
    const struct python *py;
    struct code_cache *cache;
    struct repr *repr;
    /* What has been found out since tasks_begin(): the kinds of some types, by address, and None. */
    addr_t types[TASKS_TYPES];
    int kinds[TASKS_TYPES];
    addr_t none;
    struct slot_offset slots[TASKS_SLOTS];
    struct found_task *found;
    size_t n_found, cap_found;
    bool incomplete; /* more than TASKS_MAX, or a list that could not be read */
    /* Of the last tasks_read(). */
    addr_t task, loop;
    const char *name; /* interned; NULL: it has none */
    enum py_task_state state;
    struct coroutines coro;
    addr_t *addrs;
    const struct code **codes; /* of coro.frames; valid until the next tasks_read() */
    size_t cap_addrs, cap_codes;
    struct py_wait wait;
    addr_t *awaits; /* tasks that it waits for; there may be futures among them */
    size_t n_awaits, cap_awaits;
    size_t
        n_in_groups; /* the last ones are in a TaskGroup whose block the task is in: it waits for them at the end of the block */
    size_t awaits_left; /* of all tasks of a dump */
    addr_t *holds;      /* objects such as locks: the task is within their `async with` */
    size_t n_holds, cap_holds;
    struct task_mark mark;
};

/* NULL if out of memory. */
struct tasks *tasks_new(void);
struct tasks *tasks_free(struct tasks *t);

/* Starts over with what has been cached of the target. */
void tasks_begin(struct tasks *t, const struct python *py, struct code_cache *cache);

/* True if this version can list its tasks: 3.7 and later. */
bool tasks_are_listed(const struct python *py);

/* Appends the tasks of an interpreter, of which `tstates` are the threads, to `found`. Tasks that are done may be among them. 0;
 * ERR_TORN if a list has changed meanwhile; ERR_NOMEM. */
int tasks_list(struct tasks *t, addr_t interp, const addr_t *tstates, size_t n);

/* The loop of a task; 0 if it makes no sense. */
addr_t tasks_loop_of(struct tasks *t, addr_t task);

/* Reads one task. 0; ERR_READ and others if it makes no sense; ERR_NOMEM. */
int tasks_read(struct tasks *t, addr_t task);

/* Only its frames: t->coro and t->codes. */
int tasks_read_frames(struct tasks *t, addr_t task);

/* True if a task is as it was when `mark` was made. */
bool tasks_is_same(struct tasks *t, addr_t task, const struct task_mark *mark);

/* The task that holds a lock of trio or anyio; 0: none, or the lock does not say. */
addr_t tasks_lock_owner(struct tasks *t, addr_t lock);

/* The thread that runs a loop: its position in `tstates`; `n` if none does. */
size_t tasks_loop_thread(struct tasks *t, addr_t loop, const addr_t *tstates, const uint64_t *thread_ids, size_t n);

/* The name of the loop's class, interned: "_UnixSelectorEventLoop"; NULL if it cannot be read. */
const char *tasks_type_name(struct tasks *t, addr_t object);
bool tasks_loop_is_trio(struct tasks *t, addr_t loop);

#endif
