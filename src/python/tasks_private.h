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

/* Finds out what the task waits for, from its innermost frames and from the future `waiter`, or 0. Fills t->wait and t->awaits. 0 or
 * ERR_NOMEM. */
int tasks_find_wait(struct tasks *t, addr_t waiter);

#endif
