/*
 * A profile as it is shown: who called whom, with sums, in order of name. For formats that draw or list
 * stacks and have no use for time.
 *
 *     struct tree *tree = tree_new(p, false, true);
 *     for (uint32_t i = tree_next(tree, 0, true); i != 0; i = tree_next(tree, i, true))
 *         …tree->nodes[i]…
 *     tree = tree_free(tree);
 */
#ifndef PROFILE_TREE_H
#define PROFILE_TREE_H

#include "profile/profile.h"

/* Frames that read the same are one, siblings are in order of name. */
struct tree_node {
    uint32_t parent;                    /* always of lower index */
    uint32_t frame;                     /* into the profile's frames; the root has none */
    uint32_t depth;                     /* 0 at the root */
    uint32_t first_child, next_sibling; /* 0 when there is none */
    uint64_t self, total;
};

struct tree {
    struct tree_node *nodes; /* node 0 is the root: "all" */
    size_t n_nodes, cap_nodes;
    uint32_t max_depth;
};

struct tree *tree_new(const struct profile *p, bool full_filenames, bool show_lines);
struct tree *tree_free(struct tree *tree);

/* The node after `node` from the top down, siblings in order; 0 at the end. Without `descend` its children are passed over. */
uint32_t tree_next(const struct tree *tree, uint32_t node, bool descend);

#endif
