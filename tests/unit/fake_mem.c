/*
 * Regions of bytes behind struct mem_ops. Reads behave like those of a process: in order, and each span completely or
 * not at all.
 */
#include "fake_mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *must(void *p)
{
    if (!p) {
        fprintf(stderr, "fake_mem: out of memory, or no such address\n");
        abort();
    }
    return p;
}

static struct fake_region *region_of(struct fake_mem *m, addr_t addr, size_t len)
{
    for (size_t i = 0; i < m->n; i++) {
        struct fake_region *r = &m->regions[i];

        if (addr >= r->start && addr - r->start <= r->len && len <= r->len - (addr - r->start))
            return r;
    }
    return NULL;
}

static void mark_seen(struct fake_region *r, addr_t addr, size_t len)
{
    size_t first = (addr - r->start) / 8, last = (addr - r->start + len + 7) / 8;

    memset(r->seen + first, 1, last - first);
}

static size_t fake_readv(struct mem *mem, const struct mem_span *spans, size_t n)
{
    struct fake_mem *m = (struct fake_mem *)mem;

    m->calls++;
    if (m->on_call)
        m->on_call(m->on_call_arg, m->calls);
    for (size_t i = 0; i < n; i++) {
        struct fake_region *r = region_of(m, spans[i].addr, spans[i].len);

        m->reads++;
        if (!r && spans[i].len)
            return i;
        if (!spans[i].len)
            continue;
        memcpy(spans[i].buf, r->bytes + (spans[i].addr - r->start), spans[i].len);
        if (m->watch)
            mark_seen(r, spans[i].addr, spans[i].len);
    }
    return n;
}

static void region_free(struct fake_region *r)
{
    free(r->bytes);
    free(r->seen);
}

static struct mem *fake_close(struct mem *mem)
{
    struct fake_mem *m = (struct fake_mem *)mem;

    for (size_t i = 0; i < m->n; i++)
        region_free(&m->regions[i]);
    free(m);
    return NULL;
}

static const struct mem_ops fake_ops = {.readv = fake_readv, .close = fake_close};

struct fake_mem *fake_mem_new(void)
{
    struct fake_mem *m = must(calloc(1, sizeof(*m)));

    m->mem.ops = &fake_ops;
    return m;
}

addr_t fake_mem_add(struct fake_mem *m, addr_t start, size_t len)
{
    struct fake_region *r = must(m->n < FAKE_MAX_REGIONS ? &m->regions[m->n] : NULL);

    *r = (struct fake_region){.start = start, .len = len};
    r->bytes = must(calloc(1, len));
    r->seen = must(calloc(1, len / 8 + 1));
    m->n++;
    return start;
}

void fake_mem_remove(struct fake_mem *m, addr_t start)
{
    struct fake_region *r = must(region_of(m, start, 1));

    region_free(r);
    *r = m->regions[--m->n];
}

addr_t fake_mem_alloc(struct fake_mem *m, addr_t start, size_t len)
{
    struct fake_region *r = must(region_of(m, start, 1));
    size_t at = (r->used + 15) & ~(size_t)15;

    must(at <= r->len && len <= r->len - at ? r : NULL);
    r->used = at + len;
    return r->start + at;
}

void *fake_mem_at(struct fake_mem *m, addr_t addr, size_t len)
{
    struct fake_region *r = must(region_of(m, addr, len));

    return r->bytes + (addr - r->start);
}

void fake_mem_put(struct fake_mem *m, addr_t addr, uint64_t value)
{
    memcpy(fake_mem_at(m, addr, sizeof(value)), &value, sizeof(value));
}

void fake_mem_put_bytes(struct fake_mem *m, addr_t addr, const void *bytes, size_t len)
{
    memcpy(fake_mem_at(m, addr, len), bytes, len);
}

uint64_t fake_mem_get(struct fake_mem *m, addr_t addr)
{
    uint64_t value;

    memcpy(&value, fake_mem_at(m, addr, sizeof(value)), sizeof(value));
    return value;
}
