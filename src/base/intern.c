/*
 * Interned strings: a hash table over bytes in chunks that never move, so pointers stay valid until intern_free.
 */
#include "base/intern.h"

#include "base/hash.h"
#include "base/hash_table.h"

#include <stdlib.h>

#define CHUNK_SIZE ((size_t)64 * 1024)
#define BYTES_MAX  ((size_t)48 * 1024 * 1024)

/* Returned for every new string once the pool is full: a recording may run for weeks on a target that keeps inventing
 * names. */
static const char full[] = "[too many names]";

struct chunk {
    struct chunk *next;
    size_t used, size;
    char bytes[];
};

struct interned {
    const char *s;
    size_t len;
};

struct intern {
    struct chunk *chunks;
    struct interned *items;
    size_t n, cap;
    struct hash_table index; /* of `items` */
    size_t bytes;            /* of all chunks */
};

struct intern *intern_new(void)
{
    return calloc(1, sizeof(struct intern));
}

struct intern *intern_free(struct intern *in)
{
    if (!in)
        return NULL;
    for (struct chunk *c = in->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(in->items);
    hash_table_free(&in->index);
    free(in);
    return NULL;
}

static char *chunk_alloc(struct intern *in, size_t len)
{
    struct chunk *c = in->chunks;
    size_t size = len > CHUNK_SIZE ? len : CHUNK_SIZE;

    if (!c || c->size - c->used < len) {
        c = malloc(sizeof(*c) + size);
        if (!c)
            return NULL;
        *c = (struct chunk){.next = in->chunks, .size = size};
        in->bytes += size;
        in->chunks = c;
    }
    c->used += len;
    return c->bytes + c->used - len;
}

const char *intern_bytes(struct intern *in, const char *s, size_t len)
{
    uint64_t hash = hash_bytes(s, len);
    size_t step = 0;
    uint32_t at;
    char *copy;

    while ((at = hash_table_next(&in->index, hash, &step)) != HASH_TABLE_NONE) {
        const struct interned *item = &in->items[at];

        if (item->len == len && memcmp(item->s, s, len) == 0)
            return item->s;
    }
    if (in->bytes > BYTES_MAX)
        return full;
    if (hash_table_reserve_item(&in->index, (void **)&in->items, &in->cap, in->n, sizeof(*in->items)) < 0)
        return NULL;
    copy = chunk_alloc(in, len + 1);
    if (!copy)
        return NULL;
    memcpy(copy, s, len);
    copy[len] = '\0';
    in->items[in->n] = (struct interned){copy, len};
    hash_table_add(&in->index, hash, (uint32_t)in->n++);
    return copy;
}

const char *intern_str(struct intern *in, const char *s)
{
    return intern_bytes(in, s, strlen(s));
}

bool intern_is_full(const char *s)
{
    return s == full;
}
