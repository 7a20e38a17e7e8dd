/*
 * What the files of the family share: family.c has the set, process_tree_refresh.c brings it up to date, lineage.c knows whose
 * child a process is.
 */
#ifndef SAMPLE_PROCESS_TREE_PRIVATE_H
#define SAMPLE_PROCESS_TREE_PRIVATE_H

#include "sample/process_tree.h"
#include "target/proc.h"

/* NULL when it is not in the set. Good until the set changes. */
struct tree_entry *process_tree_find(const struct process_tree *t, pid_t pid);

/* A process joins below `up`. It is not attached yet. ERR_NOMEM, ERR_BOUNDS. */
int process_tree_insert(struct process_tree *t, pid_t pid, const struct proc_stat *st, struct process_node *parent);

/* It belonged to the family, and has ended: its children, its session and its group may yet ask for `kin`, which is held
 * from now on by the family. */
void process_tree_remember_ended(struct process_tree *t, pid_t pid, struct process_node *node);

/* Those marked dead leave, but for the root. 0 or ERR_NOMEM. */
int process_tree_drop_dead(struct process_tree *t);

/* Attaches, and says what becomes of one that cannot be. Only ERR_NOMEM matters to a caller without a `note`. */
int process_tree_try_attach(struct process_tree *t, struct tree_entry *e, uint64_t patience_ns, struct err_note *note);

/* Ends its Python and its name: it has executed something else. 0 or ERR_NOMEM. */
int process_tree_handle_exec(struct tree_entry *e, const struct proc_stat *st);

/* Finds out who takes in orphans of the root, and how sure an image is. */
void process_parent_init(struct process_tree *t);

/* The place of a process that belongs to the family, or did; NULL: none has that pid. */
struct process_node *process_parent_lookup(const struct process_tree *t, pid_t pid);

/* The place that a new process has a parent in, or NULL: it is not of this family. */
struct process_node *process_parent_find(const struct process_tree *t, pid_t pid, const struct proc_stat *st);

#endif
