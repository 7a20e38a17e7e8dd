/*
 * The one hash table: an index over an array. It maps a hash to the positions of the items that have it; the caller
 * owns the array and compares the items. Open addressing with linear probing, at most three quarters full.
 *
 *     size_t step = 0;
 *     uint32_t at;
 *
 *     while ((at = hash_table_next(&table, hash, &step)) != HASH_TABLE_NONE)
 *         if (items[at].key == key)
 *             return &items[at];
 *
 * A table cannot be iterated: code that visits all items walks the array. So no order depends on the seed of the hashes.
 * There is no removal either: clear the table and add what is left.
 */
#ifndef BASE_HASH_TABLE_H
#define BASE_HASH_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define HASH_TABLE_NONE UINT32_MAX

/* `at` is stored plus one, so that zeroed memory is empty. */
struct hash_table_slot {
    uint32_t hash, at;
};

/* All zeros is an empty table. */
struct hash_table {
    struct hash_table_slot *slots;
    size_t n, cap; /* cap is a power of two */
};

/* The next position under `hash`, or HASH_TABLE_NONE. `*step` is 0 at first. Only the low 32 bits of the hash count, and
 * different keys may share them: the caller compares. */
static inline uint32_t hash_table_next(const struct hash_table *t, uint64_t hash, size_t *step)
{
    while (t->cap > 0) {
        const struct hash_table_slot *slot = &t->slots[((uint32_t)hash + (*step)++) & (t->cap - 1)];

        if (slot->at == 0)
            break;
        if (slot->hash == (uint32_t)hash)
            return slot->at - 1;
    }
    return HASH_TABLE_NONE;
}

/* Makes room for `more` entries. 0, or ERR_NOMEM with the table unchanged. */
int hash_table_reserve(struct hash_table *t, size_t more);

/* Makes room for one more item in an array of `n` and, unless `t` is NULL, for its entry. 0 or ERR_NOMEM. */
int hash_table_reserve_item(struct hash_table *t, void **array, size_t *cap, size_t n, size_t size);

/* Adds the item at position `at`, for which there is room. */
void hash_table_add(struct hash_table *t, uint64_t hash, uint32_t at);

/* Removes all entries and keeps the memory. */
void hash_table_clear(struct hash_table *t);

void hash_table_free(struct hash_table *t);

#endif
