/*
 * What the files that read tasks share: tasks.c reads a task, task_lists.c finds them all, task_waits.c says what they wait for.
 */
#ifndef PYTHON_TASKS_PRIVATE_H
#define PYTHON_TASKS_PRIVATE_H

#include "python/tasks.h"

#define MODULE_DICT 16 /* PyModuleObject.md_dict, Objects/moduleobject.c */

enum future_field {
    FUTURE_LOOP,
    FUTURE_CALLBACK0,
    FUTURE_CALLBACKS,
    TASK_WAITER,
    TASK_CORO,
    TASK_NAME,
};

/* A task or future, in C or in Python. */
bool tasks_is_future(struct tasks *t, addr_t object);
bool tasks_is_task(struct tasks *t, addr_t object);

/* A field of a task or future; 0 if it has none, or if it is None. */
int tasks_field(struct tasks *t, addr_t object, enum future_field field, addr_t *ret);

/* True if a task or future is not done. */
bool tasks_is_pending(struct tasks *t, addr_t object);

/* Receives an item of a list, tuple or set. Return false to stop. */
typedef bool (*tasks_visit)(struct tasks *t, addr_t item, void *arg);

/* Visits at most `max` items of a list, tuple or set. 0; ERR_TORN if a set has changed meanwhile; ERR_READ. */
int tasks_items(struct tasks *t, addr_t object, size_t max, tasks_visit visit, void *arg);

/* Appends to t->awaits. 0 or ERR_NOMEM. */
int tasks_add_awaited(struct tasks *t, addr_t object);

/* Appends to t->found. 0 or ERR_NOMEM. */
int tasks_add_found(struct tasks *t, addr_t task);

bool tasks_is_none(struct tasks *t, addr_t object);

/* The value of a float, or of an int that is not negative; else -1. */
double tasks_number(struct tasks *t, addr_t object);

/* The code objects of the frames of t->coro. 0, ERR_READ or ERR_NOMEM. */
int tasks_read_codes(struct tasks *t);

/* Finds the objects whose `async with` block the task is in: t->holds. 0 or ERR_NOMEM. */
int tasks_find_holds(struct tasks *t);

/* Finds out what the task waits for, from its innermost frames and from the future `waiter`, or 0. Fills t->wait and t->awaits. 0 or
 * ERR_NOMEM. */
int tasks_find_wait(struct tasks *t, addr_t waiter);

/* ---- trio.c ---- */

/* True for a class of trio. */
bool trio_is_class(struct tasks *t, const struct repr_type *type, const char *name);
bool trio_is_runner(struct tasks *t, addr_t object);
/* As tasks_list(), tasks_loop_of(), tasks_read(), tasks_loop_thread(). */
int trio_list(struct tasks *t, addr_t interp);
addr_t trio_runner_of(struct tasks *t, addr_t task);
int trio_read(struct tasks *t, addr_t task);
size_t trio_thread(struct tasks *t, addr_t runner, const addr_t *tstates, size_t n);
struct task_mark trio_mark(struct tasks *t, addr_t task, addr_t frame);

#endif
