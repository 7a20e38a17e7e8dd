/*
 * What frames.c, for a thread that is paused, and frames_unpaused.c share.
 */
#ifndef PYTHON_FRAMES_PRIVATE_H
#define PYTHON_FRAMES_PRIVATE_H

#include "python/frames.h"

#include <string.h>

#define FRAMES_CHUNK_MAX ((size_t)8 * 1024 * 1024) /* the interpreter makes them 16 KB, larger for huge frames */
#define FRAMES_CHAIN_MAX 16384

/* _PyInterpreterFrame.owner, pycore_frame.h: from 3 on it is not a Python function's frame. */
#define OWNER_THREAD     0
#define OWNER_GENERATOR  1
#define OWNER_NOT_PYTHON 3

struct raw_frame {
    addr_t addr, code, back, instr;
    int lasti, owner;
    bool is_entry, doubled, executing;
};

static inline addr_t frames_addr_at(const unsigned char *bytes, int at)
{
    addr_t value;

    memcpy(&value, bytes + at, sizeof(value));
    return value;
}

/* All but `doubled`. */
void frames_parse(const struct layout *l, addr_t addr, const unsigned char *bytes, struct raw_frame *ret);
/* A single frame. */
struct py_frame frames_make(const struct layout *l, const struct raw_frame *raw);
int frames_add(struct frames *f, const struct layout *l, const struct raw_frame *raw);
/* Entered from C: 3.11 marks the frame itself, later versions put one of their own below it. */
bool frames_is_shim(const struct layout *l, const struct raw_frame *raw);

#endif
