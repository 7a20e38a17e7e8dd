/*
 * The hash table. Lookups are in the header: they run for every frame of every sample.
 */
#include "base/hash_table.h"

#include "base/err.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAP 64

/* `cap` is large enough; `stored` is the position plus one. */
static void put(struct hash_table_slot *slots, size_t cap, uint32_t hash, uint32_t stored)
{
    size_t i = hash & (cap - 1);

    while (slots[i].at != 0)
        i = (i + 1) & (cap - 1);
    slots[i] = (struct hash_table_slot){hash, stored};
}

int hash_table_reserve(struct hash_table *t, size_t more)
{
    struct hash_table_slot *slots;
    size_t cap = t->cap ? t->cap : FIRST_CAP;

    if (more > HASH_TABLE_NONE || t->n + more > HASH_TABLE_NONE)
        return ERR_NOMEM;
    while (t->n + more > cap / 4 * 3)
        cap *= 2;
    if (cap == t->cap)
        return 0;
    slots = calloc(cap, sizeof(*slots));
    if (!slots)
        return ERR_NOMEM;
    for (size_t i = 0; i < t->cap; i++)
        if (t->slots[i].at != 0)
            put(slots, cap, t->slots[i].hash, t->slots[i].at);
    free(t->slots);
    t->slots = slots;
    t->cap = cap;
    return 0;
}

int hash_table_reserve_item(struct hash_table *t, void **array, size_t *cap, size_t n, size_t size)
{
    if (n >= HASH_TABLE_NONE - 1)
        return ERR_NOMEM;
    if (t && hash_table_reserve(t, 1) < 0)
        return ERR_NOMEM;
    return grow_array(array, cap, n + 1, size);
}

void hash_table_add(struct hash_table *t, uint64_t hash, uint32_t at)
{
    put(t->slots, t->cap, (uint32_t)hash, at + 1);
    t->n++;
}

void hash_table_clear(struct hash_table *t)
{
    if (t->n)
        memset(t->slots, 0, t->cap * sizeof(*t->slots));
    t->n = 0;
}

void hash_table_free(struct hash_table *t)
{
    free(t->slots);
    *t = (struct hash_table){0};
}
