/*
 * Chooses which nodes of an oversized call tree to keep.
 */
#ifndef PROFILE_PRUNE_H
#define PROFILE_PRUNE_H

#include "profile/profile.h"

/*
 * Keeps at most half of the nodes: those with the most samples, counting their callees. The callers of a kept node are
 * kept too. Synthetic roots are always kept, and may exceed the half. map[i] is the new index of node i or, if i is
 * removed, of its nearest caller that is kept. Returns the number of kept nodes, or 0 if out of memory.
 */
size_t prune_plan(const struct profile *p, uint32_t *map);

#endif
