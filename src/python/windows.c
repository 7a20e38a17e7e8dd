/*
 * Copies of a target's memory. Called by frames.c for every stack: the number of pieces is what a reading costs.
 */
#include "python/windows.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

#define MISSES_MAX  64   /* a stack that has moved altogether is not looked for in every old place, */
#define MISSES_LONG 2048 /* and less often where there are so many */
#define PIECE_BYTES 2048 /* to copy these takes as long as to find the memory */

void windows_clear(struct windows *w)
{
    w->used = w->n = w->n_chunks = w->n_copied = w->half = w->base = 0;
    w->n_hinted = w->n_fetched = w->used_fetched = w->found = w->at_chunk = w->at_extra = w->misses = 0;
}

void windows_free(struct windows *w)
{
    free(w->bytes);
    free(w->items);
    free(w->spans);
    *w = (struct windows){0};
}

int windows_add(struct windows *w, addr_t start, size_t len)
{
    if (grow_array((void **)&w->items, &w->cap, w->n + 1, sizeof(*w->items)) < 0 ||
        grow_array((void **)&w->bytes, &w->cap_bytes, w->used + len, 1) < 0)
        return ERR_NOMEM;
    w->items[w->n++] = (struct window){.start = start, .len = len, .at = w->used};
    w->used += (len + 7) & ~(size_t)7;
    return 0;
}

static void span_add(struct windows *w, size_t *n, size_t window, size_t base)
{
    const struct window *win = &w->items[window];

    w->spans[(*n)++] = (struct mem_span){win->start, w->bytes + base + win->at, win->len};
}

int windows_read(struct windows *w, struct mem *m, size_t first)
{
    size_t n = 0;

    if (grow_array((void **)&w->spans, &w->cap_spans, w->n - first, sizeof(*w->spans)) < 0)
        return ERR_NOMEM;
    for (size_t i = first; i < w->n; i++)
        span_add(w, &n, i, 0);
    w->n = first + mem_readv(m, w->spans, n);
    return 0;
}

int windows_read_twice(struct windows *w, struct mem *m)
{
    uint64_t begin;
    size_t n = 0, got;

    w->half = w->used;
    if (grow_array((void **)&w->spans, &w->cap_spans, 2 * w->n, sizeof(*w->spans)) < 0 ||
        grow_array((void **)&w->bytes, &w->cap_bytes, 2 * w->half, 1) < 0)
        return ERR_NOMEM;
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < w->n; i++)
            if (w->items[i].once == (pass == 1))
                span_add(w, &n, i, pass == 2 ? w->half : 0);
    w->used = 2 * w->half;
    begin = clock_now_ns();
    got = mem_readv(m, w->spans, n);
    w->took_ns = clock_now_ns() - begin;
    w->took_pieces = n + w->used / PIECE_BYTES;
    if (got < n) {
        w->n = 0;
        return ERR_TORN;
    }
    w->n_copied = w->n;
    return 0;
}

void windows_keep(struct windows *w)
{
    w->n_hinted = w->n_fetched = w->n;
    w->used_fetched = w->used;
}

static bool holds(const struct window *win, addr_t addr, size_t len)
{
    return addr >= win->start && addr - win->start <= win->len && len <= win->len - (addr - win->start);
}

const unsigned char *windows_bytes(const struct windows *w, size_t i, addr_t addr, size_t len)
{
    const struct window *win = &w->items[i];

    if (!holds(win, addr, len))
        return NULL;
    return w->bytes + (i < w->n_copied && !win->once ? w->base : 0) + win->at + (addr - win->start);
}

/* Frames follow each other in the chunks and in the list of the others: where the last one was comes first. */
const unsigned char *windows_find(struct windows *w, addr_t addr, size_t len)
{
    const unsigned char *bytes;

    for (size_t k = 0, i = w->at_chunk; k < w->n_chunks; k++, i++) {
        i = i < w->n_chunks ? i : 0;
        if ((bytes = windows_bytes(w, i, addr, len))) {
            w->at_chunk = w->found = i;
            return bytes;
        }
    }
    for (size_t k = 0, i = w->at_extra, n = w->n_fetched - w->n_chunks; k < n && (k == 0 || w->misses < MISSES_MAX);
         k++, i++) {
        i = i < n ? i : 0;
        if ((bytes = windows_bytes(w, w->n_chunks + i, addr, len))) {
            w->at_extra = i + 1;
            w->found = w->n_chunks + i;
            w->misses = 0;
            return bytes;
        }
    }
    w->misses += 1 + (w->n_fetched - w->n_chunks) / MISSES_LONG;
    return NULL;
}

const unsigned char *windows_fetch(struct windows *w, struct mem *m, addr_t addr, size_t len)
{
    const unsigned char *bytes = windows_find(w, addr, len);

    return bytes ? bytes : windows_fetch_one(w, m, addr, len);
}

const unsigned char *windows_fetch_one(struct windows *w, struct mem *m, addr_t addr, size_t len)
{
    w->n = w->found = w->n_fetched;
    w->used = w->used_fetched;
    if (windows_add(w, addr, len) < 0 || windows_read(w, m, w->n_fetched) < 0 || w->n == w->n_fetched)
        return NULL;
    return windows_bytes(w, w->n_fetched, addr, len);
}

static bool is_there(const struct windows *w, addr_t addr, size_t len)
{
    for (size_t i = w->n_chunks; i < w->n_fetched; i++)
        if (holds(&w->items[i], addr, len))
            return true;
    return false;
}

size_t windows_count_new(const struct windows *w, const addr_t *addrs, size_t n, size_t len)
{
    size_t low = 0;

    while (low < n && w->n_fetched - w->n_chunks < MISSES_LONG) {
        size_t mid = low + (n - low) / 2;

        if (is_there(w, addrs[mid], len))
            n = mid;
        else
            low = mid + 1;
    }
    return n;
}

const unsigned char *windows_fetch_all(struct windows *w, struct mem *m, const addr_t *addrs, size_t n, size_t len)
{
    size_t first = w->n_fetched;

    w->n = first;
    w->used = w->used_fetched;
    for (size_t i = 0; i < n; i++)
        if (windows_add(w, addrs[i], len) < 0)
            return NULL;
    if (windows_read(w, m, first) < 0 || w->n == first)
        return NULL;
    w->n_fetched = w->n;
    w->used_fetched = w->used;
    w->found = first;
    w->at_extra = first + 1 - w->n_chunks;
    return windows_bytes(w, first, addrs[0], len);
}

bool windows_find_copies(const struct windows *w, addr_t addr, size_t len, size_t *at, const unsigned char *ret[2])
{
    /* Who goes from the root inward finds the next one before the last. */
    if (*at && *at < w->n_copied && !w->items[*at - 1].once && holds(&w->items[*at - 1], addr, len))
        --*at;
    for (size_t k = 0; k < w->n_copied; k++, *at = *at + 1 < w->n_copied ? *at + 1 : 0) {
        const struct window *win = &w->items[*at];

        if (win->once || !holds(win, addr, len))
            continue;
        ret[0] = w->bytes + win->at + (addr - win->start);
        ret[1] = ret[0] + w->half;
        return true;
    }
    return false;
}
