/*
 * Searches memory for objects whose type is one of the greenlet types.
 *
 * The allocator of Python keeps objects of equal size together, in pools with a header that says how large they are
 * (Objects/obmalloc.c). Pools of other sizes are skipped. Memory without such a header is searched word by word.
 */
#include "python/greenlets.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK         (256 * 1024)
#define POOLS_MAX     (CHUNK / 4096)
#define HEADER        48
#define RUNS_MAX      256
#define PAGE          4096
#define CPU_BUDGET_NS (2 * NS_PER_S)
#define FILTER_BITS   65536u
#define SMALL_MAX     512 /* SMALL_REQUEST_THRESHOLD: larger objects are not in pools */

/* struct pool_header: the same in 2.7 and in 3.15. */
struct pool {
    uint32_t used, padding;
    addr_t free, next, previous;
    uint32_t arena, size_class, next_offset, last_offset;
};

struct search {
    const struct python *py;
    const struct greenlet_types *types;
    struct greenlets_found *found;
    size_t pool;                           /* size of a pool */
    size_t step;                           /* words from one place where an object may be to the next */
    bool wanted[SMALL_MAX / 8 + 1];        /* by the size of the blocks / 8: these pools may have greenlets */
    unsigned char filter[FILTER_BITS / 8]; /* by a part of a type's address */
    uint64_t deadline_ns;                  /* on the clock of clock_cpu_ns() */
    struct mem_span runs[RUNS_MAX];        /* to be read into `bytes` */
    size_t n_runs, used;
    uint64_t bytes[CHUNK / 8];
    struct pool headers[POOLS_MAX];
};

static uint32_t filter_key(addr_t type)
{
    return (uint32_t)(type >> 4) % FILTER_BITS;
}

static bool is_type(const struct search *s, addr_t word)
{
    uint32_t key = filter_key(word);

    if (!(s->filter[key / 8] >> key % 8 & 1))
        return false;
    for (size_t i = 0; i < s->types->n; i++)
        if (s->types->items[i] == word)
            return true;
    return false;
}

/* PyGC_Head is in front of the object: 16 bytes since 3.8, 24 or 32 before. Blocks are multiples of 16 bytes since 3.8, of 8 in earlier
 * versions. */
static void want_types(struct search *s)
{
    size_t least = s->step == 2 ? 16 : 24, most = s->step == 2 ? 16 : 32;

    for (size_t i = 0; i < s->types->n; i++) {
        uint32_t key = filter_key(s->types->items[i]);

        s->filter[key / 8] |= (unsigned char)(1u << key % 8);
        for (size_t before = least; before <= most; before += 8) {
            size_t size = s->types->sizes[i] + before;

            if (size > SMALL_MAX)
                continue;
            s->wanted[(size + 7) / 8] = true;
            s->wanted[(size + 15) / 16 * 2] = true;
        }
    }
}

/* True if there is a pool at `at`, with blocks that are too small or too large. */
static bool is_other_pool(const struct search *s, const struct pool *p, addr_t at)
{
    size_t size = s->pool - p->last_offset, blocks = (size_t)p->size_class + 1;

    if (p->last_offset >= s->pool || size > SMALL_MAX || (size != blocks * 8 && size != blocks * 16))
        return false;
    if (p->used > (s->pool - HEADER) / size || p->next_offset > s->pool || p->next_offset < HEADER + size ||
        (p->free && p->free - at >= s->pool) || !p->next || !p->previous || ((p->next | p->previous) & 7))
        return false;
    return !s->wanted[size / 8];
}

static int add(struct search *s, addr_t object)
{
    struct greenlets_found *f = s->found;

    if (grow_array((void **)&f->items, &f->cap, f->n + 1, sizeof(*f->items)) < 0)
        return ERR_NOMEM;
    f->items[f->n++] = object;
    return 0;
}

/* ob_type is the second word of an object. */
static int search_bytes(struct search *s, addr_t at, const uint64_t *words, size_t len)
{
    size_t n = len / 8;
    int r = 0;

    for (size_t i = 1; i < n && r == 0; i += s->step)
        if (is_type(s, words[i]) && s->found->n < GREENLETS_MAX)
            r = add(s, at + i * 8 - 8);
    return r;
}

/* Some of it has been unmapped, or is not in the core file. */
static void read_pages(const struct search *s, const struct mem_span *run)
{
    for (size_t at = 0; at < run->len; at += PAGE) {
        char *to = (char *)run->buf + at;

        if (mem_read(s->py->mem, run->addr + at, to, PAGE) < 0)
            memset(to, 0, PAGE);
    }
}

/* Reads and searches the runs that were collected. */
static int flush(struct search *s)
{
    int r = 0;

    for (size_t done = 0, got; done < s->n_runs && r == 0; done += got) {
        got = mem_readv(s->py->mem, s->runs + done, s->n_runs - done);
        if (!got) {
            read_pages(s, &s->runs[done]);
            got = 1;
        }
        for (size_t i = done; i < done + got && r == 0; i++)
            r = search_bytes(s, s->runs[i].addr, s->runs[i].buf, s->runs[i].len);
    }
    s->n_runs = s->used = 0;
    return r;
}

/* Collects a run, at most CHUNK bytes: one call of the kernel reads many. */
static int search_run(struct search *s, addr_t at, size_t len)
{
    int r = s->n_runs == RUNS_MAX || s->used + len > CHUNK ? flush(s) : 0;

    s->runs[s->n_runs++] = (struct mem_span){at, s->bytes + s->used / 8, len};
    s->used += len;
    return r;
}

/* A chunk begins and ends at a multiple of a page. Only its whole pools can be skipped. */
static int search_chunk(struct search *s, addr_t at, size_t len)
{
    struct mem_span spans[POOLS_MAX];
    addr_t first = (at + s->pool - 1) / s->pool * s->pool, run = at;
    size_t n = first - at < len ? (len - (first - at)) / s->pool : 0;
    int r = 0;

    for (size_t i = 0; i < n; i++)
        spans[i] = (struct mem_span){first + i * s->pool, &s->headers[i], sizeof(s->headers[i])};
    n = n ? mem_readv(s->py->mem, spans, n) : 0;
    for (size_t i = 0; i < n && r == 0; i++) {
        addr_t pool = first + i * s->pool;

        if (!is_other_pool(s, &s->headers[i], pool))
            continue;
        if (pool > run)
            r = search_run(s, run, pool - run);
        run = pool + s->pool;
    }
    return r == 0 && run < at + len ? search_run(s, run, at + len - run) : r;
}

static int compare(const void *a, const void *b)
{
    const addr_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static int search_ranges(struct search *s, const struct addr_ranges *ranges)
{
    s->found->total = ranges->bytes;
    for (size_t i = 0; i < ranges->n; i++) {
        addr_t at = ranges->items[i].start, end = ranges->items[i].end;

        while (at < end) {
            size_t len = end - at < CHUNK ? (size_t)(end - at) : CHUNK;
            int r;

            if (clock_cpu_ns() > s->deadline_ns || s->found->n == GREENLETS_MAX)
                return flush(s);
            r = search_chunk(s, at, len);
            if (r < 0)
                return r;
            s->found->searched += len;
            at += len;
        }
    }
    return flush(s);
}

int greenlets_search(const struct python *py, const struct greenlet_types *types, const struct addr_ranges *ranges,
                     struct greenlets_found *ret)
{
    struct search *s = calloc(1, sizeof(*s));
    int r;

    *ret = (struct greenlets_found){0};
    if (!s)
        return ERR_NOMEM;
    s->py = py;
    s->types = types;
    s->found = ret;
    s->pool = py->major == 3 && py->minor >= 10 ? 16384 : 4096; /* POOL_BITS */
    s->step = py->major == 3 && py->minor >= 8 ? 2 : 1;
    s->deadline_ns = clock_cpu_ns() + CPU_BUDGET_NS;
    want_types(s);
    r = search_ranges(s, ranges);
    if (ret->n)
        qsort(ret->items, ret->n, sizeof(*ret->items), compare);
    free(s);
    return r;
}

void greenlets_found_free(struct greenlets_found *found)
{
    free(found->items);
    *found = (struct greenlets_found){0};
}
