/*
 * Checks permissions in the order in which the kernel does (ptrace(2), "Ptrace access mode checking"), to
 * find the check that failed.
 */
#include "target/access.h"

#include "base/log.h"
#include "target/caps.h"
#include "target/container.h"
#include "target/setuid_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define STARTING_S 2

bool access_can_read(struct mem *m, const struct proc_maps *maps)
{
    char byte;

    for (size_t i = 0; i < maps->n; i++)
        if (maps->items[i].readable && maps->items[i].path[0] == '/' &&
            mem_read(m, maps->items[i].start, &byte, 1) == 0)
            return true;
    return false;
}

static bool has_ptrace(const struct access_facts *f)
{
    return f->self.cap_eff & CAPS_PTRACE && f->same_user_ns;
}

int access_yama_scope(void)
{
    char text[8] = "";
    int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC), scope = -1;

    if (fd < 0)
        return -1;
    if (read(fd, text, sizeof(text) - 1) > 0)
        scope = atoi(text);
    close(fd);
    return scope;
}

/* Reading ourselves is always allowed, so a refusal comes from seccomp. */
bool access_readv_filtered(void)
{
    char from = 1, to = 0;
    struct iovec local = {&to, 1}, remote = {&from, 1};

    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1;
}

/* No process has this pid. The kernel looks up the pid before it checks permissions, so any error but ESRCH comes
 * from seccomp. */
bool access_ptrace_filtered(void)
{
    return ptrace(PTRACE_SEIZE, INT_MAX, 0, 0) < 0 && errno != ESRCH;
}

/* The /proc files of a process that is not dumpable belong to root (proc(5)). For root's own processes we cannot
 * tell. */
static bool may_be_dumped(pid_t pid, const struct proc_status *st)
{
    char path[64];
    struct stat file;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    return stat(path, &file) < 0 || file.st_uid == st->uid_effective;
}

/* True in a user namespace other than the initial one, as in a rootless container. The initial one maps all ids
 * (user_namespaces(7)). */
static bool in_user_namespace(void)
{
    unsigned long inside = 0, outside = 0, count = 0;
    char *text;
    size_t len;

    if (proc_read_file(getpid(), 0, "uid_map", &text, &len) < 0)
        return false;
    sscanf(text, "%lu %lu %lu", &inside, &outside, &count);
    free(text);
    return inside || outside || count != UINT32_MAX;
}

/* If we have CAP_SYS_PTRACE and still cannot read the link, the capability does not apply to that user namespace. */
static bool in_our_user_namespace(pid_t pid, const struct proc_status *self)
{
    char path[64], link[64];

    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    if (readlink(path, link, sizeof(link)) >= 0)
        return proc_same_namespace(pid, "user");
    return !(self->cap_eff & CAPS_PTRACE && in_user_namespace());
}

static bool has_same_ids(const struct proc_status *self, const struct proc_status *st)
{
    uid_t uid = self->uid_real;
    gid_t gid = self->gid_real;

    return st->uid_real == uid && st->uid_effective == uid && st->uid_saved == uid && st->gid_real == gid &&
           st->gid_effective == gid && st->gid_saved == gid;
}

static enum err_reason find_reason(const struct access_facts *f)
{
    bool same = has_same_ids(&f->self, &f->target);

    if (!same && f->is_setuid)
        return REASON_SETUID_NOT_OWN;
    if (!f->same_user_ns && !(same && f->dumpable && f->yama > 0))
        return REASON_USER_NAMESPACE;
    if (!same && !has_ptrace(f))
        return REASON_OTHER_USER;
    if (!has_ptrace(f) && f->target.cap_perm & ~f->self.cap_perm)
        return REASON_MORE_CAPABILITIES;
    if (!f->dumpable && !has_ptrace(f))
        return f->is_setuid ? REASON_SETUID_NOT_OWN : REASON_NOT_DUMPABLE;
    if (f->yama >= 3 || (f->yama >= 1 && !has_ptrace(f)))
        return f->yama == 1 ? REASON_YAMA_CHILDREN_ONLY : f->yama == 2 ? REASON_YAMA_CAPABLE_ONLY : REASON_YAMA_NONE;
    if (f->readv_filtered)
        return REASON_SECCOMP;
    if (!has_ptrace(f) && f->target.uid_effective == 0) /* cannot tell for root's processes */
        return REASON_NOT_DUMPABLE;
    return REASON_SECURITY_MODULE;
}

int access_judge(const struct access_facts *f, struct err_note *note)
{
    return err_because(note, ERR_PERMISSION,
                       &(struct err_facts){.reason = find_reason(f),
                                           .pid = f->pid,
                                           .uid = f->target.uid_effective,
                                           .own_uid = f->self.uid_effective,
                                           .number = f->yama,
                                           .in_container = f->in_container,
                                           .in_pod = f->in_pod});
}

int access_gather(pid_t pid, struct access_facts *ret)
{
    struct access_facts f = {.pid = pid, .yama = access_yama_scope(), .is_setuid = setuid_guard_active()};
    int r = proc_status_read(pid, 0, &f.target);

    if (r == 0)
        r = proc_status_read(getpid(), 0, &f.self);
    if (r < 0)
        return r;
    f.same_user_ns = in_our_user_namespace(pid, &f.self);
    f.dumpable = may_be_dumped(pid, &f.target);
    f.readv_filtered = access_readv_filtered();
    f.in_container = container_evidence() != NULL;
    f.in_pod = container_in_pod();
    log_info("access", "pid %d: uid %u %u %u, gid %u %u %u (real, effective, saved), capabilities %016llx", (int)pid,
             (unsigned)f.target.uid_real, (unsigned)f.target.uid_effective, (unsigned)f.target.uid_saved,
             (unsigned)f.target.gid_real, (unsigned)f.target.gid_effective, (unsigned)f.target.gid_saved,
             (unsigned long long)f.target.cap_perm);
    log_info("access", "pid %d: %s user namespace, %sdumpable, tracer %d, Yama ptrace_scope %d (-1: none)%s%s%s",
             (int)pid, f.same_user_ns ? "our" : "another", f.dumpable ? "" : "not ", (int)f.target.tracer, f.yama,
             f.readv_filtered ? ", process_vm_readv filtered" : "", f.in_container ? ", we are in a container" : "",
             f.in_pod ? " of a pod" : "");
    *ret = f;
    return 0;
}

int access_check_proc(struct err_note *note)
{
    struct stat st;

    if (proc_is_ours())
        return 0;
    return err_because(
        note, ERR_UNSUPPORTED,
        &(struct err_facts){.reason = lstat("/proc/self", &st) == 0 ? REASON_PROC_FOREIGN : REASON_PROC_MISSING});
}

int access_explain(pid_t pid, struct err_note *note)
{
    struct access_facts facts;

    if (access_gather(pid, &facts) < 0)
        return err_because(note, ERR_PERMISSION, &(struct err_facts){.reason = REASON_PROC_HIDDEN, .pid = pid});
    return access_judge(&facts, note);
}

struct err_facts access_pause_refusal(pid_t pid)
{
    struct proc_status st;

    if (access_ptrace_filtered())
        return (struct err_facts){.reason = REASON_PAUSE_SECCOMP};
    if (proc_status_read(pid, 0, &st) == 0 && st.tracer)
        return (struct err_facts){.reason = REASON_PAUSE_TRACED, .pid = st.tracer};
    return (struct err_facts){.reason = REASON_PAUSE_UNKNOWN};
}

size_t access_find_container_pids(pid_t pid, pid_t *ret, size_t max)
{
    pid_t *pids;
    size_t n, found = 0;
    struct proc_status st;

    if (proc_pids_read(&pids, &n) < 0)
        return 0;
    for (size_t i = 0; i < n && found < max; i++)
        if (proc_status_read(pids[i], 0, &st) == 0 && st.in_pid_ns && st.ns_pid == pid)
            ret[found++] = pids[i];
    free(pids);
    return found;
}

bool access_is_starting(pid_t pid)
{
    struct proc_stat st;
    struct timespec now;
    long ticks = sysconf(_SC_CLK_TCK);

    if (ticks <= 0 || proc_stat_read(pid, 0, &st) < 0 || clock_gettime(CLOCK_BOOTTIME, &now) < 0)
        return false;
    return (uint64_t)now.tv_sec < st.start_time / (uint64_t)ticks + STARTING_S;
}
