/*
 * A page cache in front of another struct mem, for readers that make many small reads. Drops all pages at
 * mem_cached_begin().
 */
#include "target/mem_cached.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

#define PAGE  4096u
#define SLOTS 1024u /* a power of two */

struct slot {
    addr_t page;
    uint64_t round; /* when the page was read */
    unsigned char bytes[PAGE];
};

struct mem_cached {
    struct mem mem;
    struct mem *from;
    size_t budget; /* reads left */
    bool spent;
    uint64_t round; /* counts calls of mem_cached_begin(); 0 marks an empty slot */
    struct slot *slots;
};

static bool spend(struct mem_cached *c)
{
    if (!c->budget) {
        c->spent = true;
        return false;
    }
    c->budget--;
    return true;
}

/* The contents of a page, or NULL if it is not fully readable. */
static const unsigned char *page_bytes(struct mem_cached *c, addr_t page)
{
    struct slot *slot = &c->slots[(page / PAGE) & (SLOTS - 1)];

    if (slot->page == page && slot->round == c->round)
        return slot->bytes;
    slot->round = 0;
    if (!spend(c) || mem_read(c->from, page, slot->bytes, PAGE) < 0)
        return NULL;
    slot->page = page;
    slot->round = c->round;
    return slot->bytes;
}

static bool read_pages(struct mem_cached *c, addr_t addr, unsigned char *buf, size_t len)
{
    while (len) {
        size_t at = addr % PAGE, n = len < PAGE - at ? len : PAGE - at;
        const unsigned char *bytes = page_bytes(c, addr - at);

        if (!bytes)
            return false;
        memcpy(buf, bytes + at, n);
        addr += n;
        buf += n;
        len -= n;
    }
    return true;
}

/* A core file may have part of a page. Fall back to reading just those bytes. */
static bool read_span(struct mem_cached *c, const struct mem_span *span)
{
    if (span->addr > INT64_MAX || span->len > INT64_MAX - span->addr)
        return false;
    if (read_pages(c, span->addr, span->buf, span->len))
        return true;
    return spend(c) && mem_read(c->from, span->addr, span->buf, span->len) == 0;
}

static size_t cached_readv(struct mem *m, const struct mem_span *spans, size_t n)
{
    struct mem_cached *c = (struct mem_cached *)m;
    size_t done = 0;

    while (done < n && read_span(c, &spans[done]))
        done++;
    return done;
}

static struct mem *cached_close(struct mem *m)
{
    (void)m;
    return NULL;
}

static const struct mem_ops cached_ops = {.readv = cached_readv, .close = cached_close};

struct mem_cached *mem_cached_free(struct mem_cached *c)
{
    if (!c)
        return NULL;
    free(c->slots);
    free(c);
    return NULL;
}

struct mem_cached *mem_cached_new(void)
{
    struct mem_cached *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->mem.ops = &cached_ops;
    c->slots = calloc(SLOTS, sizeof(*c->slots));
    return c->slots ? c : mem_cached_free(c);
}

void mem_cached_begin(struct mem_cached *c, struct mem *from, size_t budget)
{
    c->from = from;
    c->budget = budget;
    c->spent = false;
    c->round++;
}

struct mem *mem_cached_mem(struct mem_cached *c)
{
    return &c->mem;
}

bool mem_cached_spent(const struct mem_cached *c)
{
    return c->spent;
}
