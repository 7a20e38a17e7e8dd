/*
 * Removes nodes of a call tree and adds their samples to their callers.
 */
#ifndef PROFILE_PRUNE_H
#define PROFILE_PRUNE_H

#include "profile/profile.h"

/* Halves the tree: removes the nodes with the fewest samples, counting their callees, but no synthetic roots. Counts them in
 * p->pruned. Renumbers all nodes but 0. 0 or ERR_NOMEM. */
int prune_rarest(struct profile *p);

/* The same for all nodes with fewer than `least` samples, or nanoseconds. Does not count them. */
int prune_below(struct profile *p, uint64_t least);

#endif
