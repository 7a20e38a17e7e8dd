/*
 * Every fork and exec on the machine, as the kernel tells it: with the parent, even if that ended before anyone could look
 * (cn_proc). Only in the first pid and user namespace, on Linux 6.6 and newer; elsewhere births.h must do.
 *
 *     struct proc_connector f;
 *     if (proc_connector_open(&f))
 *         while ((r = proc_connector_next(&f, &event)) > 0)
 *             …
 */
#ifndef TREE_PROC_CONNECTOR_H
#define TREE_PROC_CONNECTOR_H

#include <stdbool.h>
#include <sys/types.h>

struct proc_connector {
    int fd; /* -1: it is not told here */
};

struct process_event {
    pid_t parent; /* 0: `pid` has executed a program */
    pid_t pid;
};

/* False, with `fd` -1, where it cannot be had. */
bool proc_connector_open(struct proc_connector *f);
void proc_connector_close(struct proc_connector *f);

/* 1 and an event; 0 when there is no more; ERR_BOUNDS when some were lost: there were too many. */
int proc_connector_next(struct proc_connector *f, struct process_event *ret);

#endif
