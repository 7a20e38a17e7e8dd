/*
 * Runs a program with restrictions: system calls that fail with a given error, as under an old kernel, a strict seccomp
 * profile or Yama.
 *
 *     deny ENOSYS:openat2 EPERM:process_vm_readv -- spyglass dump --pid 4242
 *     deny EACCES:/mem -- …        opening any path that ends in /mem fails; the program is then our child
 *     deny yama -- …               the program can only read the memory of its descendants, unless it has
 *                                  CAP_SYS_PTRACE in effect: as with kernel.yama.ptrace_scope = 1
 *
 * Installing the seccomp filter needs root or PR_SET_NO_NEW_PRIVS; deny sets the latter if it is not root.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define RULES_MAX 32

struct name {
    const char *name;
    int number;
};

static const struct name calls[] = {
    {"openat2", __NR_openat2},
    {"pidfd_open", SYS_pidfd_open},
    {"process_vm_readv", SYS_process_vm_readv},
    {"ptrace", SYS_ptrace},
    {"perf_event_open", SYS_perf_event_open},
    {"getrandom", SYS_getrandom},
    {"memfd_create", SYS_memfd_create},
    {"sched_setaffinity", SYS_sched_setaffinity},
    {"sched_getaffinity", SYS_sched_getaffinity},
    {"sched_setscheduler", SYS_sched_setscheduler},
    {"sched_setattr", SYS_sched_setattr},
    {"setgroups", SYS_setgroups},
    {"setresuid", SYS_setresuid},
    {"capget", SYS_capget},
    {"prlimit64", SYS_prlimit64},
    {"statx", SYS_statx},
    {"rseq", SYS_rseq},
    {"clone3", SYS_clone3},
    {"faccessat2", SYS_faccessat2},
    {"close_range", SYS_close_range},
    {"prctl", SYS_prctl},
    {"socket", SYS_socket},
    {NULL, 0},
};

static const struct name errors[] = {
    {"ENOSYS", ENOSYS}, {"EPERM", EPERM}, {"EACCES", EACCES}, {"EINVAL", EINVAL}, {NULL, 0}};

struct rules {
    struct sock_filter code[2 * RULES_MAX + 8];
    unsigned short n;
    const char *ending; /* the end of paths that may not be opened; NULL: none */
    int ending_errno;
    bool yama;
};

static void fail(const char *what)
{
    fprintf(stderr, "deny: %s: %s\n", what, strerror(errno));
    exit(125);
}

static int look_up(const struct name *table, const char *name, size_t len)
{
    for (; table->name; table++)
        if (strlen(table->name) == len && memcmp(table->name, name, len) == 0)
            return table->number;
    errno = EINVAL;
    fail(name);
    return -1;
}

static void add(struct rules *r, struct sock_filter instruction)
{
    r->code[r->n++] = instruction;
}

static void add_rule(struct rules *r, const char *rule)
{
    const char *colon = strchr(rule, ':');

    if (strcmp(rule, "yama") == 0) {
        r->yama = true;
        r->ending = "/mem";
        r->ending_errno = EACCES;
        return;
    }
    int error = look_up(errors, rule, colon ? (size_t)(colon - rule) : strlen(rule));

    if (!colon || r->n > 2 * RULES_MAX)
        exit(125);
    if (colon[1] == '/') {
        r->ending = colon + 1;
        r->ending_errno = error;
        return;
    }
    add(r, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                        (unsigned)look_up(calls, colon + 1, strlen(colon + 1)), 0, 1));
    add(r, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((unsigned)error & SECCOMP_RET_DATA)));
}

/* The seccomp listener that receives the calls to decide about, or 0. */
static int install(struct rules *r)
{
    static const int asked[] = {SYS_openat, SYS_process_vm_readv, SYS_ptrace};
    struct sock_fprog program = {.filter = r->code};
    int fd;

    for (int i = 0; r->ending && i < (r->yama ? 3 : 1); i++) {
        add(r, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)asked[i], 0, 1));
        add(r, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
    }
    add(r, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    program.len = r->n;
    if (geteuid() != 0)
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, r->ending ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0, &program);
    if (fd < 0)
        fail("cannot install the filter");
    return fd;
}

/* A number from /proc/PID/status; -1 if there is no such process. */
static long long status_number(unsigned pid, const char *name, int base)
{
    char file[64], line[256];
    long long value = -1;
    FILE *f;

    snprintf(file, sizeof(file), "/proc/%u/status", pid);
    f = fopen(file, "re");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtoll(line + strlen(name), NULL, base);
    if (f)
        fclose(f);
    return value;
}

static bool is_below(unsigned pid, unsigned top)
{
    long long parent = pid;

    while (parent > 0 && parent != top)
        parent = status_number((unsigned)parent, "PPid:", 10);
    return parent == top;
}

/* What Yama would decide. The kernel itself reports a process that does not exist. */
static bool yama_allows(unsigned who, unsigned target)
{
    return status_number(who, "CapEff:", 16) >> 19 & 1 || status_number(target, "Pid:", 10) < 0 ||
           is_below(target, who);
}

static void read_path(const struct seccomp_notif *q, char *path, size_t room)
{
    char file[64];
    size_t len = 0;
    int fd;

    snprintf(file, sizeof(file), "/proc/%u/mem", q->pid);
    fd = open(file, O_RDONLY | O_CLOEXEC);
    while (len < room - 1 && pread(fd, path + len, 1, (off_t)(q->data.args[1] + len)) == 1 && path[len])
        len++;
    path[len] = '\0';
    close(fd);
}

/* The PID in "/proc/PID/mem" or, if the path is only "mem", of the open directory. */
static unsigned pid_of_path(const struct seccomp_notif *q, const char *path)
{
    char file[64], link[4096] = "";

    if (path[0] != '/') {
        snprintf(file, sizeof(file), "/proc/%u/fd/%d", q->pid, (int)q->data.args[0]);
        if (readlink(file, link, sizeof(link) - 1) < 0)
            return 0;
        path = link;
    }
    return strncmp(path, "/proc/", 6) == 0 ? (unsigned)atoi(path + 6) : 0;
}

/* 0 to continue, otherwise the error. */
static int judge(const struct rules *r, const struct seccomp_notif *q)
{
    char path[4096] = "";
    size_t len, ending = strlen(r->ending);

    if (q->data.nr == SYS_process_vm_readv)
        return yama_allows(q->pid, (unsigned)q->data.args[0]) ? 0 : EPERM;
    if (q->data.nr == SYS_ptrace)
        return q->data.args[0] != PTRACE_SEIZE || yama_allows(q->pid, (unsigned)q->data.args[1]) ? 0 : EPERM;
    read_path(q, path, sizeof(path));
    len = strlen(path);
    if (!(len >= ending && strcmp(path + len - ending, r->ending) == 0) && strcmp(path, r->ending + 1) != 0)
        return 0;
    return r->yama && yama_allows(q->pid, pid_of_path(q, path)) ? 0 : r->ending_errno;
}

static void answer(int listener, const struct rules *r)
{
    struct seccomp_notif q = {0};
    struct seccomp_notif_resp a = {0};

    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &q) < 0)
        return;
    a.id = q.id;
    a.error = -judge(r, &q);
    if (!a.error)
        a.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &a);
}

struct child {
    struct rules *rules;
    char **argv;
    volatile int listener; /* shared with the parent until exec */
};

static int child_main(void *arg)
{
    struct child *c = arg;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    c->listener = install(c->rules);
    execvp(c->argv[0], c->argv);
    _exit(127);
}

/* Starts the program as a child that shares our memory and descriptors until exec, so that we own its listener. */
static int supervise(struct rules *r, char **argv)
{
    struct child c = {r, argv, -1};
    char *stack = malloc(1 << 16);
    int status = 0;
    pid_t pid;

    if (!stack)
        fail("memory");
    pid = clone(child_main, stack + (1 << 16), CLONE_VM | CLONE_FILES | SIGCHLD, &c);
    if (pid < 0)
        fail("clone");
    while (c.listener < 0)
        usleep(1000);
    while (waitpid(pid, &status, WNOHANG) == 0) {
        struct pollfd p = {.fd = c.listener, .events = POLLIN};

        if (poll(&p, 1, 20) > 0 && p.revents & POLLIN)
            answer(c.listener, r);
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    struct rules r = {.n = 0};
    int i;

    add(&r, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    for (i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        add_rule(&r, argv[i]);
    if (i + 1 >= argc)
        return 125;
    if (r.ending)
        return supervise(&r, argv + i + 1);
    install(&r);
    execvp(argv[i + 1], argv + i + 1);
    fail(argv[i + 1]);
    return 127;
}
