/*
 * What the two ways to read a stack share: frames.c of a thread that stands still, frames_twice.c of one that may run.
 */
#ifndef PYTHON_FRAMES_PRIVATE_H
#define PYTHON_FRAMES_PRIVATE_H

#include "python/frames.h"

#include <string.h>

#define FRAMES_CHUNK_MAX ((size_t)8 * 1024 * 1024) /* the interpreter makes them 16 KB, larger for huge frames */

/* _PyInterpreterFrame.owner, pycore_frame.h: from 3 on it is not a Python function's frame. */
#define OWNER_GENERATOR  1
#define OWNER_NOT_PYTHON 3

struct raw_frame {
    addr_t addr, code, back, instr;
    int lasti, owner;
    bool is_entry, copied, executing;
};

enum frames_copies {
    FRAMES_ONCE,
    FRAMES_TWICE,
    FRAMES_TWICE_OLDER, /* with the frames of some stacks before the last one */
};

static inline addr_t frames_addr_at(const unsigned char *bytes, int at)
{
    addr_t value;

    memcpy(&value, bytes + at, sizeof(value));
    return value;
}

/* The thread state as it was copied. */
static inline addr_t frames_state_at(const struct frames *f, int at)
{
    return frames_addr_at(f->w.bytes + f->w.items[0].at, at);
}

/* Fetches what the hint tells, in one call, and walks it (the first copy, if there are two). */
int frames_read_copies(struct frames *f, const struct python *py, addr_t tstate, struct frames_hint *hint,
                       enum frames_copies copies);
/* From what was fetched to the frames; fetches singly what is not there. */
int frames_walk_fetched(struct frames *f, const struct python *py, struct frames_hint *hint);
/* What the walk found is where the next one looks. */
void frames_hint_update(struct frames *f, struct frames_hint *hint);
/* What was walked last is what known frames are looked for in, when a later stack cannot be made out. */
void frames_keep_chain(struct frames *f, struct frames_hint *hint);

/* All but `copied`, which is for the caller to know. */
void frames_parse(const struct layout *l, addr_t addr, const unsigned char *bytes, struct raw_frame *ret);
int frames_add(struct frames *f, const struct layout *l, const struct raw_frame *raw);
/* Entered from C: 3.11 marks the frame itself, later versions put one of their own below it. */
bool frames_is_shim(const struct layout *l, const struct raw_frame *raw);

#endif
