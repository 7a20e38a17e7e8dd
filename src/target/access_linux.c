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
#define LISTED_MAX 4

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

static void hint_sudo(const struct access_facts *f, struct err_note *note, const char *more)
{
    err_note_hint(note, "Run as root: sudo env \"PATH=$PATH\" %s dump --pid %d%s", program_invocation_short_name,
                  (int)f->pid, more);
}

/* Adds the command that helps where we run. `before` is put in front of it. */
static void hint_capability(const struct access_facts *f, struct err_note *note, const char *before)
{
    if (f->in_pod)
        err_note_hint(note,
                      "%sAdd the capability to the container: securityContext: {capabilities: {add: [SYS_PTRACE]}}. "
                      "Without a restart: kubectl debug -it POD --image=IMAGE --target=CONTAINER --profile=general",
                      before);
    else if (f->in_container || f->self.uid_effective == 0)
        err_note_hint(note,
                      "%sAdd the capability to the container: docker run --cap-add SYS_PTRACE …, or in a pod "
                      "securityContext: {capabilities: {add: [SYS_PTRACE]}}",
                      before);
    else
        hint_sudo(f, note, "");
}

static int judge_namespace(const struct access_facts *f, struct err_note *note)
{
    err_note_what(note, ERR_PERMISSION, "process %d is in another user namespace, where spyglass has no privileges",
                  (int)f->pid);
    err_note_hint(note, "Run spyglass inside its container, or as root on the host: sudo %s dump --pid %d",
                  program_invocation_short_name, (int)f->pid);
    return ERR_PERMISSION;
}

static int judge_user(const struct access_facts *f, struct err_note *note)
{
    char before[128] = "";

    err_note_what(note, ERR_PERMISSION,
                  "process %d belongs to another user (uid %u; you are uid %u) and spyglass lacks CAP_SYS_PTRACE",
                  (int)f->pid, f->target.uid_effective, f->self.uid_effective);
    if (f->in_container)
        snprintf(before, sizeof(before), "Run as that user: docker exec --user %u … Or: ", f->target.uid_effective);
    hint_capability(f, note, before);
    return ERR_PERMISSION;
}

static int judge_setuid(const struct access_facts *f, struct err_note *note)
{
    err_note_what(note, ERR_PERMISSION,
                  "%s is installed setuid and only reads your own processes; process %d belongs to uid %u, or has "
                  "privileges that you do not have",
                  program_invocation_short_name, (int)f->pid, f->target.uid_effective);
    hint_sudo(f, note, "");
    return ERR_PERMISSION;
}

static int judge_yama(const struct access_facts *f, struct err_note *note)
{
    static const char *const limits[] = {"only lets you trace your own children",
                                         "only lets processes with CAP_SYS_PTRACE trace others",
                                         "forbids tracing any process"};

    err_note_what(note, ERR_PERMISSION, "Yama (ptrace_scope=%d) %s", f->yama, limits[f->yama >= 3 ? 2 : f->yama - 1]);
    if (f->yama >= 3)
        err_note_hint(
            note,
            "This setting lasts until the next boot: set kernel.yama.ptrace_scope = 1 in /etc/sysctl.d and reboot.");
    else if (f->in_container)
        hint_capability(f, note, "Launch the program with record -- PROGRAM. Or: ");
    else
        hint_sudo(f, note, " — or allow tracing: sudo sysctl kernel.yama.ptrace_scope=0");
    return ERR_PERMISSION;
}

static int judge_dumpable(const struct access_facts *f, struct err_note *note)
{
    err_note_what(
        note, ERR_PERMISSION,
        "process %d is not dumpable (it changed its user ID or disabled dumping) and spyglass lacks CAP_SYS_PTRACE",
        (int)f->pid);
    hint_capability(f, note, "");
    return ERR_PERMISSION;
}

static int judge_rest(const struct access_facts *f, struct err_note *note)
{
    if (f->readv_filtered) {
        err_note_what(note, ERR_PERMISSION, "a seccomp filter blocks spyglass from reading other processes");
        err_note_hint(note, "Allow process_vm_readv and ptrace in the container's seccomp profile, for example with "
                            "docker run --cap-add SYS_PTRACE …");
        return ERR_PERMISSION;
    }
    if (!has_ptrace(f) && f->target.uid_effective == 0) /* cannot tell for root's processes */
        return judge_dumpable(f, note);
    err_note_what(note, ERR_PERMISSION,
                  "the kernel denied access to process %d (possibly SELinux, AppArmor or another security module)",
                  (int)f->pid);
    err_note_hint(note, "Look for the denial in the kernel log: dmesg | tail");
    return ERR_PERMISSION;
}

static bool has_same_ids(const struct proc_status *self, const struct proc_status *st)
{
    uid_t uid = self->uid_real;
    gid_t gid = self->gid_real;

    return st->uid_real == uid && st->uid_effective == uid && st->uid_saved == uid && st->gid_real == gid &&
           st->gid_effective == gid && st->gid_saved == gid;
}

int access_judge(const struct access_facts *f, struct err_note *note)
{
    bool same = has_same_ids(&f->self, &f->target);

    if (!same && f->is_setuid)
        return judge_setuid(f, note);
    if (!f->same_user_ns && !(same && f->dumpable && f->yama > 0))
        return judge_namespace(f, note);
    if (!same && !has_ptrace(f))
        return judge_user(f, note);
    if (!has_ptrace(f) && f->target.cap_perm & ~f->self.cap_perm) {
        err_note_what(note, ERR_PERMISSION,
                      "process %d has more capabilities than spyglass, and spyglass lacks CAP_SYS_PTRACE", (int)f->pid);
        hint_capability(f, note, "");
        return ERR_PERMISSION;
    }
    if (!f->dumpable && !has_ptrace(f))
        return f->is_setuid ? judge_setuid(f, note) : judge_dumpable(f, note);
    if (f->yama >= 3 || (f->yama >= 1 && !has_ptrace(f)))
        return judge_yama(f, note);
    return judge_rest(f, note);
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

int access_explain(pid_t pid, struct err_note *note)
{
    struct access_facts facts;

    if (access_gather(pid, &facts) < 0) {
        err_note_what(note, ERR_PERMISSION, "/proc/%d is hidden from this user", (int)pid);
        err_note_hint(note, "Run as root: sudo env \"PATH=$PATH\" %s dump --pid %d", program_invocation_short_name,
                      (int)pid);
        return ERR_PERMISSION;
    }
    return access_judge(&facts, note);
}

struct access_reason access_pause_reason(pid_t pid)
{
    struct access_reason reason = {"another tracer is attached, or ptrace is not permitted"};
    struct proc_status st;

    if (access_ptrace_filtered())
        snprintf(reason.text, sizeof(reason.text),
                 "a seccomp filter blocks ptrace; docker run --cap-add SYS_PTRACE … allows it");
    else if (proc_status_read(pid, 0, &st) == 0 && st.tracer)
        snprintf(reason.text, sizeof(reason.text), "process %d is tracing it", (int)st.tracer);
    return reason;
}

/* Appends one process: "4242 (podman/59fb1f64d193)". */
static void append_process(char *list, size_t room, pid_t pid)
{
    size_t used = strlen(list);
    struct container c;

    if (container_of(pid, &c))
        snprintf(list + used, room - used, "%s%d (%s/%.12s)", used ? ", " : "", (int)pid, c.runtime, c.id);
    else
        snprintf(list + used, room - used, "%s%d", used ? ", " : "", (int)pid);
}

void access_hint_container_pid(pid_t pid, struct err_note *note)
{
    char list[256] = "";
    pid_t *pids;
    size_t n, found = 0;
    struct proc_status st;

    if (proc_pids_read(&pids, &n) < 0)
        return;
    for (size_t i = 0; i < n && found < LISTED_MAX; i++)
        if (proc_status_read(pids[i], 0, &st) == 0 && st.in_pid_ns && st.ns_pid == pid) {
            append_process(list, sizeof(list), pids[i]);
            found++;
        }
    free(pids);
    if (found)
        err_note_hint(note, "PID %d in the container is PID %s on this host.", (int)pid, list);
}

void access_describe(pid_t pid, int code, struct err_note *note)
{
    char *exe = NULL;

    if (proc_exe_read(pid, &exe) == 0)
        err_note_what(note, code, "process %d runs %s", (int)pid, exe);
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
