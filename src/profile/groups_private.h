/*
 * What groups.c, group_members.c and group_view.c share.
 */
#ifndef PROFILE_GROUPS_PRIVATE_H
#define PROFILE_GROUPS_PRIVATE_H

#include "base/intern.h"
#include "profile/groups.h"

/* Of a node, while a view is made; all zeros in between. */
struct group_work {
    uint32_t total, self;
    uint32_t first_child, next_sibling; /* 0: none */
    uint32_t step;
};

struct groups_index {
    struct intern *texts;
    struct hash_table members; /* by PID and rank */
    struct hash_table pids;    /* the first member with each PID */
    struct hash_table nodes, frames;
    struct group_work *work; /* one for each node */
};

/* An interned copy in *to, of at most GROUPS_TEXT_MAX bytes. 0, ERR_NOMEM, or ERR_BOUNDS: there are too many texts. */
int groups_keep_text(struct groups *g, const char *s, size_t len, const char **to);

/* The parent of a member, preferably one with the same rank; NULL: it is no member. */
const struct group_member *groups_parent(const struct groups *g, const struct group_member *m);

/* Fills in kind and name of each member, and g->n_hosts. 0 or ERR_NOMEM. */
int groups_classify(struct groups *g);

#endif
