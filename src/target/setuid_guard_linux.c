/*
 * Drops setuid privileges and offers two checked operations that use CAP_SYS_PTRACE.
 *
 * An open /proc/PID directory refers to one process even if the pid is reused, and an open /proc/PID/mem
 * to one address space even after an exec. The check looks at the process, so it must find the same process with the same
 * address space before the open and after it. A check after the open alone is not enough: the child of a vfork has the
 * address space of its parent, whose privileges may be higher, until it calls exec. An address space that ever had other
 * privileges is not dumpable (prctl(2), PR_SET_DUMPABLE), and its /proc files do not belong to its user.
 */
#include "target/setuid_guard.h"

#include "base/log.h"
#include "target/caps.h"
#include "target/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_TRIES 3

bool setuid_guard_active(void)
{
    return getuid() != 0 && getauxval(AT_SECURE);
}

static bool is_caller(void)
{
    uid_t r, e, s;
    gid_t gr, ge, gs;

    return getresuid(&r, &e, &s) == 0 && getresgid(&gr, &ge, &gs) == 0 && r == e && r == s && gr == ge && gr == gs;
}

int setuid_guard_drop_privileges(struct err_note *note)
{
    uint64_t keep = caps_permitted() & CAPS_PTRACE;

    if (!setuid_guard_active())
        return 0;
    prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
    if (setresgid(getgid(), getgid(), getgid()) < 0 || setresuid(getuid(), getuid(), getuid()) < 0 || !is_caller() ||
        caps_set(keep, 0) < 0 || caps_permitted() != keep)
        return err_because(note, ERR_PERMISSION, &(struct err_facts){.reason = REASON_SETUID_KEPT});
    prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* no core file, and the caller cannot debug us */
    return 0;
}

static bool same_user_namespace(int dir)
{
    char ours[64] = "", theirs[64] = "";
    ssize_t own = readlink("/proc/self/ns/user", ours, sizeof(ours) - 1);
    ssize_t other = readlinkat(dir, "ns/user", theirs, sizeof(theirs) - 1);

    return own > 0 && own == other && memcmp(ours, theirs, (size_t)own) == 0;
}

static bool has_callers_ids(const struct proc_status *st)
{
    uid_t uid = getuid();
    gid_t gid = getgid();

    return st->uid_real == uid && st->uid_effective == uid && st->uid_saved == uid && st->gid_real == gid &&
           st->gid_effective == gid && st->gid_saved == gid && !st->cap_eff && !st->cap_perm;
}

static bool dir_is_own(int dir)
{
    struct proc_status st;
    struct stat file;

    if (proc_status_read_at(dir, &st) < 0 || !has_callers_ids(&st))
        return false;
    return fstatat(dir, "status", &file, 0) == 0 && file.st_uid == getuid() && file.st_gid == getgid() &&
           same_user_namespace(dir);
}

static int open_dir(pid_t pid)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

bool setuid_guard_is_own(pid_t pid)
{
    int dir = open_dir(pid);
    bool own = dir >= 0 && dir_is_own(dir);

    if (dir >= 0)
        close(dir);
    return own;
}

/* Only the one system call may come between raise_capability() and drop_capability(). */
static bool raise_capability(void)
{
    return setuid_guard_active() && caps_permitted() & CAPS_PTRACE && caps_set(CAPS_PTRACE, CAPS_PTRACE) == 0;
}

static void drop_capability(void)
{
    int error = errno;

    caps_set(CAPS_PTRACE, 0);
    errno = error;
}

/* The address space of the process, if it is the caller's; 0 otherwise. An exec changes it. */
static uint64_t own_image(int dir)
{
    struct proc_stat st;

    return dir_is_own(dir) && proc_stat_read_at(dir, &st) == 0 ? st.image : 0;
}

static int open_checked(int dir)
{
    uint64_t before = own_image(dir);
    int fd = -1;

    if (before && raise_capability()) {
        fd = openat(dir, "mem", O_RDONLY | O_CLOEXEC);
        drop_capability();
    }
    if (fd >= 0 && own_image(dir) != before) {
        close(fd);
        fd = -1;
    }
    return fd;
}

int setuid_guard_open_mem(pid_t pid)
{
    int dir = setuid_guard_active() ? open_dir(pid) : -1, fd = -1;

    for (int i = 0; dir >= 0 && fd < 0 && i < OPEN_TRIES; i++) /* it may have called exec in between */
        fd = open_checked(dir);
    if (setuid_guard_active())
        log_often(LOG_LEVEL_INFO, "access", pid, "pid %d: /proc/PID/mem by the right of the file: %s", (int)pid,
                  fd >= 0 ? "opened" : "refused, or not a process of the caller");
    if (dir >= 0)
        close(dir);
    if (fd < 0)
        errno = EPERM;
    return fd;
}

bool setuid_guard_seize(pid_t tid)
{
    bool done;

    /* Check before as well, so that we do not even stop a foreign process. */
    if (!setuid_guard_active() || !setuid_guard_is_own(tid) || !raise_capability()) {
        errno = EPERM;
        return false;
    }
    done = ptrace(PTRACE_SEIZE, tid, 0, 0) == 0;
    drop_capability();
    log_often(LOG_LEVEL_INFO, "access", tid, "tid %d: PTRACE_SEIZE by the right of the file: %s", (int)tid,
              done ? "done" : strerror(errno));
    return done;
}
