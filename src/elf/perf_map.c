/*
 * Parses perf maps. A JIT that reuses memory appends a new line and leaves the old one, so among the lines that
 * contain an address the last one is valid.
 */
#include "elf/perf_map.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/intern.h"
#include "base/utf8.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX ((size_t)4 << 20)
#define NAME_BYTES  2048

struct entry {
    addr_t start, end;
    const char *name;
};

struct perf_map {
    struct entry *entries; /* sorted, without overlaps */
    size_t n, cap;
    struct intern *names;
};

struct perf_map *perf_map_free(struct perf_map *m)
{
    if (!m)
        return NULL;
    free(m->entries);
    intern_free(m->names);
    free(m);
    return NULL;
}

/* Parses a hexadecimal number, with or without 0x, and the blanks after it. */
static bool parse_hex(const char **s, const char *end, uint64_t *ret)
{
    const char *at = *s;
    uint64_t value = 0;
    int digits = 0;

    if (end - at > 2 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X'))
        at += 2;
    for (; at < end && digits <= 16; at++, digits++) {
        char c = *at;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;

        if (digit < 0)
            break;
        value = value << 4 | (uint64_t)digit;
    }
    if (digits == 0 || digits > 16 || at == end || (*at != ' ' && *at != '\t'))
        return false;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    *s = at;
    *ret = value;
    return true;
}

static int add_line(struct perf_map *m, const char *s, const char *end)
{
    char clean[3 * NAME_BYTES];
    uint64_t start, size;
    size_t len;
    const char *name;

    if (!parse_hex(&s, end, &start) || !parse_hex(&s, end, &size) || size == 0 || size > UINT64_MAX - start)
        return 0;
    while (end > s && (end[-1] == '\r' || end[-1] == ' '))
        end--;
    if (s == end)
        return 0;
    len = utf8_clean(s, (size_t)(end - s) < NAME_BYTES ? (size_t)(end - s) : NAME_BYTES, clean);
    name = intern_bytes(m->names, clean, len);
    if (!name || grow_array((void **)&m->entries, &m->cap, m->n + 1, sizeof(*m->entries)) < 0)
        return ERR_NOMEM;
    m->entries[m->n++] = (struct entry){start, start + size, name};
    return 0;
}

static int read_lines(struct perf_map *m, const char *s, const char *end)
{
    while (s < end && m->n < ENTRIES_MAX) {
        const char *newline = memchr(s, '\n', (size_t)(end - s));

        if (!newline)
            break; /* the JIT is still writing this line */
        if (add_line(m, s, newline) < 0)
            return ERR_NOMEM;
        s = newline + 1;
    }
    return 0;
}

/* The start or end of an entry. */
struct edge {
    addr_t at;
    uint32_t entry;
};

static int compare_edges(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;

    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

/* A heap of entries, the latest on top. */
struct heap {
    uint32_t *items;
    size_t n;
};

static void heap_push(struct heap *h, uint32_t value)
{
    size_t i = h->n++;

    for (; i && h->items[(i - 1) / 2] < value; i = (i - 1) / 2)
        h->items[i] = h->items[(i - 1) / 2];
    h->items[i] = value;
}

static void heap_pop(struct heap *h)
{
    uint32_t value = h->items[--h->n];
    size_t i = 0;

    for (size_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->items[child + 1] > h->items[child])
            child++;
        if (h->items[child] <= value)
            break;
        h->items[i] = h->items[child];
    }
    h->items[i] = value;
}

/* Visits all starts and ends in order of address. Between two of them, the latest of the open entries has the name. */
static void sweep(struct perf_map *m, const struct entry *old, const struct edge *edges, size_t n, struct heap *open)
{
    addr_t from = 0;

    for (size_t i = 0; i < n; i++) {
        addr_t to = edges[i].at;

        if (open->n && from != to) {
            struct entry *last = m->n ? &m->entries[m->n - 1] : NULL;
            const char *name = old[open->items[0]].name;

            if (last && last->end == from && last->name == name)
                last->end = to;
            else
                m->entries[m->n++] = (struct entry){from, to, name};
        }
        from = to;
        if (from == old[edges[i].entry].start)
            heap_push(open, edges[i].entry);
        while (open->n && old[open->items[0]].end <= from)
            heap_pop(open);
    }
}

static int flatten(struct perf_map *m)
{
    size_t n = m->n;
    struct entry *old = m->entries;
    struct edge *edges = malloc((2 * n + 1) * sizeof(*edges));
    struct heap open = {malloc((n + 1) * sizeof(uint32_t)), 0};

    m->entries = malloc((2 * n + 1) * sizeof(*m->entries));
    m->n = m->cap = 0;
    if (edges && open.items && m->entries) {
        for (size_t i = 0; i < n; i++) {
            edges[2 * i] = (struct edge){old[i].start, (uint32_t)i};
            edges[2 * i + 1] = (struct edge){old[i].end, (uint32_t)i};
        }
        qsort(edges, 2 * n, sizeof(*edges), compare_edges);
        sweep(m, old, edges, 2 * n, &open);
    }
    n = edges && open.items && m->entries;
    free(edges);
    free(open.items);
    free(old);
    return n ? 0 : ERR_NOMEM;
}

struct perf_map *perf_map_new(const char *text, size_t len)
{
    struct perf_map *m = calloc(1, sizeof(*m));

    if (!m)
        return NULL;
    m->names = intern_new();
    if (!m->names || read_lines(m, text, text + len) < 0 || flatten(m) < 0)
        return perf_map_free(m);
    return m;
}

const char *perf_map_find(const struct perf_map *m, addr_t pc)
{
    size_t low = 0, high = m->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (m->entries[middle].start <= pc)
            low = middle + 1;
        else
            high = middle;
    }
    return low && pc < m->entries[low - 1].end ? m->entries[low - 1].name : NULL;
}
