/*
 * What profile.c shares with folded.c, and nobody else: the growing of a profile's tree, one node and one frame at a
 * time.
 */
#ifndef PROFILE_PROFILE_PRIVATE_H
#define PROFILE_PROFILE_PRIVATE_H

#include "base/hash_table.h"
#include "profile/profile.h"

/* The node of a stack that was added before, by its key: one place for each, the newest stays. */
struct profile_key {
    uint64_t key;
    uint32_t node;
};

struct profile_index {
    struct hash_table nodes, frames, threads;
    size_t cap_nodes, cap_frames, cap_threads;
    struct profile_key *keys; /* PROFILE_KEYS of them */
};

/* The node of `frame` called from `parent`, made when it is new. 0 or ERR_NOMEM. */
int profile_child(struct profile *p, uint32_t parent, uint32_t frame, uint32_t *ret_node);

/* A new frame, filed under `hash` if it shall be found again; takes frame->label. 0 or ERR_NOMEM. */
int profile_frame_append(struct profile *p, const struct profile_frame *frame, uint64_t hash, bool findable,
                         uint32_t *ret_frame);

/* Folds and joins what is too much. Node numbers change, except for 0. 0 or ERR_NOMEM. */
int profile_keep_bounds(struct profile *p);

#endif
