/*
 * The memory of a running process, read-only.
 */
#include "base/err.h"
#include "base/log.h"
#include "target/mem.h"
#include "target/mem_guard.h"
#include "target/proc.h"
#include "target/setuid_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define BATCH 512 /* below IOV_MAX, and small enough for the stack */

struct mem_live {
    struct mem mem;
    pid_t pid;
    pid_t tid; /* the pid, or another thread's if the main thread has ended */
    int fd;    /* /proc/PID/mem; -1 until process_vm_readv is refused */
    struct mem_guard guard;
};

/* seccomp profiles that allow ptrace but do not know process_vm_readv answer EPERM or ENOSYS. */
static bool open_mem_file(struct mem_live *live)
{
    char path[64];

    if (live->fd < 0) {
        snprintf(path, sizeof(path), "/proc/%d/mem", (int)proc_live_thread(live->pid));
        live->fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (live->fd < 0)
        live->fd = setuid_guard_open_mem(proc_live_thread(live->pid));
    log_changed(LOG_LEVEL_WARNING, "memory", live->pid, live->fd >= 0,
                "pid %d: process_vm_readv is refused, /proc/PID/mem: %s", (int)live->pid,
                live->fd >= 0 ? "opened" : strerror(errno));
    return live->fd >= 0;
}

static size_t read_spans(const struct mem_live *live, const struct mem_span *spans, size_t n, bool *ret_empty)
{
    for (size_t i = 0; i < n; i++) {
        ssize_t got;

        if (spans[i].addr > INT64_MAX)
            return i;
        got = pread(live->fd, spans[i].buf, spans[i].len, (off_t)spans[i].addr);
        *ret_empty = got == 0;
        if (got != (ssize_t)spans[i].len)
            return i;
    }
    return n;
}

static size_t read_by_file(struct mem_live *live, const struct mem_span *spans, size_t n)
{
    bool empty = false;
    size_t done = read_spans(live, spans, n, &empty);

    /* An open /proc/PID/mem refers to one address space and reads as empty after an exec. Open it again. */
    if (done == 0 && n && spans[0].len && empty) {
        close(live->fd);
        live->fd = -1;
        if (open_mem_file(live))
            done = read_spans(live, spans, n, &empty);
    }
    return done;
}

/* The thread that the memory was read through has ended. True if there is another one. */
static bool find_thread(struct mem_live *live)
{
    pid_t tid = proc_live_thread(live->pid), before = live->tid;

    live->tid = tid;
    errno = ESRCH;
    return tid != before;
}

static size_t read_batch(struct mem_live *live, const struct mem_span *spans, size_t n)
{
    struct iovec local[BATCH], remote[BATCH];
    ssize_t got;
    size_t done = 0;

    for (size_t i = 0; i < n; i++) {
        local[i] = (struct iovec){spans[i].buf, spans[i].len};
        /* The kernel wants a pointer here; we never dereference it. */
        remote[i] = (struct iovec){(void *)(uintptr_t)spans[i].addr, spans[i].len};
    }
    got = process_vm_readv(live->tid, local, n, remote, n, 0);
    if (got < 0 && errno == ESRCH && find_thread(live))
        got = process_vm_readv(live->tid, local, n, remote, n, 0);
    if (got < 0) {
        log_often(LOG_LEVEL_DEBUG, "memory", live->pid,
                  "pid %d: process_vm_readv of %zu ranges, the first at %#llx: %s", (int)live->pid, n,
                  (unsigned long long)spans[0].addr, strerror(errno));
        if ((errno == EPERM || errno == ENOSYS) && open_mem_file(live))
            return read_by_file(live, spans, n);
        return 0;
    }
    for (size_t left = (size_t)got; done < n && left >= spans[done].len; done++)
        left -= spans[done].len;
    return done;
}

static size_t read_directly(struct mem_live *live, const struct mem_span *spans, size_t n)
{
    size_t done = 0;

    if (live->fd >= 0)
        return read_by_file(live, spans, n);
    while (done < n) {
        size_t batch = n - done < BATCH ? n - done : BATCH;
        size_t got = read_batch(live, spans + done, batch);

        done += got;
        if (got < batch)
            break;
    }
    return done;
}

static bool read_guarded(struct mem_live *live, const struct mem_span *span)
{
    enum mem_guard_result r = mem_guard_read(&live->guard, span);

    return r == MEM_GUARD_DONE || (r == MEM_GUARD_REFUSED && read_directly(live, span, 1) == 1);
}

static size_t live_readv(struct mem *m, const struct mem_span *spans, size_t n)
{
    struct mem_live *live = (struct mem_live *)m;
    size_t done = 0;

    if (!live->guard.n)
        return read_directly(live, spans, n);
    while (done < n) {
        size_t safe = mem_guard_safe(&live->guard, spans + done, n - done);
        size_t got = safe ? read_directly(live, spans + done, safe) : 0;

        done += got;
        if (got < safe || done == n || !read_guarded(live, &spans[done]))
            break;
        done++;
    }
    return done;
}

static size_t live_set_maps(struct mem *m, const struct proc_maps *maps)
{
    return mem_guard_set(&((struct mem_live *)m)->guard, maps);
}

static struct mem *live_close(struct mem *m)
{
    struct mem_live *live = (struct mem_live *)m;

    if (live->fd >= 0)
        close(live->fd);
    mem_guard_free(&live->guard);
    free(live);
    return NULL;
}

static bool live_answers(struct mem *m)
{
    return mem_guard_answers(&((struct mem_live *)m)->guard);
}

static const struct mem_ops live_ops = {
    .readv = live_readv, .close = live_close, .set_maps = live_set_maps, .answers = live_answers};

int mem_live_open(pid_t pid, struct mem **ret)
{
    struct mem_live *live = malloc(sizeof(*live));

    if (!live)
        return ERR_NOMEM;
    *live =
        (struct mem_live){.mem = {&live_ops}, .pid = pid, .tid = pid, .fd = -1, .guard = {.pid = pid, .pagemap = -1}};
    log_changed(LOG_LEVEL_DEBUG, "memory", pid, 1, "pid %d: reading by process_vm_readv", (int)pid);
    *ret = &live->mem;
    return 0;
}
