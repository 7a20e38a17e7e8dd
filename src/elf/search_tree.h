/*
 * The search tree functions that static libdw.a and libelf.a call. See search_tree.c.
 */
#ifndef ELF_SEARCH_TREE_H
#define ELF_SEARCH_TREE_H

/* The first member of elfutils' struct; a lock follows there. */
struct search_tree {
    void *root;
};

void eu_search_tree_init(struct search_tree *tree);
void eu_search_tree_fini(struct search_tree *tree, void (*free_node)(void *key));
void *eu_tsearch(const void *key, struct search_tree *tree, int (*compare)(const void *, const void *));
void *eu_tfind(const void *key, struct search_tree *tree, int (*compare)(const void *, const void *));
void *eu_tdelete(const void *key, struct search_tree *tree, int (*compare)(const void *, const void *));
void eu_tdestroy(struct search_tree *tree, void (*free_node)(void *key));

#endif
