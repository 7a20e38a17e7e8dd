/*
 * Samples a tree of processes (tree/process_tree.h).
 *
 *     process_tree_watch(&tree);                           // with subprocesses, before the root is started
 *     sampled_tree_add_root(&tree, pid, patience_ns, true, &note);
 *     sampled_tree_refresh(&tree);                         // with subprocesses: attaches to new children
 *     sampled_tree_sample(&tree, sink, arg);
 *     process_tree_free(&tree);
 */
#ifndef SAMPLE_SAMPLED_TREE_H
#define SAMPLE_SAMPLED_TREE_H

#include "sample/process.h"
#include "tree/process_tree.h"

/* Adds the root and attaches to it; with one_at_a_time, the first refresh does that. Unless `must_be_python`, a root that is not Python is not an error. */
int sampled_tree_add_root(struct process_tree *t, pid_t pid, uint64_t patience_ns, bool must_be_python,
                          struct err_note *note);

/* Refreshes the tree, and attaches to new processes and to those that were starting. 0 or ERR_NOMEM. */
int sampled_tree_refresh(struct process_tree *t);

/* Samples every attached process. ERR_GONE when the root has ended and no other process is Python or may become it. */
int sampled_tree_sample(struct process_tree *t, process_sink sink, void *arg);

/* At the end of a recording: counts the CPU time that was not attributed to any stack. */
void sampled_tree_settle(struct process_tree *t);

/* The CPU time of all processes during the recording, and the part of it in threads without Python. */
struct cpu_use sampled_tree_cpu_use(struct process_tree *t);

/* Attaches to one process, with manual_attach. Waits up to `patience_ns` for an interpreter that is starting. 0, or
 * the reason to skip the process. */
int sampled_tree_attach(struct process_tree *t, struct tree_entry *e, uint64_t patience_ns);
/* Frees what is needed to sample the process. Its info stays valid. */
void sampled_tree_detach(struct tree_entry *e);

#endif
