/*
 * Adds single nodes and frames to a profile. Private to profile.c and folded.c.
 */
#ifndef PROFILE_PROFILE_PRIVATE_H
#define PROFILE_PROFILE_PRIVATE_H

#include "profile/profile.h"
#include "profile/table.h"

/* A cache from the key of a trace to its node: direct-mapped, a new key evicts the old one. */
struct profile_key {
    uint64_t key;
    uint32_t node;
};

struct profile_index {
    struct table nodes, frames, threads;
    size_t cap_nodes, cap_frames, cap_threads;
    struct profile_key *keys; /* PROFILE_KEYS entries */
};

/* Finds or adds the node of `frame` called from `parent`. Returns 0 or ERR_NOMEM. */
int profile_child(struct profile *p, uint32_t parent, uint32_t frame, uint32_t *ret_node);

/* Appends a frame; if `findable`, indexes it under `hash`. On success takes ownership of frame->label. Returns 0 or
 * ERR_NOMEM. */
int profile_frame_append(struct profile *p, const struct profile_frame *frame, uint32_t hash, bool findable,
                         uint32_t *ret_frame);

/* Shrinks the tree and the timeline if they exceed their limits. Renumbers all nodes but 0. Returns 0 or ERR_NOMEM. */
int profile_enforce_limits(struct profile *p);

#endif
