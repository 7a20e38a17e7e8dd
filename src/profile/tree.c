/*
 * Builds the call tree that the formats display: merges nodes whose frames display the same text, sums their samples
 * and sorts siblings by name.
 *
 * As in the profile, a parent's index is lower than its children's. Every step is a loop over all nodes, without
 * recursion. Nodes without samples are not linked into the tree.
 */
#include "profile/tree.h"

#include "base/err.h"
#include "base/hash.h"
#include "base/hash_table.h"

#include <stdlib.h>
#include <string.h>

/* Selects which parts of a frame are displayed, and so compared. */
struct tree_view {
    const struct profile *p;
    bool full_filenames, show_lines;
};

static int compare_frames(const void *a, const void *b, void *arg)
{
    const struct tree_view *view = arg;
    const struct profile_frame *x = &view->p->frames[*(const uint32_t *)a];
    const struct profile_frame *y = &view->p->frames[*(const uint32_t *)b];
    int r = strcmp(x->label ? x->label : x->func->name, y->label ? y->label : y->func->name);

    if (r != 0)
        return r;
    if (x->label != NULL || y->label != NULL)
        return (x->label != NULL) - (y->label != NULL);
    r = view->full_filenames ? strcmp(x->func->filename, y->func->filename)
                             : strcmp(x->func->short_filename, y->func->short_filename);
    if (r != 0 || !view->show_lines)
        return r;
    return (x->line > y->line) - (x->line < y->line);
}

/* Sets rank[f] to the position of frame f in the sort order. Frames that display the same text share a rank. */
static int rank_frames(struct tree_view *view, uint32_t *rank, size_t n)
{
    uint32_t *order = calloc(n + 1, sizeof(*order)), place = 0;

    if (order == NULL)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, n, sizeof(*order), compare_frames, view);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && compare_frames(&order[i - 1], &order[i], view) != 0)
            place = (uint32_t)i;
        rank[order[i]] = place;
    }
    free(order);
    return 0;
}

static int tree_child(struct tree *tree, struct hash_table *table, const uint32_t *rank, uint32_t parent,
                      uint32_t frame, uint32_t *ret_node)
{
    uint64_t hash = hash_mix(parent, rank[frame]);
    uint32_t id;
    size_t step = 0;
    int r;

    while ((id = hash_table_next(table, hash, &step)) != HASH_TABLE_NONE)
        if (tree->nodes[id].parent == parent && rank[tree->nodes[id].frame] == rank[frame]) {
            *ret_node = id;
            return 0;
        }
    r = hash_table_reserve_item(table, (void **)&tree->nodes, &tree->cap_nodes, tree->n_nodes, sizeof(*tree->nodes));
    if (r < 0)
        return r;
    id = (uint32_t)tree->n_nodes++;
    tree->nodes[id] = (struct tree_node){.parent = parent, .frame = frame, .depth = tree->nodes[parent].depth + 1};
    if (tree->nodes[id].depth > tree->max_depth)
        tree->max_depth = tree->nodes[id].depth;
    hash_table_add(table, hash, id);
    *ret_node = id;
    return 0;
}

/* Adds all nodes of the profile. map[i] becomes the tree's node for node i of the profile. */
static int tree_merge(struct tree *tree, const struct profile *p, const uint32_t *rank, uint32_t *map)
{
    struct hash_table table = {0};
    int r = hash_table_reserve_item(NULL, (void **)&tree->nodes, &tree->cap_nodes, 0, sizeof(*tree->nodes));

    if (r == 0) {
        tree->nodes[0] = (struct tree_node){.frame = HASH_TABLE_NONE};
        tree->n_nodes = 1;
    }
    for (size_t i = 1; i < p->n_nodes && r == 0; i++) {
        r = tree_child(tree, &table, rank, map[p->nodes[i].parent], p->nodes[i].frame, &map[i]);
        if (r == 0)
            tree->nodes[map[i]].self += p->nodes[i].self;
    }
    hash_table_free(&table);
    return r;
}

/* Links the children of each node in the order of their ranks: sorts all nodes by rank (counting sort), then prepends
 * them to their parents' lists, last one first. */
static int tree_link(struct tree *tree, const uint32_t *rank, size_t n_ranks)
{
    size_t n = tree->n_nodes;
    uint32_t *start = calloc(n_ranks + 1, sizeof(*start)), *order = calloc(n, sizeof(*order));
    int r = start == NULL || order == NULL ? ERR_NOMEM : 0;

    for (size_t i = 1; i < n && r == 0; i++)
        start[rank[tree->nodes[i].frame] + 1]++;
    for (size_t i = 1; i <= n_ranks && r == 0; i++)
        start[i] += start[i - 1];
    for (size_t i = 1; i < n && r == 0; i++)
        order[start[rank[tree->nodes[i].frame]]++] = (uint32_t)i;
    for (size_t i = n - 1; i-- > 0 && r == 0;) {
        struct tree_node *node = &tree->nodes[order[i]], *parent = &tree->nodes[node->parent];

        if (node->total > 0) {
            node->next_sibling = parent->first_child;
            parent->first_child = order[i];
        }
    }
    free(start);
    free(order);
    return r;
}

static void tree_sum(struct tree *tree)
{
    for (size_t i = tree->n_nodes; i-- > 0;) {
        struct tree_node *node = &tree->nodes[i];

        node->total += node->self;
        if (i > 0)
            tree->nodes[node->parent].total += node->total;
    }
}

struct tree *tree_new(const struct profile *p, bool full_filenames, bool show_lines)
{
    struct tree_view view = {p, full_filenames, show_lines};
    struct tree *tree = calloc(1, sizeof(*tree));
    uint32_t *rank = calloc(p->n_frames + 1, sizeof(*rank)), *map = calloc(p->n_nodes, sizeof(*map));
    int r = tree == NULL || rank == NULL || map == NULL ? ERR_NOMEM : 0;

    if (r == 0)
        r = rank_frames(&view, rank, p->n_frames);
    if (r == 0)
        r = tree_merge(tree, p, rank, map);
    if (r == 0) {
        tree_sum(tree);
        r = tree_link(tree, rank, p->n_frames);
    }
    free(map);
    free(rank);
    return r < 0 ? tree_free(tree) : tree;
}

struct tree *tree_free(struct tree *tree)
{
    if (tree != NULL)
        free(tree->nodes);
    free(tree);
    return NULL;
}

uint32_t tree_next(const struct tree *tree, uint32_t node, bool descend)
{
    const struct tree_node *nodes = tree->nodes;

    if (descend && nodes[node].first_child != 0)
        return nodes[node].first_child;
    while (node != 0 && nodes[node].next_sibling == 0)
        node = nodes[node].parent;
    return node == 0 ? 0 : nodes[node].next_sibling;
}
