/*
 * A hash index over an array: maps the hash of an item to its index. The caller compares items, so that any array can
 * have one.
 *
 *     size_t pos = hash;
 *     while ((id = table_next(&t, hash, &pos)) != TABLE_NONE)
 *         if (items[id].key == key)
 *             return &items[id];
 */
#ifndef PROFILE_TABLE_H
#define PROFILE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define TABLE_NONE UINT32_MAX

/* Stores `id` plus one, so that a zeroed slot is empty. */
struct table_slot {
    uint32_t hash, id;
};

/* Initialize to zero; free `slots` at the end. */
struct table {
    struct table_slot *slots;
    size_t cap, used; /* cap is a power of two */
};

uint32_t table_hash(uint64_t a, uint64_t b);

/* The next id with this hash, or TABLE_NONE. `*pos` starts as the hash. */
uint32_t table_next(const struct table *t, uint32_t hash, size_t *pos);

/* Makes room for one more item in an array of `n` items and, unless `table` is NULL, for its entry in the index.
 * Returns 0 or ERR_NOMEM. */
int table_reserve_item(void **array, size_t *cap, size_t n, size_t size, struct table *table);

/* Adds an entry. Call table_reserve_item first. */
void table_add(struct table *t, uint32_t hash, uint32_t id);

#endif
