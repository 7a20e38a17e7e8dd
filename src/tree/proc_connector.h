/*
 * The kernel's process connector (cn_proc): reports every fork and exec on the machine, with the parent,
 * even if the parent has exited since. Works only in the initial pid and user namespaces, on Linux 6.6
 * and later. new_pids.h is the fallback.
 */
#ifndef TREE_PROC_CONNECTOR_H
#define TREE_PROC_CONNECTOR_H

#include <stdbool.h>
#include <sys/types.h>

struct proc_connector {
    int fd; /* -1: not available */
};

struct process_event {
    pid_t parent; /* 0: `pid` has called exec */
    pid_t pid;
};

/* False, with `fd` -1, if it is not available. */
bool proc_connector_open(struct proc_connector *c);
void proc_connector_close(struct proc_connector *c);

/* 1 and an event; 0 if there are no more; ERR_BOUNDS if the kernel dropped events because the buffer was full. */
int proc_connector_next(struct proc_connector *c, struct process_event *ret);

#endif
