/*
 * /proc/loadavg -> new pids. Its last field is the pid that was given out last in our pid namespace (fs/proc/loadavg.c),
 * and pids are given out in order: the new ones are those since the last look. Called by sample/process_tree.c at each refresh.
 * Where that file is made up (lxcfs, gVisor) or /proc is another namespace's, /proc is listed and compared instead.
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

/* More ids than this are not tried one by one: what there is of them is listed. */
#define RANGE_MAX 512
/* Between the two lies little (kernel/fork.c, copy_process: alloc_pid … attach_pid), unless it is preempted there. */
#define LATE_TRIES 5

/* 0 when it cannot be had. */
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

/* Is what /proc shows the pid namespace that we are in? */
static bool proc_is_ours(void)
{
    char link[32];
    ssize_t len = readlink("/proc/self", link, sizeof(link) - 1);

    if (len <= 0)
        return false;
    link[len] = '\0';
    return strtol(link, NULL, 10) == getpid();
}

static int open_newest(void)
{
    struct statfs fs;
    int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);

    if (fd >= 0 && fstatfs(fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC && proc_is_ours() && newest_pid(fd))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
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

int new_pids_open_listing(struct new_pids *b)
{
    *b = (struct new_pids){.fd = -1};
    return list_pids(&b->listed, &b->n_listed);
}

int new_pids_open(struct new_pids *b)
{
    int fd = open_newest();

    log_debug("tree", "new PIDs are found by %s", fd >= 0 ? "/proc/loadavg" : "listing /proc");
    if (fd < 0)
        return new_pids_open_listing(b);
    *b = (struct new_pids){.fd = fd, .last = newest_pid(fd)};
    return 0;
}

void new_pids_close(struct new_pids *b)
{
    if (b->fd >= 0)
        close(b->fd);
    free(b->items);
    free(b->listed);
    *b = (struct new_pids){.fd = -1};
}

static int add(struct new_pids *b, pid_t pid)
{
    if (grow_array((void **)&b->items, &b->cap, b->n + 1, sizeof(*b->items)) < 0)
        return ERR_NOMEM;
    b->items[b->n++] = pid;
    return 0;
}

static int add_late(struct new_pids *b)
{
    size_t kept = 0;
    int r = 0;

    for (size_t i = 0; i < b->n_late && r == 0; i++)
        r = add(b, b->late[i].pid);
    for (size_t i = 0; i < b->n_late; i++)
        if (--b->late[i].tries > 0)
            b->late[kept++] = b->late[i];
    b->n_late = kept;
    return r;
}

/* Pids go round: behind the highest comes the lowest. */
static bool in_range(pid_t pid, pid_t after, pid_t last)
{
    return after < last ? pid > after && pid <= last : pid > after || pid <= last;
}

static int add_listed_range(struct new_pids *b, pid_t after, pid_t last)
{
    pid_t *pids;
    size_t n;
    int r = proc_pids_read(&pids, &n);

    if (r < 0)
        return r;
    for (size_t i = 0; i < n && r == 0; i++)
        if (in_range(pids[i], after, last))
            r = add(b, pids[i]);
    free(pids);
    return r;
}

static int look_by_newest(struct new_pids *b, pid_t last)
{
    pid_t after = b->last;
    int r = 0;

    if (last == after)
        return 0;
    b->last = last;
    if (last < after || last - after > RANGE_MAX)
        return add_listed_range(b, after, last);
    for (pid_t pid = after + 1; pid <= last && r == 0; pid++)
        r = add(b, pid);
    return r;
}

/* Both lists are in order. */
static int look_by_listing(struct new_pids *b)
{
    pid_t *pids;
    size_t n, old = 0;
    int r = list_pids(&pids, &n);

    if (r < 0)
        return r;
    for (size_t i = 0; i < n && r == 0; i++) {
        while (old < b->n_listed && b->listed[old] < pids[i])
            old++;
        if (old == b->n_listed || b->listed[old] != pids[i])
            r = add(b, pids[i]);
    }
    free(b->listed);
    b->listed = pids;
    b->n_listed = n;
    return r;
}

int new_pids_read(struct new_pids *b)
{
    pid_t last = b->fd >= 0 ? newest_pid(b->fd) : 0;
    int r;

    b->n = 0;
    r = add_late(b);
    b->n_again = b->n;
    if (r < 0)
        return r;
    return last ? look_by_newest(b, last) : look_by_listing(b);
}

void new_pids_retry(struct new_pids *b, size_t i)
{
    if (i >= b->n_again && i < b->n && b->n_late < NEW_PIDS_LATE_MAX)
        b->late[b->n_late++] = (struct new_pids_pending){b->items[i], LATE_TRIES};
}
