/*
 * One call for a whole reading, and read-through for what it missed.
 */
#include "base/clock.h"
#include "base/err.h"
#include "base/grow.h"
#include "base/hash.h"
#include "snapshot/snapshot_private.h"
#include "snapshot/successors.h"

#include <stdlib.h>
#include <string.h>

#define NO_RANGE    SIZE_MAX
#define CALL_MAX    512  /* spans of one call; more go to the target as they are */
#define SLACK       1024 /* a block grows: fetch some more of it than was used */
#define STRIDE_MIN  8
#define STRIDE_MAX  256
#define PIECE_BYTES 2048 /* copying these takes as long as finding the memory of one piece */

static bool holds(addr_t start, size_t start_len, addr_t addr, size_t len)
{
    return addr >= start && len <= start_len && addr - start <= start_len - len;
}

/* ---- the ranges of a reading ---- */

static int add_range(struct snapshot *s, addr_t addr, size_t len, uint32_t flags)
{
    if (grow_array((void **)&s->ranges, &s->cap, s->n + 1, sizeof(*s->ranges)) < 0 ||
        grow_array((void **)&s->used, &s->cap_used, s->n + 1, sizeof(*s->used)) < 0)
        return ERR_NOMEM;
    if (flags & IS_BLOCK && s->n_blocks < BLOCKS_MAX + 1)
        s->blocks[s->n_blocks++] = s->n;
    s->ranges[s->n++] = (struct range){.addr = addr, .len = (uint32_t)len, .flags = flags, .at = NOT_READ};
    return 0;
}

/* Makes room for the bytes of ranges from `first` on; not read yet. */
static int place_ranges(struct snapshot *s, size_t first)
{
    for (size_t i = first; i < s->n; i++) {
        if (grow_array((void **)&s->bytes, &s->cap_bytes, s->len + s->ranges[i].len, 1) < 0)
            return ERR_NOMEM;
        s->ranges[i].at = s->len;
        s->len += (s->ranges[i].len + 7u) & ~(size_t)7;
    }
    return 0;
}

static void index_add(struct snapshot *s, size_t first)
{
    for (size_t i = first; i < s->n; i++)
        if (!(s->ranges[i].flags & IS_BLOCK))
            hash_table_add(&s->index, hash_mix(0, s->ranges[i].addr), (uint32_t)i);
}

/* False when out of memory: then nothing is found, and all is read anew. */
static bool build_index(struct snapshot *s)
{
    hash_table_clear(&s->index);
    s->indexed = hash_table_reserve(&s->index, s->n) == 0;
    if (s->indexed)
        index_add(s, 0);
    return s->indexed;
}

/* Ranges from `first` on are new. */
static void index_new(struct snapshot *s, size_t first)
{
    if (!s->indexed)
        return;
    s->indexed = hash_table_reserve(&s->index, s->n - first) == 0;
    if (s->indexed)
        index_add(s, first);
}

static void use(struct snapshot *s, size_t i)
{
    if (s->ranges[i].used)
        return;
    s->ranges[i].used = true;
    s->used[s->n_used++] = i;
}

/* The range that begins at `addr`, whether its bytes were read or not, or NO_RANGE. */
static size_t find_range(struct snapshot *s, addr_t addr, size_t len)
{
    size_t i = s->cursor, step = 0;
    uint32_t at;

    if (i < s->n && s->ranges[i].addr == addr && len <= s->ranges[i].len) {
        s->cursor = i + 1;
        return i;
    }
    if (!s->indexed && !build_index(s))
        return NO_RANGE;
    while ((at = hash_table_next(&s->index, hash_mix(0, addr), &step)) != HASH_TABLE_NONE)
        if (s->ranges[at].addr == addr && len <= s->ranges[at].len) {
            s->cursor = (size_t)at + 1;
            return at;
        }
    return NO_RANGE;
}

static size_t find_block(struct snapshot *s, addr_t addr, size_t len)
{
    for (size_t k = 0, b = s->at_block; k < s->n_blocks; k++, b++) {
        const struct range *r;

        b = b < s->n_blocks ? b : 0;
        r = &s->ranges[s->blocks[b]];
        if (r->at != NOT_READ && holds(r->addr, r->len, addr, len)) {
            s->at_block = b;
            return s->blocks[b];
        }
    }
    return NO_RANGE;
}

static bool is_doubled(const struct snapshot *s, size_t i)
{
    return s->half && i < s->n_planned && !(s->ranges[i].flags & SNAPSHOT_PIVOT);
}

static const unsigned char *bytes_of(const struct snapshot *s, size_t i, addr_t addr)
{
    const struct range *r = &s->ranges[i];

    return s->bytes + (is_doubled(s, i) ? s->base : 0) + r->at + (addr - r->addr);
}

/* ---- fetching ---- */

static void span_add(struct snapshot *s, size_t *n, size_t i, size_t base)
{
    s->spans[(*n)++] = (struct mem_span){s->ranges[i].addr, s->bytes + base + s->ranges[i].at, s->ranges[i].len};
}

static int fetch_twice(struct snapshot *s)
{
    uint64_t begin;
    size_t n = 0, got;

    if (place_ranges(s, 0) < 0)
        return ERR_NOMEM;
    s->half = s->len;
    if (grow_array((void **)&s->bytes, &s->cap_bytes, 2 * s->len, 1) < 0 ||
        grow_array((void **)&s->spans, &s->cap_spans, 2 * s->n, sizeof(*s->spans)) < 0)
        return ERR_NOMEM;
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < s->n; i++)
            if (!!(s->ranges[i].flags & SNAPSHOT_PIVOT) == (pass == 1))
                span_add(s, &n, i, pass == 2 ? s->half : 0);
    s->len = 2 * s->half;
    begin = clock_now_ns();
    got = n ? s->target->ops->readv(s->target, s->spans, n) : 0;
    s->took_ns = clock_now_ns() - begin;
    s->took_pieces = n + s->len / PIECE_BYTES;
    if (got == n)
        return 0;
    s->took_ns = 0;
    s->half = 0;
    return ERR_TORN;
}

/* The caller's spans, the plan and the last word, in one call. Returns how many of the caller's were read. */
static size_t fetch_once(struct snapshot *s, const struct mem_span *spans, size_t n)
{
    size_t n_all = n, got;

    if (place_ranges(s, 0) < 0 || grow_array((void **)&s->spans, &s->cap_spans, n + s->n + 1, sizeof(*s->spans)) < 0) {
        s->n = s->n_blocks = s->n_planned = 0;
        return n ? s->target->ops->readv(s->target, spans, n) : 0;
    }
    if (n)
        memcpy(s->spans, spans, n * sizeof(*spans));
    for (size_t i = 0; i < s->n; i++)
        span_add(s, &n_all, i, 0);
    if (s->last)
        s->spans[n_all++] = (struct mem_span){s->last, &s->last_value, sizeof(s->last_value)};
    got = n_all ? s->target->ops->readv(s->target, s->spans, n_all) : 0;
    s->has_last = s->last && got == n_all;
    for (size_t i = got > n ? got - n : 0; i < s->n; i++)
        s->ranges[i].at = NOT_READ;
    return got < n ? got : n;
}

static void fetch(struct snapshot *s)
{
    s->fetched = true;
    s->n_planned = s->n;
    if (s->mode == SNAPSHOT_TWICE)
        s->failed = fetch_twice(s) < 0;
    else
        fetch_once(s, NULL, 0);
}

static void drop_ranges(struct snapshot *s, size_t first)
{
    s->n = first;
    while (s->n_blocks && s->blocks[s->n_blocks - 1] >= first)
        s->n_blocks--;
}

/* Reads ranges from `first` on. False when not even the first could be. */
static bool read_through(struct snapshot *s, size_t first)
{
    size_t n = 0, got;

    s->has_last = false;
    if (place_ranges(s, first) < 0 ||
        grow_array((void **)&s->spans, &s->cap_spans, s->n - first, sizeof(*s->spans)) < 0) {
        drop_ranges(s, first);
        return false;
    }
    for (size_t i = first; i < s->n; i++)
        span_add(s, &n, i, 0);
    got = s->target->ops->readv(s->target, s->spans, n);
    drop_ranges(s, first + got);
    index_new(s, first);
    return got > 0;
}

/* ---- reading ---- */

static const unsigned char *offered(const struct snapshot *s, addr_t addr, size_t len)
{
    return s->offer_len && holds(s->offer_addr, s->offer_len, addr, len) ? s->offer + (addr - s->offer_addr) : NULL;
}

static const unsigned char *viewed(struct snapshot *s, size_t i, addr_t addr, size_t len)
{
    struct range *r = &s->ranges[i];
    size_t end = addr - r->addr + len;

    use(s, i);
    if (end > r->wanted)
        r->wanted = (uint32_t)end;
    s->last_view = i;
    return bytes_of(s, i, addr);
}

/* The view and, where the target has been here before, what came after it then: first a few, then twice as many each time, as
 * long as the prediction is right. */
static size_t add_views(struct snapshot *s, addr_t addr, size_t len, uint32_t flags)
{
    addr_t next[STRIDE_MAX];
    size_t first = s->n, n;

    if (!s->stride || s->cursor < s->batch + s->n_batch)
        s->stride = STRIDE_MIN;
    else if (s->stride < STRIDE_MAX)
        s->stride *= 2;
    /* The index must not contain a range that is dropped because it cannot be read, and find_range() may build the
     * index. So build it before adding ranges. */
    n = s->indexed || build_index(s) ? successors_follow(s->plan->next, addr, next, s->stride) : 0;
    if (add_range(s, addr, len, flags | IS_VIEW) < 0)
        return NO_RANGE;
    /* Two stacks that share a frame share everything below it. */
    for (size_t i = 0; i < n && find_range(s, next[i], len) == NO_RANGE; i++)
        if (add_range(s, next[i], len, flags | IS_VIEW) < 0)
            break;
    s->batch = first;
    s->n_batch = s->n - first;
    return first;
}

/* Reads a view into the buffer past the kept bytes. The next read overwrites it. */
static const unsigned char *view_unkept(struct snapshot *s, addr_t addr, size_t len)
{
    s->has_last = false;
    s->last_view = s->n; /* not planned */
    if (grow_array((void **)&s->bytes, &s->cap_bytes, s->len + len, 1) < 0 ||
        mem_read(s->target, addr, s->bytes + s->len, len) < 0)
        return NULL;
    return s->bytes + s->len;
}

const unsigned char *snapshot_view(struct snapshot *s, addr_t addr, size_t len, uint32_t flags)
{
    const unsigned char *bytes = offered(s, addr, len);
    struct range *r;
    size_t i;

    if (!s->fetched)
        fetch(s);
    if (s->failed)
        return NULL;
    if (bytes) {
        s->last_view = 0;
        return bytes;
    }
    i = find_block(s, addr, len);
    if (i == NO_RANGE) {
        i = find_range(s, addr, len);
        if (i != NO_RANGE && s->ranges[i].at == NOT_READ)
            i = NO_RANGE;
    }
    if (i == NO_RANGE && s->n >= RANGES_MAX)
        return view_unkept(s, addr, len);
    if (i == NO_RANGE) {
        i = add_views(s, addr, len, flags);
        if (i == NO_RANGE || !read_through(s, i))
            return NULL;
        s->cursor = i + 1;
    }
    /* A torn pointer may lead to what the plan fetches as a frame. That must stay in both copies: not a pivot from then on. */
    r = &s->ranges[i];
    r->as_pivot = (r->used ? r->as_pivot : true) && flags & SNAPSHOT_PIVOT;
    r->flags |= r->flags & IS_BLOCK ? 0 : IS_VIEW;
    return viewed(s, i, addr, len);
}

const unsigned char *snapshot_block(struct snapshot *s, addr_t addr, size_t len, uint32_t flags)
{
    size_t i;

    if (!s->fetched)
        fetch(s);
    if (s->failed || len > BLOCK_MAX || s->n_blocks > BLOCKS_MAX)
        return NULL;
    i = find_block(s, addr, len);
    if (i == NO_RANGE || s->ranges[i].addr != addr) {
        i = s->n;
        if (add_range(s, addr, len, flags | IS_BLOCK) < 0 || !read_through(s, i))
            return NULL;
    }
    s->ranges[i].wanted = (uint32_t)len;
    return viewed(s, i, addr, len);
}

void snapshot_block_may_grow(struct snapshot *s, size_t max_len)
{
    struct range *r = &s->ranges[s->last_view];

    r->wanted = (uint32_t)(r->wanted + SLACK < max_len ? r->wanted + SLACK : max_len);
}

size_t snapshot_block_len(const struct snapshot *s, addr_t addr)
{
    for (size_t b = 0; b < s->n_blocks; b++)
        if (s->ranges[s->blocks[b]].addr == addr && s->ranges[s->blocks[b]].at != NOT_READ)
            return s->ranges[s->blocks[b]].len;
    return 0;
}

static size_t read_spans(struct snapshot *s, const struct mem_span *spans, size_t n)
{
    struct mem_span rest[CALL_MAX];
    size_t places[CALL_MAX], n_rest = 0, got;

    if (n > CALL_MAX) {
        s->has_last = false;
        return s->target->ops->readv(s->target, spans, n);
    }
    for (size_t k = 0; k < n; k++) {
        const unsigned char *bytes = offered(s, spans[k].addr, spans[k].len);
        size_t i = bytes ? NO_RANGE : find_range(s, spans[k].addr, spans[k].len);

        if (!bytes && i == NO_RANGE) {
            i = find_block(s, spans[k].addr, spans[k].len);
            if (i != NO_RANGE)
                bytes = bytes_of(s, i, spans[k].addr);
        } else if (!bytes) {
            use(s, i);
            bytes = s->ranges[i].at == NOT_READ ? NULL : bytes_of(s, i, spans[k].addr);
        }
        if (bytes) {
            memcpy(spans[k].buf, bytes, spans[k].len);
            continue;
        }
        places[n_rest] = k;
        rest[n_rest++] = spans[k];
        if (i == NO_RANGE && spans[k].len <= READS_LEN && s->n < RANGES_MAX &&
            add_range(s, spans[k].addr, spans[k].len, IS_READ) == 0) {
            use(s, s->n - 1);
            index_new(s, s->n - 1);
        }
    }
    if (!n_rest)
        return n;
    s->has_last = false;
    got = s->target->ops->readv(s->target, rest, n_rest);
    return got < n_rest ? places[got] : n;
}

static size_t snapshot_readv(struct mem *m, const struct mem_span *spans, size_t n)
{
    struct snapshot *s = (struct snapshot *)m;

    if (!s->plan || s->mode == SNAPSHOT_TWICE)
        return s->target->ops->readv(s->target, spans, n);
    if (s->fetched)
        return read_spans(s, spans, n);
    s->fetched = true;
    s->n_planned = s->n;
    return fetch_once(s, spans, n);
}

static struct mem *snapshot_close(struct mem *m)
{
    snapshot_free((struct snapshot *)m);
    return NULL;
}

static size_t snapshot_set_maps(struct mem *m, const struct proc_maps *maps)
{
    return mem_set_maps(((struct snapshot *)m)->target, maps);
}

static bool snapshot_answers(struct mem *m)
{
    return mem_answers(((struct snapshot *)m)->target);
}

static const struct mem_ops snapshot_ops = {
    .readv = snapshot_readv, .close = snapshot_close, .set_maps = snapshot_set_maps, .answers = snapshot_answers};

int snapshot_new(struct mem *target, bool owns, struct snapshot **ret)
{
    struct snapshot *s = calloc(1, sizeof(*s));

    if (!s) {
        if (owns)
            mem_close(target);
        return ERR_NOMEM;
    }
    s->owns_target = owns;
    s->mem.ops = &snapshot_ops;
    s->target = target;
    *ret = s;
    return 0;
}

struct snapshot *snapshot_free(struct snapshot *s)
{
    if (!s)
        return NULL;
    if (s->owns_target)
        mem_close(s->target);
    free(s->ranges);
    free(s->used);
    hash_table_free(&s->index);
    free(s->bytes);
    free(s->spans);
    free(s);
    return NULL;
}

struct mem *snapshot_mem(struct snapshot *s)
{
    return &s->mem;
}

void snapshot_begin(struct snapshot *s, struct read_plan *plan, enum snapshot_mode mode, addr_t last)
{
    s->plan = plan;
    s->mode = mode;
    s->last = last;
    s->fetched = s->failed = s->indexed = s->has_last = false;
    s->n = s->n_planned = s->n_blocks = s->at_block = s->n_used = s->len = s->half = s->base = 0;
    s->last_view = s->stride = s->batch = s->n_batch = s->offer_len = 0;
    s->took_ns = 0;
    for (size_t i = 0; i < plan->n; i++)
        if (!(mode == SNAPSHOT_TWICE && plan->items[i].flags & IS_READ) &&
            add_range(s, plan->items[i].addr, plan->items[i].len, plan->items[i].flags) < 0)
            break;
    s->cursor = s->n_blocks;
}

void snapshot_expect(struct snapshot *s, addr_t addr, size_t len)
{
    add_range(s, addr, len, IS_READ | IS_ONCE);
}

void snapshot_offer(struct snapshot *s, addr_t addr, const void *bytes, size_t len)
{
    s->offer_addr = addr;
    s->offer = bytes;
    s->offer_len = len;
}

bool snapshot_was_planned(const struct snapshot *s)
{
    return s->last_view < s->n_planned;
}

bool snapshot_is_twice(const struct snapshot *s)
{
    return s->plan && s->mode == SNAPSHOT_TWICE;
}

bool snapshot_has_failed(const struct snapshot *s)
{
    return s->failed;
}

bool snapshot_is_doubled(const struct snapshot *s)
{
    return is_doubled(s, s->last_view);
}

void snapshot_select(struct snapshot *s, int copy)
{
    s->base = copy ? s->half : 0;
    s->cursor = s->n_blocks;
}

bool snapshot_both(struct snapshot *s, addr_t addr, size_t len, const unsigned char *ret[2])
{
    size_t i = s->half ? find_block(s, addr, len) : NO_RANGE;

    if (i == NO_RANGE && s->half)
        i = find_range(s, addr, len);
    if (i == NO_RANGE || !is_doubled(s, i))
        return false;
    ret[0] = s->bytes + s->ranges[i].at + (addr - s->ranges[i].addr);
    ret[1] = ret[0] + s->half;
    return true;
}

uint64_t snapshot_took_ns(const struct snapshot *s, size_t *ret_pieces)
{
    *ret_pieces = s->took_pieces;
    return s->half ? s->took_ns : 0;
}

int snapshot_read_last(struct snapshot *s, uint32_t *ret)
{
    if (s->has_last) {
        *ret = s->last_value;
        return 0;
    }
    return mem_read(s->target, s->last, ret, sizeof(*ret));
}

int snapshot_read_aside(struct snapshot *s, addr_t addr, void *ret, size_t len)
{
    s->has_last = false;
    return mem_read(s->target, addr, ret, len);
}
