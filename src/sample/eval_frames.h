/*
 * Up to 3.10: matches Python frames to eval frames, the native frames of the interpreter's eval function. Each eval
 * frame runs one Python frame, and has its address in a register or in its part of the C stack.
 *
 *     r = eval_frames_match(&ef, native, frames, at);   // at[i]: native frame of frames->items[i], or EVAL_FRAMES_NONE
 *
 * The eval function is found by its name. Without a name (stripped symbols, a cold part that the compiler moved
 * elsewhere), it is recognized by the address of the Python frame alone.
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
    } * keys; /* the Python frames, sorted by address */
    size_t cap_keys;
    size_t *evals; /* indices of the eval frames, innermost first */
    size_t n_evals, cap_evals;
    size_t *candidate; /* `at` for one guess at the eval function */
    size_t cap_candidate;
};

/* Sets `at` for each of the frames. 0 or ERR_NOMEM. */
int eval_frames_match(struct eval_frames *ef, const struct native *n, const struct frames *f, size_t *at);
/* True if a register that may hold the address of a Python frame is not known. */
bool eval_frames_lack_registers(const struct native *n);
void eval_frames_free(struct eval_frames *ef);

#endif
