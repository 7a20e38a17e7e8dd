/*
 * One thread's stack, read so that it is true: while the thread is held, or while it did not run.
 */
#ifndef SAMPLE_STACK_H
#define SAMPLE_STACK_H

#include "python/code.h"
#include "python/frames.h"
#include "sample/sampler.h"
#include "sample/thread_table.h"

/* Reused from one stack to the next. */
struct stack {
    struct frames frames;
    addr_t *addrs;
    const struct code **codes; /* of each frame */
    size_t cap_addrs, cap_codes;
    bool owns_gil;
    bool unsure;
};

/* Reads the stack of `k`, whose state by the kernel was `state` just before. On success frames and codes are
 * filled. ERR_GONE when the thread has ended. */
int stack_read(struct stack *st, struct sampler *s, const struct python *py, struct code_cache *codes,
               struct known_thread *k, char state);
void stack_free(struct stack *st);

#endif
