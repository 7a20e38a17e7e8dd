/*
 * Asks /proc/PID/pagemap whether pages are in memory, and has a helper process read those that are not.
 */
#include "target/mem_guard.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/helper.h"
#include "base/mounts.h"
#include "target/files.h"
#include "target/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE         4096u
#define PAGES        256
#define PAGE_PRESENT ((uint64_t)1 << 63) /* pagemap of Documentation/admin-guide/mm in the kernel */
#define DEVICES_MAX  64
#define READ_MAX     ((size_t)256 << 20)
#define TOUCH_BYTES  (64 * 1024)

/* ---- ranges ---- */

/* Devices of local file systems. */
struct local_devices {
    uint64_t items[DEVICES_MAX];
    size_t n;
};

static bool is_known(const struct local_devices *d, uint64_t device)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->items[i] == device)
            return true;
    return false;
}

static bool add_device(void *arg, const struct mount *m)
{
    struct local_devices *d = arg;

    if (m->is_local && d->n < DEVICES_MAX && !is_known(d, m->device))
        d->items[d->n++] = m->device;
    return true;
}

void mem_guard_free(struct mem_guard *g)
{
    for (size_t i = 0; i < g->n; i++)
        if (i == 0 || g->ranges[i].path != g->ranges[i - 1].path)
            free(g->ranges[i].path);
    free(g->ranges);
    if (g->pagemap >= 0)
        close(g->pagemap);
    *g = (struct mem_guard){.pid = g->pid, .pagemap = -1};
}

static void add_range(struct mem_guard *g, const struct proc_map *map)
{
    const struct mem_guard_range *last = g->n ? &g->ranges[g->n - 1] : NULL;
    char *path = last && last->path && strcmp(last->path, map->path) == 0 ? last->path : strdup(map->path);

    if (grow_array((void **)&g->ranges, &g->cap, g->n + 1, sizeof(*g->ranges)) < 0) {
        if (!g->n || path != g->ranges[g->n - 1].path)
            free(path);
        return;
    }
    g->ranges[g->n++] = (struct mem_guard_range){map->start, map->end, map->offset, map->device, path};
}

/* The vdso is always in memory: only the lock of the address space can keep a read of it waiting. 0: there is none. */
static addr_t find_vdso(const struct proc_maps *maps)
{
    for (size_t i = 0; i < maps->n; i++)
        if (strcmp(maps->items[i].path, "[vdso]") == 0)
            return maps->items[i].start;
    return 0;
}

/* A device that is mounted nowhere in sight may hang as well: it was unmounted lazily, or belongs to another mount namespace. */
size_t mem_guard_set(struct mem_guard *g, const struct proc_maps *maps)
{
    struct local_devices local = {0};
    bool listed = false;

    mem_guard_free(g);
    for (size_t i = 0; i < maps->n; i++) {
        const struct proc_map *map = &maps->items[i];

        if (!map->inode || !map->readable || is_known(&local, map->device))
            continue;
        if (!listed) {
            listed = true;
            mounts_each(proc_live_thread(g->pid), add_device, &local);
            if (is_known(&local, map->device))
                continue;
        }
        add_range(g, map);
        if (map->shared && map->writable)
            g->probe = find_vdso(maps);
    }
    return g->n;
}

/* The first range that ends after `addr`. */
static const struct mem_guard_range *find(const struct mem_guard *g, addr_t addr)
{
    size_t low = 0, high = g->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (g->ranges[mid].end <= addr)
            low = mid + 1;
        else
            high = mid;
    }
    return low < g->n ? &g->ranges[low] : NULL;
}

static const struct mem_guard_range *range_of(const struct mem_guard *g, const struct mem_span *span)
{
    const struct mem_guard_range *r = find(g, span->addr);

    return r && (r->start <= span->addr || r->start - span->addr < span->len) ? r : NULL;
}

/* ---- pages ---- */

/* An open pagemap refers to one address space and reads as empty after an exec. */
static ssize_t read_pagemap(struct mem_guard *g, uint64_t *entries, size_t n, addr_t page)
{
    for (int tries = 0; tries < 2; tries++) {
        ssize_t got;

        if (g->pagemap < 0) {
            char path[64];

            snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)proc_live_thread(g->pid));
            g->pagemap = open(path, O_RDONLY | O_CLOEXEC);
        }
        if (g->pagemap < 0)
            return -1;
        got = pread(g->pagemap, entries, n * sizeof(*entries), (off_t)(page * sizeof(*entries)));
        if (got > 0)
            return got / (ssize_t)sizeof(*entries);
        close(g->pagemap);
        g->pagemap = -1;
    }
    return -1;
}

static bool is_in_memory(struct mem_guard *g, const struct mem_span *span)
{
    addr_t page = span->addr / PAGE, last = (span->addr + span->len - 1) / PAGE;
    uint64_t entries[PAGES];

    while (page <= last) {
        size_t want = last - page + 1 < PAGES ? (size_t)(last - page + 1) : PAGES;
        ssize_t got = read_pagemap(g, entries, want, page);

        if (got <= 0)
            return false;
        for (ssize_t i = 0; i < got; i++)
            if (!(entries[i] & PAGE_PRESENT))
                return false;
        page += (addr_t)got;
    }
    return true;
}

size_t mem_guard_safe(struct mem_guard *g, const struct mem_span *spans, size_t n)
{
    size_t i = 0;

    while (i < n && (!range_of(g, &spans[i]) || is_in_memory(g, &spans[i])))
        i++;
    return i;
}

/* ---- reading ---- */

/* In the helper. */
static int run_read(struct unpack *in, struct pack *out)
{
    pid_t pid = (pid_t)unpack_number(in);
    addr_t addr = unpack_number(in);
    size_t len = (size_t)unpack_number(in);
    struct mem *m;
    void *buf = malloc(len + 1);
    int r = buf ? mem_live_open(pid, &m) : ERR_NOMEM;

    if (r == 0) {
        r = mem_read(m, addr, buf, len);
        mem_close(m);
    }
    if (r == 0)
        pack_bytes(out, buf, len);
    free(buf);
    return r;
}

static bool answers(pid_t pid, addr_t vdso)
{
    struct pack in = {0};
    int r;

    pack_number(&in, (uint64_t)pid);
    pack_number(&in, vdso);
    pack_number(&in, 1);
    r = helper_call(run_read, &in, &(struct helper_about){.pid = pid}, NULL);
    pack_free(&in);
    return r != HELPER_STUCK && r != HELPER_LATE;
}

bool mem_live_answers(pid_t pid, const struct proc_maps *maps)
{
    addr_t vdso = find_vdso(maps);

    return !vdso || answers(pid, vdso);
}

bool mem_guard_answers(const struct mem_guard *g)
{
    return !g->probe || answers(g->pid, g->probe);
}

/* In the helper: reads a part of a file, so that it is in the page cache. */
static int run_touch(struct unpack *in, struct pack *out)
{
    struct files files;
    const char *path;
    off_t at, end;
    char *buf;
    int fd;

    (void)out;
    files_open_live((pid_t)unpack_number(in), &files);
    path = unpack_text(in);
    at = (off_t)unpack_number(in);
    end = at + (off_t)unpack_number(in);
    fd = path ? files_open(&files, path) : -1;
    files_close(&files);
    buf = malloc(TOUCH_BYTES);
    while (fd >= 0 && buf && at < end && pread(fd, buf, TOUCH_BYTES, at) > 0)
        at += TOUCH_BYTES;
    free(buf);
    if (fd >= 0)
        close(fd);
    return 0;
}

static enum mem_guard_result touch(const struct mem_guard *g, const struct mem_guard_range *range,
                                   const struct mem_span *span)
{
    struct helper_about about = {.pid = g->pid, .device = range->device, .path = range->path};
    addr_t skipped = span->addr > range->start ? span->addr - range->start : 0;
    struct pack in = {0};
    int r;

    pack_number(&in, (uint64_t)g->pid);
    pack_text(&in, range->path);
    pack_number(&in, range->offset + skipped);
    pack_number(&in, span->len);
    r = helper_call(run_touch, &in, &about, NULL);
    pack_free(&in);
    return r == 0 ? MEM_GUARD_REFUSED : MEM_GUARD_FAILED;
}

/* Yama (ptrace_scope=1) lets us read a program that we have launched, but not our helper, which is not its parent. */
enum mem_guard_result mem_guard_read(struct mem_guard *g, const struct mem_span *span)
{
    const struct mem_guard_range *range = range_of(g, span);
    struct helper_about about = {.pid = g->pid};
    struct helper_answer answer;
    struct pack in = {0};
    size_t len = 0;
    const void *bytes;
    int r;

    if (!range || span->len > READ_MAX)
        return MEM_GUARD_FAILED;
    about.device = range->device;
    about.path = range->path;
    pack_number(&in, (uint64_t)g->pid);
    pack_number(&in, span->addr);
    pack_number(&in, span->len);
    r = helper_call(run_read, &in, &about, &answer);
    bytes = r == 0 ? unpack_bytes(&answer.out, &len) : NULL;
    if (bytes && len == span->len)
        memcpy(span->buf, bytes, len);
    helper_answer_free(&answer);
    pack_free(&in);
    if (r == 0)
        return bytes && len == span->len ? MEM_GUARD_DONE : MEM_GUARD_FAILED;
    return r == HELPER_STUCK || r == HELPER_DIED || r == HELPER_LATE ? MEM_GUARD_FAILED : touch(g, range, span);
}
