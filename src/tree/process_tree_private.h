/*
 * Shared by the files of the process tree: process_tree.c holds the processes, process_tree_refresh.c keeps them up to
 * date, process_parent.c finds the parent of a new process.
 */
#ifndef TREE_PROCESS_TREE_PRIVATE_H
#define TREE_PROCESS_TREE_PRIVATE_H

#include "tree/process_tree.h"

/* Remembers a process that has ended, since its children, its session and its process group may still refer to it.
 * Takes over the caller's reference to `node`. */
void process_tree_remember_ended(struct process_tree *t, pid_t pid, struct process_node *node);

/* Removes the entries marked dead, except the root. 0 or ERR_NOMEM. */
int process_tree_drop_dead(struct process_tree *t);

/* The process has called exec: detaches, and forgets its old command line. 0 or ERR_NOMEM. */
int process_tree_handle_exec(struct process_tree *t, struct tree_entry *e, const struct proc_stat *st);

/* Finds out which processes may adopt orphans of the root, and whether its image is unique. */
void process_parent_init(struct process_tree *t);

/* The node of a process in the tree, or of one that has ended; NULL when the pid is unknown, or a profiler. */
struct process_node *process_parent_lookup(const struct process_tree *t, pid_t pid);

/* The node of the parent of a new process; NULL when the process is not part of the tree. */
struct process_node *process_parent_find(const struct process_tree *t, pid_t pid, const struct proc_stat *st);

#endif
