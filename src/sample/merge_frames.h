/*
 * Native frames and Python frames of one instant -> one stack. Each entry into the interpreter's loop is where a group
 * of Python frames belongs: the loop's native frame stands for them.
 *
 * Where the entries are is told by addresses, not by names, from 3.11 on: the interpreter keeps a structure for each
 * in the C stack of the loop. Before that, each loop has the address of the one frame that it runs (loops.h).
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
    size_t *at; /* of each group: the native frame it belongs to, or NONE */
    size_t cap_at;
    struct eval_frames eval_frames; /* up to 3.10 */
    bool failed;                    /* some Python frames had no place */
};

/* `shown` are the Python frames as they are to be shown, `frames` the same as they were read. `cframe` is the innermost
 * entry's structure on 3.11; 0: not known. 0 or ERR_NOMEM. */
int merge_frames(struct merged_frames *m, const struct native *n, const struct python *py, const struct frames *frames,
                 const struct frame *shown, addr_t cframe);
void merge_frames_free(struct merged_frames *m);

#endif
