/*
 * The call tree as displayed, with totals and siblings sorted by name. For formats without a time axis.
 *
 *     struct tree *tree = tree_new(p, false, true);
 *     for (uint32_t i = tree_next(tree, 0, true); i != 0; i = tree_next(tree, i, true))
 *         printf("%" PRIu64 "\n", tree->nodes[i].total);
 *     tree = tree_free(tree);
 */
#ifndef PROFILE_TREE_H
#define PROFILE_TREE_H

#include "profile/profile.h"

/* One node for all calls from the same parent whose frames display the same text. */
struct tree_node {
    uint32_t parent;                    /* always has a lower index */
    uint32_t frame;                     /* index into the profile's frames; the root has none */
    uint32_t depth;                     /* 0 for the root */
    uint32_t first_child, next_sibling; /* 0 if there is none */
    uint64_t self, total;               /* samples without and with those of callees */
};

struct tree {
    struct tree_node *nodes; /* node 0 is the root, displayed as "all" */
    size_t n_nodes, cap_nodes;
    uint32_t max_depth;
};

/* NULL if out of memory. */
struct tree *tree_new(const struct profile *p, bool full_filenames, bool show_lines);
struct tree *tree_free(struct tree *tree);

/* The next node in depth-first order, or 0 at the end. Skips the children of `node` unless `descend` is true. */
uint32_t tree_next(const struct tree *tree, uint32_t node, bool descend);

#endif
