/*
 * Calls for memory -> fewer calls. Called for each stack; wraps the live reader of a process.
 */
#include "target/ahead.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

#define AHEAD_CALL 512 /* spans of one call; more are passed on as they are */

struct ahead {
    struct mem mem;
    struct mem *inner;
    struct ahead_list *list; /* NULL outside of begin and end */
    struct ahead_list guess;
    addr_t last;
    uint32_t last_value;
    size_t n_noted;             /* of the guess, those of the list; the others are expected this once */
    bool called;                /* since begin */
    bool has_last;              /* and nothing was read after it */
    size_t n_copies, cursor;    /* of the guess, those that were read; where to look next */
    size_t found;               /* where the last answer was */
    size_t places[AHEAD_SPANS]; /* of each in `bytes` */
    addr_t offer_at;
    const unsigned char *offer;
    size_t offer_len;
    unsigned char bytes[AHEAD_BYTES];
};

static void note(struct ahead_list *list, const struct mem_span *span)
{
    if (list->n == AHEAD_SPANS || span->len > AHEAD_BYTES - list->bytes)
        return;
    list->items[list->n].addr = span->addr;
    list->items[list->n++].len = (uint32_t)span->len;
    list->bytes += span->len;
}

static void copies_spans(struct ahead *a, struct mem_span *spans)
{
    size_t at = 0;

    for (size_t i = 0; i < a->guess.n; i++) {
        spans[i] = (struct mem_span){a->guess.items[i].addr, a->bytes + at, a->guess.items[i].len};
        a->places[i] = at;
        at += a->guess.items[i].len;
    }
}

/* All that is asked for, all that was asked for the last time, and the last word, in one call. */
static size_t first_call(struct ahead *a, const struct mem_span *spans, size_t n)
{
    struct mem_span all[2 * AHEAD_SPANS + 1];
    size_t n_all = n + a->guess.n, got;

    if (n > AHEAD_SPANS)
        return a->inner->ops->readv(a->inner, spans, n);
    memcpy(all, spans, n * sizeof(*spans));
    copies_spans(a, all + n);
    if (a->last)
        all[n_all++] = (struct mem_span){a->last, &a->last_value, sizeof(a->last_value)};
    got = a->inner->ops->readv(a->inner, all, n_all);
    a->has_last = a->last && got == n_all;
    if (got <= n)
        return got;
    a->n_copies = got - n < a->guess.n ? got - n : a->guess.n;
    return n;
}

/* The same questions come in the same order: where the last answer was is where to look first. */
static const unsigned char *find_copy(struct ahead *a, const struct mem_span *span)
{
    for (size_t k = 0; k < a->n_copies; k++) {
        size_t i = a->cursor + k < a->n_copies ? a->cursor + k : a->cursor + k - a->n_copies;

        if (a->guess.items[i].addr == span->addr && a->guess.items[i].len == span->len) {
            a->found = i;
            a->cursor = i + 1 < a->n_copies ? i + 1 : 0;
            return a->bytes + a->places[i];
        }
    }
    return NULL;
}

static const unsigned char *find_offered(const struct ahead *a, const struct mem_span *span)
{
    if (span->addr < a->offer_at || span->len > a->offer_len || span->addr - a->offer_at > a->offer_len - span->len)
        return NULL;
    return a->offer + (span->addr - a->offer_at);
}

/* What is there is answered; gives the number of those that are left, and where each was. */
static size_t answer(struct ahead *a, const struct mem_span *spans, size_t n, struct mem_span *left, size_t *places)
{
    size_t n_left = 0;

    for (size_t i = 0; i < n; i++) {
        const unsigned char *copy = find_offered(a, &spans[i]);

        if (!copy) {
            copy = find_copy(a, &spans[i]);
            if (!copy || a->found < a->n_noted)
                note(a->list, &spans[i]);
        }
        if (copy) {
            memcpy(spans[i].buf, copy, spans[i].len);
        } else {
            places[n_left] = i;
            left[n_left++] = spans[i];
        }
    }
    return n_left;
}

/* All but what is there already, in one call at most. */
static size_t next_call(struct ahead *a, const struct mem_span *spans, size_t n)
{
    struct mem_span left[AHEAD_CALL];
    size_t places[AHEAD_CALL], n_left, got;

    n_left = n <= AHEAD_CALL ? answer(a, spans, n, left, places) : n;
    if (n_left == 0)
        return n;
    a->has_last = false;
    if (n > AHEAD_CALL)
        return a->inner->ops->readv(a->inner, spans, n);
    got = a->inner->ops->readv(a->inner, left, n_left);
    return got < n_left ? places[got] : n;
}

static size_t ahead_readv(struct mem *m, const struct mem_span *spans, size_t n)
{
    struct ahead *a = (struct ahead *)m;

    if (!a->list)
        return a->inner->ops->readv(a->inner, spans, n);
    if (a->called)
        return next_call(a, spans, n);
    a->called = true;
    return first_call(a, spans, n);
}

static struct mem *ahead_close(struct mem *m)
{
    ahead_free((struct ahead *)m);
    return NULL;
}

static const struct mem_ops ahead_ops = {.readv = ahead_readv, .close = ahead_close};

int ahead_new(struct mem *inner, struct ahead **ret)
{
    struct ahead *a = calloc(1, sizeof(*a));

    if (!a) {
        mem_close(inner);
        return ERR_NOMEM;
    }
    a->mem.ops = &ahead_ops;
    a->inner = inner;
    *ret = a;
    return 0;
}

struct ahead *ahead_free(struct ahead *a)
{
    if (a)
        mem_close(a->inner);
    free(a);
    return NULL;
}

struct mem *ahead_mem(struct ahead *a)
{
    return &a->mem;
}

void ahead_begin(struct ahead *a, struct ahead_list *list, addr_t last)
{
    memcpy(a->guess.items, list->items, list->n * sizeof(list->items[0]));
    a->guess.n = a->n_noted = list->n;
    a->guess.bytes = list->bytes;
    a->list = list;
    a->last = last;
    a->n_copies = a->cursor = a->offer_len = 0;
    a->called = a->has_last = false;
    list->n = list->bytes = 0;
}

void ahead_expect(struct ahead *a, addr_t addr, size_t len)
{
    note(&a->guess, &(struct mem_span){addr, NULL, len});
}

void ahead_end(struct ahead *a)
{
    a->list = NULL;
}

void ahead_offer(struct ahead *a, addr_t at, const void *bytes, size_t len)
{
    a->offer_at = at;
    a->offer = bytes;
    a->offer_len = len;
}

int ahead_read_last(struct ahead *a, uint32_t *ret)
{
    if (a->has_last) {
        *ret = a->last_value;
        return 0;
    }
    return mem_read(a->inner, a->last, ret, sizeof(*ret));
}
