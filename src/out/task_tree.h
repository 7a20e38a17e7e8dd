/*
 * Orders the tasks of a process for display: a tree by who awaits whom, in which tasks with the same stack are one group, and the
 * cycles. Pure: positions in, positions out.
 */
#ifndef OUT_TASK_TREE_H
#define OUT_TASK_TREE_H

#include "sample/task_set.h"

#define TASK_TREE_DEPTH 100 /* of groups; tasks further down are counted only */

/* Tasks that are in the same state, wait for the same kind of thing and have the same frames, with the same variables. A lock whose holder
 * is known, or for which several tasks wait, has a group of its own. */
struct task_group {
    const uint32_t *tasks; /* positions in task_set.tasks, in that order */
    size_t n;
    size_t depth;       /* 0: nothing awaits it, or it is part of a cycle */
    size_t loop;        /* position in task_set.loops of the root above it */
    size_t n_above;     /* how many tasks that it awaits are in groups that were visited before */
    uint32_t one_above; /* one of them */
};

/* Tasks that await each other, or wait for a lock that another one of them holds, and that no deadline will cancel. */
struct task_cycle {
    const uint32_t *tasks; /* each waits for the next, and the last one for the first, unless `tangled` */
    size_t n;
    bool tangled; /* there is more than one way around */
    bool
        is_likely; /* a lock does not say who holds it, a task awaits several others, or one may have changed meanwhile */
};

struct task_tree_visitor {
    void (*cycle)(const struct task_cycle *cycle, void *arg);
    void (*group)(const struct task_group *group, void *arg);
    void *arg;
};

/* Visits the cycles, then the groups of loop after loop: each before those that it awaits, and larger groups before smaller ones. Each
 * task is in one group. Returns the number of tasks that are too deep to be visited, or ERR_NOMEM. */
long task_tree_walk(const struct task_set *set, const struct task_tree_visitor *visitor);

#endif
