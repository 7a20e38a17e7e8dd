/*
 * Writers for containers.
 */
#ifndef PYTHON_REPR_CONTAINERS_H
#define PYTHON_REPR_CONTAINERS_H

#include "python/repr/repr.h"

int containers_write_tuple(struct repr *v, addr_t object, const struct repr_type *t);
int containers_write_list(struct repr *v, addr_t object, const struct repr_type *t);
int containers_write_dict(struct repr *v, addr_t object, const struct repr_type *t);
int containers_write_named_dict(struct repr *v, addr_t object, const struct repr_type *t); /* frozendict({…}) */
int containers_write_ordered(struct repr *v, addr_t object, const struct repr_type *t);
int containers_write_defaultdict(struct repr *v, addr_t object, const struct repr_type *t);
int containers_write_proxy(struct repr *v, addr_t object, const struct repr_type *t);
int containers_write_set(struct repr *v, addr_t object, const struct repr_type *t);
int containers_write_deque(struct repr *v, addr_t object, const struct repr_type *t);
int containers_write_range(struct repr *v, addr_t object, const struct repr_type *t);
int containers_write_xrange(struct repr *v, addr_t object, const struct repr_type *t); /* 2.7 */
int containers_write_slice(struct repr *v, addr_t object, const struct repr_type *t);

/* The number of items of a tuple, and the address of the array of pointers to them. */
int containers_tuple(struct repr *v, addr_t object, uint64_t *ret_n, addr_t *ret_items);

/* Writes `n` objects from the array of pointers at `items`, separated by commas. */
int containers_put_items(struct repr *v, addr_t items, uint64_t n, bool *first);

#endif
