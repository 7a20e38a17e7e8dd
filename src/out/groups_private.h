/*
 * What the files that print groups share.
 */
#ifndef OUT_GROUPS_PRIVATE_H
#define OUT_GROUPS_PRIVATE_H

#include "out/groups.h"

#define GROUP_NAMES_SHOWN 8 /* names or ranges in a line of text */

/* Prints who these threads belong to: "ranks 0-2,4-63", "pids 12,34", "pid 12 on node1". At most `max` names or ranges; 0: all. */
int groups_put_names(const struct groups *g, const struct group_thread *const *threads, size_t n, size_t max,
                     FILE *out);

/* The number of processes among these threads. Those of one process need not be adjacent. 0 or ERR_NOMEM. */
int groups_count_members(const struct group_thread *const *threads, size_t n, size_t *ret);

/* "MainThread of 64 ranks (RANK)". */
void groups_put_section(const struct group_section *s, FILE *out);

#endif
