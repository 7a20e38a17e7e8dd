/*
 * The memory of a live Python, in the format that snapshot.c writes. What it says can be wrong, and can be another thing at the
 * next read: if `odds` is not 0, one read in so many is changed.
 *
 *     8 bytes   seed of those changes
 *     4 bytes   odds
 *     4 bytes   length of the maps, then the text of /proc/PID/maps
 *     any number of: 8 bytes address, 4 bytes length, as many bytes of memory
 */
#include "fuzz.h"
#include "read_process.h"

#include <stdlib.h>
#include <string.h>

#define HEAD    16
#define MAX_RUN 4096 /* runs of memory in one input */

struct run {
    addr_t addr;
    const uint8_t *bytes;
    size_t len;
};

struct runs_mem {
    struct mem mem;
    struct run runs[MAX_RUN]; /* sorted by address, unless the input is damaged */
    size_t n;
    uint64_t random;
    uint32_t odds;
};

static uint64_t random_next(struct runs_mem *m)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return m->random;
}

/* The last run that begins at or before `addr`. */
static const struct run *run_at(const struct runs_mem *m, addr_t addr)
{
    size_t low = 0, high = m->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (m->runs[middle].addr <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &m->runs[low - 1] : NULL;
}

static bool copy_span(const struct runs_mem *m, const struct mem_span *span)
{
    addr_t addr = span->addr;
    uint8_t *to = span->buf;

    for (size_t left = span->len; left;) {
        const struct run *r = run_at(m, addr);
        size_t at, len;

        if (!r || addr - r->addr >= r->len)
            return false;
        at = (size_t)(addr - r->addr);
        len = r->len - at < left ? r->len - at : left;
        memcpy(to, r->bytes + at, len);
        addr += len;
        to += len;
        left -= len;
    }
    return true;
}

/* Changes a word of what was read, or replaces it by one of the values that programs forget. */
static void change_span(struct runs_mem *m, const struct mem_span *span)
{
    static const uint64_t words[] = {0, 1, UINT64_MAX, 0x7fffffff, 0x80000000, 1ull << 63, 8, 4096};
    uint64_t word = random_next(m) % 3 ? words[random_next(m) % 8] : random_next(m);
    size_t at = span->len ? random_next(m) % span->len & ~(size_t)7 : 0;

    memcpy((uint8_t *)span->buf + at, &word, span->len - at < 8 ? span->len - at : 8);
}

static size_t runs_readv(struct mem *mem, const struct mem_span *spans, size_t n)
{
    struct runs_mem *m = (struct runs_mem *)mem;

    for (size_t i = 0; i < n; i++) {
        if (!copy_span(m, &spans[i]))
            return i;
        if (m->odds && random_next(m) % m->odds == 0)
            change_span(m, &spans[i]);
    }
    return n;
}

static void find_runs(struct runs_mem *m, const uint8_t *at, const uint8_t *end)
{
    while (end - at >= 12 && m->n < MAX_RUN) {
        struct run *r = &m->runs[m->n++];
        uint32_t len;

        memcpy(&r->addr, at, 8);
        memcpy(&len, at + 8, 4);
        at += 12;
        r->bytes = at;
        r->len = len < (size_t)(end - at) ? len : (size_t)(end - at);
        at += r->len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct mem_ops ops = {.readv = runs_readv};
    static struct runs_mem m;
    const struct files files = {.root = -1};
    struct proc_maps maps;
    uint32_t n_maps;
    size_t stacks;
    char *text;

    if (size < HEAD)
        return 0;
    m = (struct runs_mem){.mem = {&ops}};
    memcpy(&m.random, data, 8);
    m.random |= 1;
    memcpy(&m.odds, data + 8, 4);
    memcpy(&n_maps, data + 12, 4);
    if (n_maps > size - HEAD)
        n_maps = (uint32_t)(size - HEAD);
    find_runs(&m, data + HEAD + n_maps, data + size);
    text = calloc(1, n_maps + 1);
    if (!text)
        return 0;
    memcpy(text, data + HEAD, n_maps);
    if (proc_maps_parse(text, &maps) < 0)
        return 0;
    stacks = read_process(&m.mem, &maps, &files, true);
    proc_maps_free(&maps);
    return stacks ? 0 : -1;
}
