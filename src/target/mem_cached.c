/*
 * A page cache in front of another struct mem, for readers that make many small reads. Drops all pages at
 * mem_cached_begin().
 */
#include "target/mem_cached.h"

#include "base/err.h"
#include "base/hash.h"
#include "base/hash_table.h"

#include <stdlib.h>
#include <string.h>

#define PAGE      4096u
#define MAX_PAGES 1024u

struct page {
    addr_t addr;
    unsigned char bytes[PAGE];
};

struct mem_cached {
    struct mem mem;
    struct mem *from;
    size_t budget; /* reads left */
    bool spent;
    struct page *pages; /* MAX_PAGES of them; when all are taken, all are dropped */
    size_t n;
    struct hash_table by_addr; /* index of `pages` */
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

static void drop_pages(struct mem_cached *c)
{
    hash_table_clear(&c->by_addr);
    c->n = 0;
}

/* The bytes of the page at `addr`, or NULL when it cannot be read whole. */
static const unsigned char *page_bytes(struct mem_cached *c, addr_t addr)
{
    uint64_t hash = hash_mix(0, addr);
    struct page *page;
    size_t step = 0;
    uint32_t at;

    while ((at = hash_table_next(&c->by_addr, hash, &step)) != HASH_TABLE_NONE)
        if (c->pages[at].addr == addr)
            return c->pages[at].bytes;
    if (c->n == MAX_PAGES)
        drop_pages(c);
    page = &c->pages[c->n];
    if (!spend(c) || mem_read(c->from, addr, page->bytes, PAGE) < 0)
        return NULL;
    page->addr = addr;
    hash_table_add(&c->by_addr, hash, (uint32_t)c->n++);
    return page->bytes;
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
    free(c->pages);
    hash_table_free(&c->by_addr);
    free(c);
    return NULL;
}

struct mem_cached *mem_cached_new(void)
{
    struct mem_cached *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->mem.ops = &cached_ops;
    c->pages = calloc(MAX_PAGES, sizeof(*c->pages));
    return c->pages && hash_table_reserve(&c->by_addr, MAX_PAGES) == 0 ? c : mem_cached_free(c);
}

void mem_cached_begin(struct mem_cached *c, struct mem *from, size_t budget)
{
    c->from = from;
    c->budget = budget;
    c->spent = false;
    drop_pages(c);
}

struct mem *mem_cached_mem(struct mem_cached *c)
{
    return &c->mem;
}

bool mem_cached_spent(const struct mem_cached *c)
{
    return c->spent;
}
