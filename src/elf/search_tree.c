/*
 * Functions missing from the static elfutils 0.192 of Debian 13: libdw.a and libelf.a call six functions of an internal
 * library that is not packaged. src/meson.build compiles this file only if they do not link without it.
 *
 * Each function wraps tsearch(3) or one of its siblings. elfutils also has a lock in the tree, for programs that use a
 * Dwarf from several threads. spyglass has one thread and does not use the lock.
 */
#include "elf/search_tree.h"

#include <search.h>
#include <stddef.h>

void eu_search_tree_init(struct search_tree *tree)
{
    tree->root = NULL;
}

void eu_search_tree_fini(struct search_tree *tree, void (*free_node)(void *key))
{
    eu_tdestroy(tree, free_node);
}

void *eu_tsearch(const void *key, struct search_tree *tree, int (*compare)(const void *, const void *))
{
    return tsearch(key, &tree->root, compare);
}

void *eu_tfind(const void *key, struct search_tree *tree, int (*compare)(const void *, const void *))
{
    return tfind(key, &tree->root, compare);
}

void *eu_tdelete(const void *key, struct search_tree *tree, int (*compare)(const void *, const void *))
{
    return tdelete(key, &tree->root, compare);
}

void eu_tdestroy(struct search_tree *tree, void (*free_node)(void *key))
{
    tdestroy(tree->root, free_node);
    tree->root = NULL;
}
