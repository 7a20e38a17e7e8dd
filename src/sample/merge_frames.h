/*
 * Merges the native frames and the Python frames of one instant into one stack. Each entry into the eval function runs
 * a group of Python frames, which replaces the native frame of the eval function.
 *
 * From 3.11 on, the interpreter keeps a structure for each entry on the C stack of the eval function, so addresses tell
 * which native frame that is. Before 3.11, each eval frame runs one Python frame and holds its address: see
 * eval_frames.h.
 */
#ifndef SAMPLE_MERGE_FRAMES_H
#define SAMPLE_MERGE_FRAMES_H

#include "python/frames.h"
#include "sample/eval_frames.h"
#include "sample/native.h"
#include "sample/trace.h"

struct merged_frames {
    struct frame *items; /* innermost first */
    size_t n, cap;
    size_t *at; /* per group: index of its native frame, or NONE */
    size_t cap_at;
    struct eval_frames eval_frames; /* up to 3.10 */
    bool failed;                    /* some Python frames match no native frame */
};

/* `frames` are the Python frames as they were read, `shown` the same as they are shown. `cframe` is the innermost
 * _PyCFrame on 3.11; 0: unknown. 0 or ERR_NOMEM. */
int merge_frames(struct merged_frames *m, const struct native *n, const struct python *py, const struct frames *frames,
                 const struct frame *shown, addr_t cframe);
void merge_frames_free(struct merged_frames *m);

#endif
