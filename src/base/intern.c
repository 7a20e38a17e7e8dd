/*
 * Interned strings: an open-addressing table over bytes in chunks that never move, so pointers stay valid until
 * intern_free.
 */
#include "base/intern.h"

#include "base/hash.h"

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

struct slot {
    uint64_t hash;
    const char *s; /* NULL if the slot is free */
    size_t len;
};

struct intern {
    struct chunk *chunks;
    struct slot *slots;
    size_t n, cap; /* cap is a power of two */
    size_t bytes;  /* total size of all chunks */
};

struct intern *intern_new(void)
{
    struct intern *in = calloc(1, sizeof(*in));

    if (!in)
        return NULL;
    in->cap = 1024;
    in->slots = calloc(in->cap, sizeof(*in->slots));
    if (!in->slots)
        return intern_free(in);
    return in;
}

struct intern *intern_free(struct intern *in)
{
    if (!in)
        return NULL;
    for (struct chunk *c = in->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(in->slots);
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

static int table_double(struct intern *in)
{
    size_t cap = in->cap * 2;
    struct slot *slots = calloc(cap, sizeof(*slots));

    if (!slots)
        return -1;
    for (size_t i = 0; i < in->cap; i++) {
        size_t at = in->slots[i].hash & (cap - 1);

        if (!in->slots[i].s)
            continue;
        while (slots[at].s)
            at = (at + 1) & (cap - 1);
        slots[at] = in->slots[i];
    }
    free(in->slots);
    in->slots = slots;
    in->cap = cap;
    return 0;
}

const char *intern_bytes(struct intern *in, const char *s, size_t len)
{
    uint64_t hash = hash_bytes(s, len);
    size_t at;
    char *copy;

    if (in->n * 4 >= in->cap * 3 && table_double(in) < 0)
        return NULL;
    for (at = hash & (in->cap - 1); in->slots[at].s; at = (at + 1) & (in->cap - 1)) {
        const struct slot *slot = &in->slots[at];

        if (slot->hash == hash && slot->len == len && memcmp(slot->s, s, len) == 0)
            return slot->s;
    }
    if (in->bytes > BYTES_MAX)
        return full;
    copy = chunk_alloc(in, len + 1);
    if (!copy)
        return NULL;
    memcpy(copy, s, len);
    copy[len] = '\0';
    in->slots[at] = (struct slot){hash, copy, len};
    in->n++;
    return copy;
}

const char *intern_str(struct intern *in, const char *s)
{
    return intern_bytes(in, s, strlen(s));
}
