/*
 * What the files that read the tasks of a process share: tasks.c reads them, task_links.c finds out how they depend on each other.
 */
#ifndef SAMPLE_TASKS_PRIVATE_H
#define SAMPLE_TASKS_PRIVATE_H

#include "python/tasks.h"
#include "sample/process.h"
#include "sample/task_set.h"

/* A task, and what is needed to read it again and to link it to others. */
struct read_task {
    struct async_task task;
    addr_t addr, loop, tstate;
    struct task_mark mark;
    addr_t owner;   /* of the lock that it waits for; 0: unknown */
    addr_t *awaits; /* owned: `n_awaits` tasks, then the objects that it holds */
    size_t n_awaits, n_in_groups, n_holds;
    bool known;
    uint64_t slice; /* in which it was read, */
    bool is_torn;   /* during which the thread ran */
};

/* Resolves the addresses of tasks that await each other, or hold what others wait for, to positions in the set. 0 or ERR_NOMEM. */
int task_links_make(const struct read_task *items, size_t n, struct task_set *set);

/* Looks up what the sockets that tasks wait for are connected to. */
void task_sockets_describe(struct process *p, struct task_set *set);

#endif
