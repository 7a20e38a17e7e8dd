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

/* Ancestors of a process shown as roots. Also ends the walk if the parent links form a cycle. */
#define PROFILE_MAX_ANCESTORS 64

/* The hashes by which the index finds a thread, and a frame of a function or a process. */
uint64_t profile_thread_hash(const struct profile_thread *t);
uint64_t profile_frame_hash(const struct profile_frame *frame);

/* Finds or adds the node of `frame` called from `parent`. Returns 0 or ERR_NOMEM. */
int profile_child(struct profile *p, uint32_t parent, uint32_t frame, uint32_t *ret_node);

/* Appends a frame; if `findable`, indexes it under `hash`. On success takes ownership of frame->label. Returns 0 or
 * ERR_NOMEM. */
int profile_frame_append(struct profile *p, const struct profile_frame *frame, uint64_t hash, bool findable,
                         uint32_t *ret_frame);

/* profile_enforce_limits() without the number of threads. */
int profile_enforce_tree_limits(struct profile *p);

#endif
