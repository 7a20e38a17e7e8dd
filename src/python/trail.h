/*
 * From which frame to which a walk went before, so that frames which are met again can be fetched in one call.
 */
#ifndef PYTHON_TRAIL_H
#define PYTHON_TRAIL_H

#include "target/mem.h"

struct trail;

void trail_free(struct trail *t);

/* Remembers a walk over these frames. Made when `*t` is NULL and there are enough of them. 0 or ERR_NOMEM. */
int trail_note(struct trail **t, const addr_t *frames, size_t n);

/* Those that came after `from`, as far as they are remembered: how many, not more than `max`. */
size_t trail_follow(const struct trail *t, addr_t from, addr_t *ret, size_t max);

#endif
