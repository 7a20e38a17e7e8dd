/*
 * Adds single nodes and frames to a profile. Private to profile.c and folded.c.
 */
#ifndef PROFILE_PROFILE_PRIVATE_H
#define PROFILE_PROFILE_PRIVATE_H

#include "base/hash_table.h"
#include "profile/profile.h"

struct profile_index {
    struct hash_table nodes, frames, threads;
    size_t cap_nodes, cap_frames, cap_threads;
    struct known_keys keys;
    uint32_t key_nodes[KNOWN_KEYS]; /* where a stack with that key ends */
};

/* Finds or adds the node of `frame` called from `parent`. Returns 0 or ERR_NOMEM. */
int profile_child(struct profile *p, uint32_t parent, uint32_t frame, uint32_t *ret_node);

/* Appends a frame; if `findable`, indexes it under `hash`. On success takes ownership of frame->label. Returns 0 or
 * ERR_NOMEM. */
int profile_frame_append(struct profile *p, const struct profile_frame *frame, uint64_t hash, bool findable,
                         uint32_t *ret_frame);

#endif
