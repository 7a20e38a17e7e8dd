/*
 * Which address was read after which, so that a chain that is met again can be fetched in one call.
 */
#ifndef SNAPSHOT_SUCCESSORS_H
#define SNAPSHOT_SUCCESSORS_H

#include "base/addr.h"

#include <stddef.h>

struct successors;

/* Remembers a chain of addresses. Allocates `*s` when it is NULL and the chain is long enough. 0 or ERR_NOMEM. */
int successors_note(struct successors **s, const addr_t *addrs, size_t n);

/* Fills `ret` with the addresses that followed `from`, `max` at most; returns how many. Accepts NULL. */
size_t successors_follow(const struct successors *s, addr_t from, addr_t *ret, size_t max);

#endif
