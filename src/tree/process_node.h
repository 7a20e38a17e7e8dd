/*
 * A process in the process tree. The node outlives the process only while a profile or a child refers to
 * it, so a program that starts a million short-lived children uses no memory for those that were never
 * sampled.
 */
#ifndef TREE_PROCESS_NODE_H
#define TREE_PROCESS_NODE_H

#include "sample/trace.h"

struct process_node {
    struct proc_info info;
    struct process_node *up; /* the parent at discovery; reparenting does not change it */
    unsigned depth;          /* 0 at the root */
    size_t refs;
    bool pinned;
    char *own_command;             /* NULL if the command is interned */
    struct process_node *previous; /* list of pinned nodes, for process_node_free_all() */
};

/* Takes a reference on `up`, which may be NULL. Returns NULL if out of memory. */
struct process_node *process_node_new(struct process_node *up, pid_t pid);
/* Takes a reference. */
struct process_node *process_node_retain(struct process_node *node);
/* Drops a reference; returns NULL. */
struct process_node *process_node_release(struct process_node *node);

/* Keeps the node until process_node_free_all(), because a trace refers to its info. `all` is the head of the list of
 * pinned nodes. */
void process_node_pin(struct process_node *node, struct process_node **all);
void process_node_free_all(struct process_node **all);
/* Unpins the nodes whose info is not among the `n` at `used`, which are sorted by address. */
void process_node_unpin(struct process_node **all, const struct proc_info *const *used, size_t n);

/* Reads the current command line from /proc. 0 or ERR_NOMEM. */
int process_node_read_command(struct process_node *node);

#endif
