/*
 * Writes the memory that spyglass reads of a process, as an input of fuzz_process. The process should be at rest.
 *
 *     snapshot PID GRAIN ODDS >FILE
 *
 * The file has the memory around each read, rounded to GRAIN bytes (a power of two). 64 makes small files, without local
 * variables, which are read by the page. 4096 leaves room for damaged pointers. ODDS: one read in so many is changed (0: none).
 */
#include "base/grow.h"
#include "read_process.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct grains {
    addr_t *items;
    size_t n, cap;
};

struct recorder {
    struct mem mem;
    struct mem *from;
    struct grains grains;
    addr_t grain;
};

static void fail(const char *what)
{
    fprintf(stderr, "snapshot: %s\n", what);
    exit(EXIT_FAILURE);
}

static size_t record_readv(struct mem *m, const struct mem_span *spans, size_t n)
{
    struct recorder *r = (struct recorder *)m;
    size_t done = mem_readv(r->from, spans, n);

    for (size_t i = 0; i < done; i++)
        for (addr_t at = spans[i].addr & ~(r->grain - 1); at < spans[i].addr + spans[i].len; at += r->grain) {
            if (r->grains.n && r->grains.items[r->grains.n - 1] == at)
                continue;
            if (grow_array((void **)&r->grains.items, &r->grains.cap, r->grains.n + 1, sizeof(at)) < 0)
                fail("out of memory");
            r->grains.items[r->grains.n++] = at;
        }
    return done;
}

static int compare(const void *a, const void *b)
{
    addr_t x = *(const addr_t *)a, y = *(const addr_t *)b;

    return x < y ? -1 : x > y;
}

static void put(const void *bytes, size_t len)
{
    if (fwrite(bytes, 1, len, stdout) != len)
        fail("cannot write");
}

static void put_head(const struct proc_maps *maps, uint32_t odds)
{
    uint64_t seed = 0x9e3779b97f4a7c15ull;
    char *text = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&text, &len);
    uint32_t n;

    if (!to)
        fail("out of memory");
    for (size_t i = 0; i < maps->n; i++) {
        const struct proc_map *m = &maps->items[i];
        const char *name = strrchr(m->path, '/'); /* no path of this machine */

        fprintf(to, "%" PRIx64 "-%" PRIx64 " %c%c%cp %" PRIx64 " 00:01 %d %s%s\n", m->start, m->end,
                m->readable ? 'r' : '-', m->writable ? 'w' : '-', m->executable ? 'x' : '-', m->offset, *m->path == '/',
                name ? "/lib" : "", name ? name : m->path);
    }
    if (fclose(to))
        fail("out of memory");
    n = (uint32_t)len;
    put(&seed, 8);
    put(&odds, 4);
    put(&n, 4);
    put(text, len);
    free(text);
}

static void put_runs(struct recorder *r)
{
    struct grains *g = &r->grains;
    uint8_t *bytes = malloc(r->grain);

    if (!bytes)
        fail("out of memory");
    qsort(g->items, g->n, sizeof(*g->items), compare);
    for (size_t i = 0; i < g->n;) {
        addr_t start = g->items[i], end = start;
        uint32_t len;

        for (; i < g->n && g->items[i] <= end; i++)
            end = g->items[i] + r->grain;
        len = (uint32_t)(end - start);
        put(&start, 8);
        put(&len, 4);
        for (; start < end; start += r->grain) {
            memset(bytes, 0, r->grain);
            mem_read(r->from, start, bytes, r->grain);
            put(bytes, r->grain);
        }
    }
    free(bytes);
    free(g->items);
}

int main(int argc, char **argv)
{
    static const struct mem_ops ops = {.readv = record_readv};
    struct recorder r = {.mem = {&ops}};
    struct proc_maps maps;
    struct files files;
    pid_t pid;

    if (argc != 4)
        fail("usage: snapshot PID GRAIN ODDS");
    pid = (pid_t)strtol(argv[1], NULL, 10);
    r.grain = strtoull(argv[2], NULL, 10);
    files_open_live(pid, &files);
    if (mem_live_open(pid, &r.from) < 0 || proc_maps_read(pid, &maps) < 0)
        fail("cannot read the process");
    if (!read_process(&r.mem, &maps, &files, r.grain >= 4096))
        fail("no stack in the process");
    put_head(&maps, (uint32_t)strtoul(argv[3], NULL, 10));
    put_runs(&r);
    proc_maps_free(&maps);
    mem_close(r.from);
    files_close(&files);
    return EXIT_SUCCESS;
}
