/*
 * A process as it is shown, with its place in the tree. It outlives the process when a profile or a child still names
 * it, and only then: a program that starts a million short-lived children costs no memory for those never seen at work.
 *
 *     struct process_node *node = process_node_new(parent_kin, pid);
 *     process_node_pin(node);                        // a trace with &node->info was handed out: it stays
 *     node = process_node_release(node);
 */
#ifndef TREE_PROCESS_NODE_H
#define TREE_PROCESS_NODE_H

#include "sample/trace.h"

struct process_node {
    struct proc_info info;
    struct process_node *up; /* the parent that it was found with, whatever became of it since */
    unsigned depth;          /* 0 at the root */
    size_t refs;
    bool pinned;
    char *own_command;             /* unless it is interned */
    struct process_node *previous; /* of all that are pinned: for process_node_free_all */
};

/* Holds `up`, which may be NULL. NULL when out of memory. */
struct process_node *process_node_new(struct process_node *up, pid_t pid);
/* One more hold. */
struct process_node *process_node_retain(struct process_node *node);
/* Gives up one hold; returns NULL. */
struct process_node *process_node_release(struct process_node *node);

/* From now on it stays until process_node_free_all; `all` is the head of the list of these. */
void process_node_pin(struct process_node *node, struct process_node **all);
void process_node_free_all(struct process_node **all);

/* Its command line as /proc has it now. 0 or ERR_NOMEM. */
int process_node_read_command(struct process_node *node);

#endif
