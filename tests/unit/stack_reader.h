/*
 * Reads stacks of a fake interpreter as the sampler does: through a snapshot, with what the last reading learnt.
 */
#ifndef TESTS_UNIT_STACK_READER_H
#define TESTS_UNIT_STACK_READER_H

#include "python/frames.h"

/* Zeroed at first. */
struct stack_reader {
    struct read_plan plan;
    struct frames_state state;
};

static inline int stack_reader_paused(struct stack_reader *r, struct frames *f, const struct python *py, addr_t tstate)
{
    struct snapshot *snap;
    int result = snapshot_new(py->mem, false, &snap);

    if (result < 0)
        return result;
    snapshot_begin(snap, &r->plan, SNAPSHOT_ONCE, 0);
    result = frames_read(f, py, snap, tstate, &r->state);
    snapshot_end(snap, result == 0);
    snapshot_free(snap);
    return result;
}

static inline int stack_reader_unpaused(struct stack_reader *r, struct frames *f, const struct python *py,
                                        addr_t tstate, size_t *ret_sure, bool *ret_cut)
{
    struct snapshot *snap;
    int result = snapshot_new(py->mem, false, &snap);

    if (result < 0)
        return result;
    result = frames_read_unpaused(f, py, snap, &r->plan, tstate, &r->state, ret_sure, ret_cut);
    snapshot_free(snap);
    return result;
}

static inline void stack_reader_free(struct stack_reader *r)
{
    read_plan_free(&r->plan);
    frames_state_free(&r->state);
}

#endif
