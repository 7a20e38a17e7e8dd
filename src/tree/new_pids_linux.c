/*
 * Finds new pids through /proc/loadavg. Its last field is the pid that was allocated last in our pid
 * namespace (fs/proc/loadavg.c). Pids are allocated in order, so the new ones are those since the last
 * call. If that file is emulated (lxcfs, gVisor) or /proc belongs to another pid namespace, /proc is
 * listed and compared instead.
 */
#include "tree/new_pids.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/log.h"
#include "target/proc.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* For a larger range, list /proc instead of reporting every number in it. */
#define RANGE_MAX 512
/* A process becomes visible very soon after its pid is allocated (kernel/fork.c, copy_process: alloc_pid …
 * attach_pid), unless it is preempted in between. */
#define PENDING_TRIES 5

/* 0 if it is not available. */
static pid_t newest_pid(int fd)
{
    char text[128];
    const char *blank;
    ssize_t got = pread(fd, text, sizeof(text) - 1, 0);
    long pid;

    if (got <= 0)
        return 0;
    text[got] = '\0';
    blank = strrchr(text, ' ');
    pid = blank ? strtol(blank, NULL, 10) : 0;
    return pid > 0 && pid <= INT32_MAX ? (pid_t)pid : 0;
}

static int compare_pids(const void *a, const void *b)
{
    pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

    return (x > y) - (x < y);
}

static int list_pids(pid_t **ret, size_t *ret_n)
{
    int r = proc_pids_read(ret, ret_n);

    if (r == 0 && *ret_n)
        qsort(*ret, *ret_n, sizeof(**ret), compare_pids);
    return r;
}

int new_pids_open_listing(struct new_pids *np)
{
    *np = (struct new_pids){.fd = -1};
    return list_pids(&np->listed, &np->n_listed);
}

int new_pids_open(struct new_pids *np)
{
    int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    struct statfs fs;

    if (fd < 0 || fstatfs(fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC || !proc_is_ours() || !newest_pid(fd)) {
        if (fd >= 0)
            close(fd);
        log_debug("tree", "new PIDs are found by listing /proc");
        return new_pids_open_listing(np);
    }
    log_debug("tree", "new PIDs are found by /proc/loadavg");
    *np = (struct new_pids){.fd = fd, .last = newest_pid(fd)};
    return 0;
}

void new_pids_close(struct new_pids *np)
{
    if (np->fd >= 0)
        close(np->fd);
    free(np->items);
    free(np->listed);
    *np = (struct new_pids){.fd = -1};
}

static int append_pid(struct new_pids *np, pid_t pid)
{
    if (grow_array((void **)&np->items, &np->cap, np->n + 1, sizeof(*np->items)) < 0)
        return ERR_NOMEM;
    np->items[np->n++] = pid;
    return 0;
}

/* Pids wrap around: the lowest follows the highest. */
static bool in_range(pid_t pid, pid_t after, pid_t last)
{
    return after < last ? pid > after && pid <= last : pid > after || pid <= last;
}

static int append_listed_range(struct new_pids *np, pid_t after, pid_t last)
{
    pid_t *pids;
    size_t n;
    int r = proc_pids_read(&pids, &n);

    if (r < 0)
        return r;
    for (size_t i = 0; i < n && r == 0; i++)
        if (in_range(pids[i], after, last))
            r = append_pid(np, pids[i]);
    free(pids);
    return r;
}

static int read_by_newest(struct new_pids *np, pid_t last)
{
    pid_t after = np->last;
    int r = 0;

    if (last == after)
        return 0;
    np->last = last;
    if (last < after || last - after > RANGE_MAX)
        return append_listed_range(np, after, last);
    for (pid_t pid = after + 1; pid <= last && r == 0; pid++)
        r = append_pid(np, pid);
    return r;
}

/* Both lists are sorted. */
static int read_by_listing(struct new_pids *np)
{
    pid_t *pids;
    size_t n, old = 0;
    int r = list_pids(&pids, &n);

    if (r < 0)
        return r;
    for (size_t i = 0; i < n && r == 0; i++) {
        while (old < np->n_listed && np->listed[old] < pids[i])
            old++;
        if (old == np->n_listed || np->listed[old] != pids[i])
            r = append_pid(np, pids[i]);
    }
    free(np->listed);
    np->listed = pids;
    np->n_listed = n;
    return r;
}

int new_pids_read(struct new_pids *np)
{
    pid_t last = np->fd >= 0 ? newest_pid(np->fd) : 0;
    size_t kept = 0;
    int r = 0;

    np->n = 0;
    for (size_t i = 0; i < np->n_pending && r == 0; i++)
        r = append_pid(np, np->pending[i].pid);
    for (size_t i = 0; i < np->n_pending; i++)
        if (--np->pending[i].tries > 0)
            np->pending[kept++] = np->pending[i];
    np->n_pending = kept;
    np->n_repeated = np->n;
    if (r < 0)
        return r;
    return last ? read_by_newest(np, last) : read_by_listing(np);
}

void new_pids_retry(struct new_pids *np, size_t i)
{
    if (i >= np->n_repeated && i < np->n && np->n_pending < NEW_PIDS_PENDING_MAX)
        np->pending[np->n_pending++] = (struct new_pids_pending){np->items[i], PENDING_TRIES};
}
