/*
 * Up to 3.10: which native frame is the interpreter's loop of which Python frame. Each loop runs one Python frame, and has
 * its address in a register or in its part of the C stack.
 *
 *     eval_frames_match(&l, native, frames, at);       // at[g] is the native frame of frames->items[g], or EVAL_FRAMES_NONE
 *
 * The loop's function is known by its name. Where there is none (no symbols, a part of the function that lies apart),
 * the address of the Python frame alone tells.
 */
#ifndef SAMPLE_EVAL_FRAMES_H
#define SAMPLE_EVAL_FRAMES_H

#include "python/frames.h"
#include "sample/native.h"

#define EVAL_FRAMES_NONE SIZE_MAX

/* Reused from one stack to the next. Zeroed at first. */
struct eval_frames {
    struct eval_frames_key {
        addr_t addr;
        size_t frame;
    } * keys; /* the Python frames by their addresses */
    size_t cap_keys;
    size_t *evals; /* native frames of the loop, innermost first */
    size_t n_evals, cap_evals;
    size_t *candidate; /* what a guess at the function gives */
    size_t cap_candidate;
};

/* Fills `at` for each of the frames. 0 or ERR_NOMEM. */
int eval_frames_match(struct eval_frames *ef, const struct native *n, const struct frames *f, size_t *at);
void eval_frames_free(struct eval_frames *ef);

#endif
