/*
 * A hash index over an array: finds ids (indexes) by the hash of what they stand for. The caller
 * compares, so that any array can have one.
 *
 *     size_t pos = hash;
 *     while ((id = table_next(&t, hash, &pos)) != TABLE_NONE)
 *         if (items[id] is the one) …
 */
#ifndef PROFILE_TABLE_H
#define PROFILE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define TABLE_NONE UINT32_MAX

/* `id` is stored plus one, so that zeroed memory is empty. */
struct table_slot {
    uint32_t hash, id;
};

/* Zero it to start, free `slots` at the end. */
struct table {
    struct table_slot *slots;
    size_t cap, used; /* cap is a power of two */
};

uint32_t table_hash(uint64_t a, uint64_t b);

/* The next id filed under `hash`, or TABLE_NONE. `*pos` starts as the hash. */
uint32_t table_next(const struct table *t, uint32_t hash, size_t *pos);

/* Room for one more item in an array of `n` and, unless `table` is NULL, for its entry. 0 or ERR_NOMEM. */
int table_reserve_item(void **array, size_t *cap, size_t n, size_t size, struct table *table);

/* After table_reserve_item. */
void table_add(struct table *t, uint32_t hash, uint32_t id);

#endif
