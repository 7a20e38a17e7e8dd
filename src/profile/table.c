/*
 * A hash index with open addressing and linear probing. Entries cannot be removed.
 */
#include "profile/table.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/hash.h"

#include <stdlib.h>

uint32_t table_hash(uint64_t a, uint64_t b)
{
    return (uint32_t)(hash_mix(hash_mix(0, a), b) >> 32);
}

uint32_t table_next(const struct table *t, uint32_t hash, size_t *pos)
{
    while (t->cap > 0) {
        const struct table_slot *slot = &t->slots[(*pos)++ & (t->cap - 1)];

        if (slot->id == 0)
            break;
        if (slot->hash == hash)
            return slot->id - 1;
    }
    return TABLE_NONE;
}

static void table_put(struct table *t, uint32_t hash, uint32_t stored)
{
    size_t pos = hash;

    while (t->slots[pos & (t->cap - 1)].id != 0)
        pos++;
    t->slots[pos & (t->cap - 1)] = (struct table_slot){hash, stored};
}

/* Makes room for one more entry. Keeps the load factor at or below 3/4. */
static int table_reserve(struct table *t)
{
    struct table bigger;

    if (t->used < t->cap / 4 * 3)
        return 0;
    bigger = (struct table){.cap = t->cap ? t->cap * 2 : 64, .used = t->used};
    bigger.slots = calloc(bigger.cap, sizeof(*bigger.slots));
    if (bigger.slots == NULL)
        return ERR_NOMEM;
    for (size_t i = 0; i < t->cap; i++)
        if (t->slots[i].id != 0)
            table_put(&bigger, t->slots[i].hash, t->slots[i].id);
    free(t->slots);
    *t = bigger;
    return 0;
}

void table_add(struct table *t, uint32_t hash, uint32_t id)
{
    table_put(t, hash, id + 1);
    t->used++;
}

int table_reserve_item(void **array, size_t *cap, size_t n, size_t size, struct table *table)
{
    if (n >= TABLE_NONE - 1)
        return ERR_NOMEM;
    if (table != NULL && table_reserve(table) < 0)
        return ERR_NOMEM;
    return grow_array(array, cap, n + 1, size);
}
