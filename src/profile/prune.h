/*
 * A tree that has outgrown its bound -> which of its nodes stay. Pure.
 */
#ifndef PROFILE_PRUNE_H
#define PROFILE_PRUNE_H

#include "profile/profile.h"

/*
 * Chooses at most half of the nodes: those with the most samples in them and below them, so that the callers of
 * one that stays stay too; made-up roots always do. map[i] is the new index of node i or, if it goes, of its
 * nearest caller that stays. Returns how many stay; 0 when out of memory.
 */
size_t prune_plan(const struct profile *p, uint32_t *map);

#endif
