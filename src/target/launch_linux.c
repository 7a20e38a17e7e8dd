/*
 * Starts a program with fork and exec, and waits for it.
 */
#include "target/launch.h"

#include "base/clock.h"
#include "base/log.h"
#include "target/proc.h"
#include "target/sudo_caller.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_NS (20 * NS_PER_MS)

void launch_origin_read(struct launch_origin *ret)
{
    struct sigaction action;

    sigprocmask(SIG_SETMASK, NULL, &ret->mask);
    sigemptyset(&ret->ignored);
    for (int sig = 1; sig <= SIGRTMAX; sig++)
        if (sig != SIGKILL && sig != SIGSTOP && sigaction(sig, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            sigaddset(&ret->ignored, sig);
    if (getrlimit(RLIMIT_NOFILE, &ret->files) < 0)
        ret->files = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
    for (int fd = 0; fd <= 2; fd++)
        ret->closed[fd] = fcntl(fd, F_GETFD) < 0;
}

/* exec resets signal handlers, but not ignored and blocked signals. */
static void restore_origin(const struct launch_origin *origin)
{
    for (int sig = 1; sig <= SIGRTMAX; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            signal(sig, sigismember(&origin->ignored, sig) == 1 ? SIG_IGN : SIG_DFL);
    sigprocmask(SIG_SETMASK, &origin->mask, NULL);
    if (origin->files.rlim_cur != RLIM_INFINITY)
        setrlimit(RLIMIT_NOFILE, &origin->files);
    for (int fd = 0; fd <= 2; fd++)
        if (origin->closed[fd])
            close(fd);
}

/* Runs in the child; never returns. */
static void child_exec(char *const argv[], const struct launch_options *options, int output, int report)
{
    int error;

    if (options->origin)
        restore_origin(options->origin);
    if (output >= 0) {
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
    }
    error = options->caller ? sudo_caller_switch(options->caller) : 0;
    if (!error) {
        execvp(argv[0], argv);
        error = errno;
    }
    if (write(report, &error, sizeof(error)) < 0)
        _exit(126);
    _exit(127);
}

/* Reads errno of a failed exec; 0 if exec succeeded and closed the pipe. */
static int exec_error(int report)
{
    int error = 0;
    ssize_t got;

    do
        got = read(report, &error, sizeof(error));
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof(error) ? error : 0;
}

int launch_start(char *const argv[], const struct launch_options *options, struct launch *ret, struct err_note *note)
{
    struct launch l = {.output = options->capture ? memfd_create("output", MFD_CLOEXEC) : -1,
                       .pidfd = -1,
                       .before_reap = options->before_reap};
    int report[2], error;

    if (pipe2(report, O_CLOEXEC) < 0)
        return err_because(note, ERR_LAUNCH, &(struct err_facts){.reason = REASON_PIPE, .error = errno});
    l.adopts = options->adopt && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0;
    l.pid = fork();
    if (l.pid == 0)
        child_exec(argv, options, l.output, report[1]);
    close(report[1]);
    error = l.pid < 0 ? errno : exec_error(report[0]);
    close(report[0]);
    if (!error) {
        l.pidfd = proc_pidfd_open(l.pid);
        log_info("launch", "started pid %d%s", (int)l.pid, l.adopts ? ", adopting its orphans" : "");
        *ret = l;
        return 0;
    }
    if (l.pid > 0)
        waitpid(l.pid, NULL, 0);
    launch_close(&l);
    return err_because(note, ERR_LAUNCH, &(struct err_facts){.reason = REASON_EXEC, .path = argv[0], .error = error});
}

void launch_stop_adopting(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
}

/* waitid() reports the stops of threads that we trace, too, even without WSTOPPED. They are for the tracer: look with
 * WNOWAIT before any other wait call. */
static bool is_exit(const siginfo_t *info)
{
    return info->si_code == CLD_EXITED || info->si_code == CLD_KILLED || info->si_code == CLD_DUMPED;
}

static void reap_orphans(const struct launch *l)
{
    siginfo_t info = {0};

    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && is_exit(&info) && info.si_pid != l->pid) {
        if (waitpid(info.si_pid, NULL, WNOHANG) != info.si_pid)
            break;
        info.si_code = 0;
    }
}

bool launch_poll(struct launch *l)
{
    siginfo_t info = {0};
    int r = l->ended ? 0 : waitid(P_PID, (id_t)l->pid, &info, WEXITED | WNOHANG | WNOWAIT);

    if (is_exit(&info) || (r < 0 && errno == ECHILD)) {
        l->ended = true;
        if (l->before_reap)
            l->before_reap();
        if (r == 0)
            waitpid(l->pid, &l->status, 0);
    }
    if (l->adopts)
        reap_orphans(l);
    return l->ended;
}

void launch_wait(struct launch *l, uint64_t timeout_ns)
{
    struct pollfd fd = {.fd = l->pidfd, .events = POLLIN};
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / NS_PER_S), .tv_nsec = (long)(timeout_ns % NS_PER_S)};

    if (launch_poll(l))
        return;
    if (l->pidfd >= 0)
        ppoll(&fd, 1, &timeout, NULL);
    else
        clock_sleep_ns(timeout_ns < POLL_NS ? timeout_ns : POLL_NS);
    launch_poll(l);
}

bool launch_is_stopped(const struct launch *l)
{
    siginfo_t info = {0};

    return !l->ended && waitid(P_PID, (id_t)l->pid, &info, WSTOPPED | WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == l->pid && info.si_code == CLD_STOPPED;
}

bool launch_needs_us(void)
{
    int tty = open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);
    bool foreground = tty >= 0 && tcgetpgrp(tty) == getpgrp();

    if (tty >= 0)
        close(tty);
    return foreground || getpid() == 1;
}

int launch_exit_status(const struct launch *l)
{
    if (!l->ended)
        return 0;
    return WIFSIGNALED(l->status) ? 128 + WTERMSIG(l->status) : WEXITSTATUS(l->status);
}

void launch_show_output(const struct launch *l, FILE *out)
{
    char buf[4096];
    off_t at = 0;
    ssize_t got;

    /* A signal interrupts a write that nobody reads: leave out the rest. */
    while (l->output >= 0 && !ferror(out) && (got = pread(l->output, buf, sizeof(buf), at)) > 0) {
        fwrite(buf, 1, (size_t)got, out);
        at += got;
    }
}

void launch_close(struct launch *l)
{
    if (l->output >= 0)
        close(l->output);
    if (l->pidfd >= 0)
        close(l->pidfd);
    l->output = l->pidfd = -1;
}
