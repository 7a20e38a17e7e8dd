/*
 * Gives the PID of a profiled process to another one, in the middle of a sample.
 *
 *     reuse_pid read "python a.py" "python b.py" "spyglass record -o out --pid"
 *
 * Starts the first program, waits for a line from it, and runs the profiler with its PID added. Once a byte comes from
 * standard input, the profiler's next process_vm_readv ("read") or PTRACE_SEIZE ("seize") is held until the first program is
 * dead, and the second one runs with the same PID and has printed a line. Address space layout randomization is off, so both
 * have the same addresses. Exits with the profiler's status; 125: this machine does not allow it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail(const char *what)
{
    fprintf(stderr, "reuse_pid: %s: %s\n", what, strerror(errno));
    exit(125);
}

/* Starts a program and returns its PID when it has printed a line. `pid`: the PID that it gets; 0: any. */
static pid_t start(const char *command, pid_t pid)
{
    struct clone_args args = {.exit_signal = SIGCHLD, .set_tid = pid ? (uintptr_t)&pid : 0, .set_tid_size = pid != 0};
    char shell[4096], line[256];
    int ends[2];
    pid_t got;

    snprintf(shell, sizeof(shell), "exec %s", command);
    if (pipe(ends) < 0)
        fail("pipe");
    got = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (got < 0)
        fail("clone3");
    if (got == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        personality(ADDR_NO_RANDOMIZE);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/bin/sh", "sh", "-c", shell, NULL);
        _exit(127);
    }
    close(ends[1]);
    if (read(ends[0], line, sizeof(line)) <= 0)
        fail(command);
    return got;
}

/* The profiler's system call waits for our answer. */
static int install(unsigned call)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

struct child {
    char command[4096];
    unsigned call;
    volatile int listener; /* shared until exec; -1: not yet */
};

static int child_main(void *arg)
{
    struct child *c = arg;
    int fd = install(c->call);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    c->listener = fd < 0 ? -2 : fd;
    execl("/bin/sh", "sh", "-c", c->command, NULL);
    _exit(127);
}

static void swap(pid_t pid, const char *command)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    start(command, pid);
}

int main(int argc, char **argv)
{
    static struct child c = {.listener = -1};
    static char stack[1 << 16];
    int status = 0, swaps = 0;
    pid_t pid, profiler;

    if (argc != 5)
        return 125;
    c.call = strcmp(argv[1], "seize") == 0 ? SYS_ptrace : SYS_process_vm_readv;
    pid = start(argv[2], 0);
    snprintf(c.command, sizeof(c.command), "exec %s %d", argv[4], (int)pid);
    profiler = clone(child_main, stack + sizeof(stack), CLONE_VM | CLONE_FILES | SIGCHLD, &c);
    while (c.listener == -1)
        usleep(1000);
    if (profiler < 0 || c.listener < 0)
        fail("seccomp");
    while (waitpid(profiler, &status, WNOHANG) == 0) {
        struct pollfd fds[2] = {{.fd = c.listener, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
        struct seccomp_notif q = {0};
        struct seccomp_notif_resp a = {.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};

        if (poll(fds, 2 - (swaps > 0), 20) <= 0 || !(fds[0].revents & POLLIN) ||
            ioctl(c.listener, SECCOMP_IOCTL_NOTIF_RECV, &q) < 0)
            continue;
        if (!swaps && fds[1].revents & POLLIN && (c.call != SYS_ptrace || q.data.args[0] == PTRACE_SEIZE)) {
            swaps++;
            swap(pid, argv[3]);
        }
        a.id = q.id;
        ioctl(c.listener, SECCOMP_IOCTL_NOTIF_SEND, &a);
    }
    kill(pid, SIGKILL);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
