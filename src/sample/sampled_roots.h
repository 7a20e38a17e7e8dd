/*
 * The processes that a tree starts from, if there are several: attached one by one, then added to the tree together.
 *
 *     r = sampled_root_attach(sampler, &root, patience_ns, roots, n, &note);     // for each
 *     r = sampled_roots_add(&tree, roots, n);                                    // instead of sampled_tree_add_root
 */
#ifndef SAMPLE_SAMPLED_ROOTS_H
#define SAMPLE_SAMPLED_ROOTS_H

#include "sample/sampled_tree.h"

struct sampled_root {
    pid_t pid;
    struct proc_stat st;
    struct process *process; /* NULL: not attached */
};

/* Attaches to root->pid. Reuses what is known of its parent, if that is among the `n` other roots and both run the same
 * program. Returns what process_attach returns. */
int sampled_root_attach(struct sampler *s, struct sampled_root *root, uint64_t patience_ns,
                        const struct sampled_root *others, size_t n, struct err_note *note);

/* Adds the roots to an empty tree, and takes over their processes. With subprocesses, a root that descends from another one
 * has its place below that one, and the tree is refreshed. 0, ERR_NOMEM, or ERR_BOUNDS if there are too many. */
int sampled_roots_add(struct process_tree *t, struct sampled_root *roots, size_t n);

#endif
