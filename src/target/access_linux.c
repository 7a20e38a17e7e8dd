/*
 * Permission on Linux: who asks, who is asked, and which of the kernel's gates is shut (ptrace(2), "Ptrace access
 * mode checking"). Called when something was refused; the order of the checks is the kernel's.
 */
#include "target/access.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CAP_SYS_PTRACE_BIT 19
#define STARTING_S         2

bool access_can_read(struct mem *m, const struct proc_maps *maps)
{
    char byte;

    for (size_t i = 0; i < maps->n; i++)
        if (maps->items[i].readable && maps->items[i].path[0] == '/' &&
            mem_read(m, maps->items[i].start, &byte, 1) == 0)
            return true;
    return false;
}

static bool has_ptrace(const struct proc_status *st)
{
    return st->cap_eff >> CAP_SYS_PTRACE_BIT & 1;
}

/* Links like "user:[4026531837]": equal when the namespace is one. Unreadable counts as equal. */
static bool same_namespace(pid_t pid, const char *name)
{
    char path[64], ours[64] = "", theirs[64] = "";

    snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
    if (readlink(path, ours, sizeof(ours) - 1) < 0)
        return true;
    snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
    return readlink(path, theirs, sizeof(theirs) - 1) < 0 || strcmp(ours, theirs) == 0;
}

static int yama_scope(void)
{
    char text[8] = "";
    int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC), scope = 0;

    if (fd < 0)
        return 0;
    if (read(fd, text, sizeof(text) - 1) > 0)
        scope = atoi(text);
    close(fd);
    return scope;
}

/* A container by the marks its runtime leaves. */
static bool in_container(void)
{
    return access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 ||
           getenv("KUBERNETES_SERVICE_HOST") != NULL;
}

static void hint_capability(struct err_note *note, pid_t pid)
{
    if (in_container() || geteuid() == 0)
        err_note_hint(note, "Give the container the capability: docker run --cap-add SYS_PTRACE …, or in a pod "
                            "securityContext: {capabilities: {add: [SYS_PTRACE]}}");
    else
        err_note_hint(note, "Run it as root: sudo env \"PATH=$PATH\" %s dump --pid %d", program_invocation_short_name,
                      (int)pid);
}

static int explain_user(pid_t pid, const struct proc_status *self, const struct proc_status *st, struct err_note *note)
{
    if (!same_namespace(pid, "user")) {
        err_note_what(note, ERR_PERMISSION, "process %d is in another user namespace, where our rights do not count",
                      (int)pid);
        err_note_hint(note, "Run it inside its container, or as root on the host: sudo %s dump --pid %d",
                      program_invocation_short_name, (int)pid);
    } else {
        err_note_what(note, ERR_PERMISSION,
                      "process %d belongs to another user (uid %u, we are %u) and we lack CAP_SYS_PTRACE", (int)pid,
                      st->uid_effective, self->uid_effective);
        hint_capability(note, pid);
    }
    return ERR_PERMISSION;
}

static int explain_yama(pid_t pid, int scope, struct err_note *note)
{
    err_note_what(note, ERR_PERMISSION,
                  "Yama forbids to read processes that are not our children (kernel.yama.ptrace_scope = %d)", scope);
    if (scope >= 3)
        err_note_hint(note,
                      "This setting lasts until the next boot; set kernel.yama.ptrace_scope = 1 in /etc/sysctl.d.");
    else
        err_note_hint(note,
                      "Run it as root: sudo env \"PATH=$PATH\" %s dump --pid %d — or allow it: "
                      "sudo sysctl kernel.yama.ptrace_scope=0",
                      program_invocation_short_name, (int)pid);
    return ERR_PERMISSION;
}

int access_explain(pid_t pid, struct err_note *note)
{
    struct proc_status self = {0}, st = {0};
    int scope = yama_scope();

    proc_status_read(getpid(), 0, &self);
    if (proc_status_read(pid, 0, &st) < 0)
        return err_note_what(note, ERR_PERMISSION, "/proc/%d is hidden from us", (int)pid);
    if (st.uid_real != self.uid_effective || st.uid_effective != self.uid_effective ||
        st.uid_saved != self.uid_effective || st.gid_real != self.gid_effective ||
        st.gid_effective != self.gid_effective || st.gid_saved != self.gid_effective) {
        if (!has_ptrace(&self) || !same_namespace(pid, "user"))
            return explain_user(pid, &self, &st, note);
    } else if (!has_ptrace(&self) && st.cap_perm & ~self.cap_perm) {
        err_note_what(note, ERR_PERMISSION, "process %d has capabilities that we lack, and we lack CAP_SYS_PTRACE",
                      (int)pid);
        hint_capability(note, pid);
        return ERR_PERMISSION;
    }
    if (scope >= 1 && (!has_ptrace(&self) || scope >= 3))
        return explain_yama(pid, scope, note);
    if (self.seccomp == 2) {
        err_note_what(note, ERR_PERMISSION, "a seccomp filter on us forbids to read other processes");
        err_note_hint(note, "Allow process_vm_readv and ptrace in the container's seccomp profile: "
                            "docker run --cap-add SYS_PTRACE … does it.");
        return ERR_PERMISSION;
    }
    if (!has_ptrace(&self)) {
        err_note_what(note, ERR_PERMISSION,
                      "process %d is not dumpable (it changed its user or forbade it) and we "
                      "lack CAP_SYS_PTRACE",
                      (int)pid);
        hint_capability(note, pid);
        return ERR_PERMISSION;
    }
    err_note_what(note, ERR_PERMISSION,
                  "the kernel refused to let us read process %d (a security module may be the "
                  "cause)",
                  (int)pid);
    err_note_hint(note, "Look for the refusal in the kernel's log: dmesg | tail");
    return ERR_PERMISSION;
}

void access_describe(pid_t pid, struct err_note *note)
{
    char *exe = NULL;

    if (proc_exe_read(pid, &exe) == 0)
        err_note_what(note, ERR_NOT_PYTHON, "process %d runs %s", (int)pid, exe);
    free(exe);
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
