/*
 * Reads /proc/PID/pagemap. The kernel shows to everyone who may read it which pages are present, though not where.
 */
#include "target/resident.h"

#include "base/err.h"
#include "base/grow.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE         4096u
#define PAGES        8192
#define PAGES_MAX    (64ull << 20)       /* 256 GB of address space */
#define PAGE_PRESENT ((uint64_t)1 << 63) /* Documentation/admin-guide/mm/pagemap.rst in the kernel */

struct resident {
    struct addr_ranges *ranges;
    int pagemap; /* -1: not available */
    uint64_t pages_left;
    uint64_t entries[PAGES];
};

static int add(struct addr_ranges *ranges, addr_t start, addr_t end)
{
    struct addr_range *last = ranges->n ? &ranges->items[ranges->n - 1] : NULL;

    ranges->bytes += end - start;
    if (last && last->end == start) {
        last->end = end;
        return 0;
    }
    if (grow_array((void **)&ranges->items, &ranges->cap, ranges->n + 1, sizeof(*ranges->items)) < 0)
        return ERR_NOMEM;
    ranges->items[ranges->n++] = (struct addr_range){start, end};
    return 0;
}

/* The pages of one read of pagemap. Returns how many, or an error. */
static ssize_t add_pages(struct resident *r, addr_t start, addr_t end)
{
    size_t want = (end - start) / PAGE < PAGES ? (size_t)((end - start) / PAGE) : PAGES, from = 0;
    ssize_t got = pread(r->pagemap, r->entries, want * 8, (off_t)(start / PAGE * 8));
    size_t n = got > 0 ? (size_t)got / 8 : 0;

    for (size_t i = 0; i <= n; i++) {
        if (i < n && (r->entries[i] & PAGE_PRESENT))
            continue;
        if (i > from && add(r->ranges, start + from * PAGE, start + i * PAGE) < 0)
            return ERR_NOMEM;
        from = i + 1;
    }
    return (ssize_t)n;
}

static int add_map(struct resident *r, const struct proc_map *map)
{
    if (r->pagemap < 0)
        return add(r->ranges, map->start, map->end);
    for (addr_t at = map->start; at < map->end;) {
        ssize_t n = r->pages_left ? add_pages(r, at, map->end) : 0;

        if (n < 0)
            return (int)n;
        if (n == 0) {
            r->ranges->cut = true;
            return 0;
        }
        r->pages_left -= (uint64_t)n < r->pages_left ? (uint64_t)n : r->pages_left;
        at += (addr_t)n * PAGE;
    }
    return 0;
}

/* Leaves out the stack of the main thread, and what only the kernel writes. */
static bool is_heap(const struct proc_map *map)
{
    return map->readable && map->writable && !map->inode && map->end <= INT64_MAX &&
           !((map->start | map->end) % PAGE) &&
           (!*map->path || strcmp(map->path, "[heap]") == 0 || strncmp(map->path, "[anon", 5) == 0);
}

static int compare(const void *a, const void *b)
{
    const struct proc_map *const *x = a, *const *y = b;
    uint64_t m = (*x)->end - (*x)->start, n = (*y)->end - (*y)->start;

    if (m != n)
        return m < n ? -1 : 1;
    return (*x)->start < (*y)->start ? -1 : (*x)->start > (*y)->start;
}

static int read_sorted(struct resident *r, const struct proc_maps *maps, const struct proc_map **sorted)
{
    size_t n = 0;
    int result = 0;

    for (size_t i = 0; i < maps->n; i++)
        if (is_heap(&maps->items[i]))
            sorted[n++] = &maps->items[i];
    if (n)
        qsort(sorted, n, sizeof(const struct proc_map *), compare);
    for (size_t i = 0; i < n && result == 0; i++)
        result = add_map(r, sorted[i]);
    return result;
}

int resident_read(pid_t pid, const struct proc_maps *maps, struct addr_ranges *ret)
{
    struct resident *r = malloc(sizeof(*r));
    const struct proc_map **sorted = calloc(maps->n + 1, sizeof(const struct proc_map *));
    char path[64];
    int result = ERR_NOMEM;

    ret->n = 0;
    ret->bytes = 0;
    ret->cut = false;
    if (r && sorted) {
        r->ranges = ret;
        r->pages_left = PAGES_MAX;
        snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)(pid ? proc_live_thread(pid) : 0));
        r->pagemap = pid ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        result = read_sorted(r, maps, sorted);
        if (r->pagemap >= 0)
            close(r->pagemap);
    }
    free(sorted);
    free(r);
    return result;
}

void resident_free(struct addr_ranges *ranges)
{
    free(ranges->items);
    *ranges = (struct addr_ranges){0};
}
