/*
 * Containers of a target -> text, for values.c.
 */
#ifndef PYTHON_CONTAINERS_H
#define PYTHON_CONTAINERS_H

#include "python/values.h"

int containers_write_tuple(struct values *v, addr_t object, const struct value_type *t);
int containers_write_list(struct values *v, addr_t object, const struct value_type *t);
int containers_write_dict(struct values *v, addr_t object, const struct value_type *t);
int containers_write_named_dict(struct values *v, addr_t object, const struct value_type *t); /* frozendict({…}) */
int containers_write_ordered(struct values *v, addr_t object, const struct value_type *t);
int containers_write_defaultdict(struct values *v, addr_t object, const struct value_type *t);
int containers_write_proxy(struct values *v, addr_t object, const struct value_type *t);
int containers_write_set(struct values *v, addr_t object, const struct value_type *t);
int containers_write_deque(struct values *v, addr_t object, const struct value_type *t);
int containers_write_range(struct values *v, addr_t object, const struct value_type *t);
int containers_write_xrange(struct values *v, addr_t object, const struct value_type *t); /* 2.7 */
int containers_write_slice(struct values *v, addr_t object, const struct value_type *t);

/* The items of a tuple: how many, and where the pointers to them are. */
int containers_tuple(struct values *v, addr_t object, uint64_t *ret_n, addr_t *ret_items);

/* `n` objects from the array of pointers at `items` on, with commas between them. */
int containers_put_items(struct values *v, addr_t items, uint64_t n, bool *first);

#endif
