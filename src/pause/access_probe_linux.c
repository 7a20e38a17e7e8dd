/*
 * Tries each system call and /proc file that spyglass would like to use on a process, and records the
 * error.
 */
#include "pause/access_probe.h"

#include "base/clock.h"
#include "base/err.h"
#include "pause/cpu_affinity.h"
#include "pause/tracer.h"
#include "target/proc.h"
#include "target/setuid_guard.h"
#include "target/task.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ATTACH_TIMEOUT_NS (200 * NS_PER_MS)

/* Finds a readable address. */
static int find_addr(pid_t pid, addr_t *ret)
{
    struct proc_maps maps;
    int r = proc_maps_read(pid, &maps), error = r == ERR_PERMISSION ? EACCES : ESRCH;

    if (r < 0)
        return error;
    for (size_t i = 0; i < maps.n && error; i++)
        if (maps.items[i].readable && maps.items[i].path[0] == '/') {
            *ret = maps.items[i].start;
            error = 0;
        }
    proc_maps_free(&maps);
    return error;
}

static int try_readv(pid_t pid)
{
    addr_t addr = 0;
    char byte;
    struct iovec local = {&byte, 1}, remote = {NULL, 1};
    int error = find_addr(pid, &addr);

    if (error)
        return error;
    remote.iov_base = (void *)(uintptr_t)addr;
    return process_vm_readv(pid, &local, 1, &remote, 1, 0) == 1 ? 0 : errno;
}

static int try_mem(pid_t pid)
{
    addr_t addr = 0;
    char path[64], byte;
    int fd, error;

    snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && setuid_guard_active())
        fd = setuid_guard_open_mem(pid);
    error = fd < 0 ? errno : find_addr(pid, &addr);
    if (!error && pread(fd, &byte, 1, (off_t)addr) != 1)
        error = errno ? errno : EIO;
    if (fd >= 0)
        close(fd);
    return error;
}

static int try_ptrace(pid_t pid)
{
    struct tracer s = {0};
    int r;

    errno = 0;
    r = tracer_attach(&s, pid, ATTACH_TIMEOUT_NS, false);
    if (r == 0)
        tracer_detach(&s);
    else if (r == ERR_STOP) /* tracer_sweep() detaches it as soon as it stops */
        tracer_sweep(&s);
    return r == 0 ? 0 : r == ERR_PERMISSION ? EPERM : r == ERR_GONE ? ESRCH : ETIMEDOUT;
}

static int try_own_core(pid_t pid)
{
    struct cpu_affinity c = {.cpu = CPU_AFFINITY_ANY};
    int cpu = sched_getcpu();

    (void)pid;
    errno = 0;
    if (cpu < 0 || cpu_affinity_pin(&c, cpu) < 0)
        return errno ? errno : EPERM;
    cpu_affinity_unpin(&c);
    return 0;
}

static int try_schedstat(pid_t pid)
{
    struct task t;
    struct sched_stats stats;
    int r;

    task_open(&t, pid, pid);
    r = task_sched_stats(&t, &stats);
    task_close(&t);
    return r < 0 ? ENOENT : 0;
}

/* Tries to open a file or directory of the process. */
static int try_open(pid_t pid, const char *name, int flags)
{
    char path[96];
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    fd = open(path, flags | O_CLOEXEC);
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

static int try_files(pid_t pid)
{
    return try_open(pid, "root", O_PATH | O_DIRECTORY);
}

static int try_children(pid_t pid)
{
    char name[64];

    snprintf(name, sizeof(name), "task/%d/children", (int)pid);
    return try_open(pid, name, O_RDONLY);
}

static int try_pidfd(pid_t pid)
{
    int fd = proc_pidfd_open(pid);

    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

static int try_openat2(pid_t pid)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    long fd = syscall(__NR_openat2, AT_FDCWD, ".", &how, sizeof(how));

    (void)pid;
    if (fd < 0)
        return errno;
    close((int)fd);
    return 0;
}

static const struct {
    const char *name, *use;
    int (*attempt)(pid_t pid);
} table[ACCESS_PROBE_COUNT] = {
    [ACCESS_PROBE_READV] = {"process_vm_readv", "reads memory; fallback: /proc/PID/mem", try_readv},
    [ACCESS_PROBE_MEM] = {"/proc/PID/mem", "reads memory if process_vm_readv is unavailable", try_mem},
    [ACCESS_PROBE_PTRACE] = {"ptrace", "pauses threads, for native stacks; fallback: reading from the same core",
                             try_ptrace},
    [ACCESS_PROBE_CORE] = {"own core", "reads running threads from the same core, without ptrace; fallback: ptrace",
                           try_own_core},
    [ACCESS_PROBE_SCHEDSTAT] = {"schedstat", "detects whether a thread ran during a read; fallback: ptrace",
                                try_schedstat},
    [ACCESS_PROBE_FILES] = {"/proc/PID/root", "opens the files of the process; fallback: its memory only", try_files},
    [ACCESS_PROBE_PIDFD] = {"pidfd_open", "detects a reused PID; fallback: the start time of the process", try_pidfd},
    [ACCESS_PROBE_OPENAT2] = {"openat2", "resolves links inside a root directory; fallback: one component at a time",
                              try_openat2},
    [ACCESS_PROBE_CHILDREN] = {"children", "lists child processes; fallback: scanning /proc", try_children},
};

void access_probe_try(pid_t pid, struct access_probe *ret)
{
    for (size_t i = 0; i < ACCESS_PROBE_COUNT; i++)
        ret->items[i] = (struct access_method){table[i].name, table[i].use, table[i].attempt(pid)};
}

bool access_probe_can_read(const struct access_probe *p)
{
    return !p->items[ACCESS_PROBE_READV].error || !p->items[ACCESS_PROBE_MEM].error;
}

pid_t access_probe_start_child(void)
{
    pid_t pid = fork();

    if (pid == 0)
        for (;;)
            pause();
    return pid;
}

void access_probe_end_child(pid_t pid)
{
    if (pid <= 0)
        return;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
