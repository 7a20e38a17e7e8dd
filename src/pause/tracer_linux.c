/*
 * Attaches to threads with ptrace. Uses only SEIZE, INTERRUPT, GETREGSET and DETACH; never writes a
 * register or memory of the target.
 */
#include "pause/tracer.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "pause/hold_guard.h"
#include "target/proc.h"
#include "target/setuid_guard.h"

#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#define SPIN_NS (50 * NS_PER_US)
#define WAIT_NS (20 * NS_PER_MS)

#define SEIZE_TRIES        12
#define SEIZE_TRIES_SETUID 3 /* give up early: every attach then falls back to setuid_guard_seize() */
#define SEIZE_RETRY_NS     (200 * NS_PER_US)

#define SETTLE_RETRY_NS (1000 * NS_PER_US)

/* If a seccomp filter passes our calls to a supervisor, a signal can interrupt them. A thread that is not released stays
 * stopped. */
static long request(enum __ptrace_request what, pid_t tid, void *addr, void *data)
{
    long r;

    do
        r = ptrace(what, tid, addr, data);
    while (r < 0 && errno == EINTR);
    return r;
}

/* PTRACE_DETACH takes the number of the signal to deliver in place of a pointer. */
static void release(pid_t tid, int signal)
{
    if (request(PTRACE_DETACH, tid, NULL, (void *)(uintptr_t)signal) < 0 && errno != ESRCH)
        log_often(LOG_LEVEL_WARNING, "pause", tid, "tid %d: PTRACE_DETACH: %s", (int)tid, strerror(errno));
}

static int code_from_errno(void)
{
    return errno == ESRCH ? ERR_GONE : errno == EPERM || errno == EACCES ? ERR_PERMISSION : ERR_STOP;
}

/* waitpid() of a traced thread, without waiting. The exit status of our child is for launch_poll(): without WEXITED,
 * waitid() fails with ECHILD once the child has exited, and does not reap it. */
static pid_t poll_thread(const struct tracer *s, pid_t tid, int *ret_status)
{
    siginfo_t info = {0};

    if (tid != s->child)
        return waitpid(tid, ret_status, __WALL | WNOHANG);
    if (waitid(P_PID, (id_t)tid, &info, WSTOPPED | __WALL | WNOHANG) < 0)
        return -1;
    *ret_status = W_STOPCODE(info.si_status);
    return info.si_pid;
}

/* Interprets a wait status: stopped, or exited. Sets the signal to deliver at detach. */
static int handle_wait_status(struct tracer *s, int status)
{
    if (!WIFSTOPPED(status))
        return ERR_GONE;
    /* A stop other than ours is a signal delivery; the thread has stopped all the same. */
    s->signal = status >> 16 == PTRACE_EVENT_STOP ? 0 : WSTOPSIG(status);
    return 0;
}

/* Sleeps until a child or a tracee changes state. SIGCHLD stays blocked, so none is missed. */
static void wait_sigchld(struct tracer *s, uint64_t ns)
{
    struct timespec timeout = {.tv_nsec = (long)ns};
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    if (!s->sigchld_blocked)
        sigprocmask(SIG_BLOCK, &set, NULL);
    s->sigchld_blocked = true;
    sigtimedwait(&set, NULL, &timeout);
}

/* A thread on another core stops at once, so spinning is faster than sleeping. A thread on our own core can only run
 * to its stop while we sleep. */
static int wait_stopped(struct tracer *s, pid_t tid, uint64_t timeout_ns, bool same_core)
{
    uint64_t begin = clock_now_ns();
    int status;

    /* It cannot have stopped yet, since we occupy its core. If it was on another core after all, SIGCHLD is already
     * pending. */
    if (same_core && s->sigchld_blocked)
        wait_sigchld(s, WAIT_NS);
    for (;;) {
        pid_t got = poll_thread(s, tid, &status);
        uint64_t waited = clock_now_ns() - begin;

        if (got == tid)
            return handle_wait_status(s, status);
        if (got < 0 && errno != EINTR)
            return ERR_GONE;
        if (waited >= timeout_ns)
            return ERR_STOP;
        if (same_core || waited > SPIN_NS)
            wait_sigchld(s, WAIT_NS);
    }
}

static bool late_has(const struct tracer *s, pid_t tid)
{
    for (size_t i = 0; i < s->n_late; i++)
        if (s->late[i] == tid)
            return true;
    return false;
}

/* Maps errno of a refused attach. The kernel also says EPERM for a thread that is exiting, which is not a lack of
 * permission. */
static int attach_error(pid_t tid)
{
    struct proc_stat st;
    int r = code_from_errno();

    if (r == ERR_PERMISSION && (proc_stat_read(tid, tid, &st) < 0 || st.state == 'Z' || st.state == 'X'))
        return ERR_GONE;
    return r;
}

/* True if the tracer is spyglass or py-spy. A tracer that has exited, or is hidden, is neither that nor a debugger. */
static bool is_profiler(pid_t pid, bool *ret_debugger)
{
    char *name = NULL;
    size_t len;
    bool is;

    *ret_debugger = false;
    if (!pid || proc_read_file(pid, 0, "comm", &name, &len) < 0)
        return false;
    is = strcmp(name, "spyglass\n") == 0 || strcmp(name, "py-spy\n") == 0;
    *ret_debugger = !is;
    free(name);
    return is;
}

/* A thread has one tracer at a time. Another sampling profiler detaches within moments, so retry: two users who run
 * spyglass at once both get an answer. A debugger stays attached, so give up. Returns 0, or an error with errno set
 * by ptrace. */
static int seize(pid_t tid, uint64_t timeout_ns)
{
    uint64_t end = clock_now_ns() + timeout_ns;
    struct proc_status st;
    int no_tracer = 0;

    while (request(PTRACE_SEIZE, tid, NULL, NULL) < 0) {
        int error = errno;
        bool debugger = false, known = error == EPERM && proc_status_read(tid, 0, &st) == 0;

        /* No tracer: either it has just detached and another one was faster than us, or we lack permission. */
        if (known)
            no_tracer = is_profiler(st.tracer, &debugger) ? 0 : no_tracer + 1;
        if (!known || debugger || no_tracer > (setuid_guard_active() ? SEIZE_TRIES_SETUID : SEIZE_TRIES)) {
            log_often(LOG_LEVEL_WARNING, "pause", tid, "tid %d: PTRACE_SEIZE: %s%s", (int)tid, strerror(error),
                      debugger ? ", another tracer has it" : "");
            errno = error;
            return ERR_PERMISSION;
        }
        if (clock_now_ns() > end)
            return ERR_STOP;
        clock_sleep_ns(SEIZE_RETRY_NS);
    }
    return 0;
}

/* Nothing may be attached without the guard. */
static void end_guard(const struct tracer *s)
{
    if (!s->attached && !s->n_late)
        hold_guard_end();
}

static int attach(struct tracer *s, pid_t tid, uint64_t timeout_ns, bool same_core)
{
    bool by_setuid = false;
    int r;

    r = seize(tid, timeout_ns);
    if (r == ERR_STOP)
        return r;
    if (r < 0) {
        by_setuid = errno == EPERM && setuid_guard_seize(tid);
        if (!by_setuid)
            return attach_error(tid);
    }
    r = request(PTRACE_INTERRUPT, tid, NULL, NULL) < 0 ? code_from_errno()
                                                       : wait_stopped(s, tid, timeout_ns, same_core);
    s->attached_at_ns = clock_now_ns();
    if (r == 0)
        s->attached = tid;
    else if (r != ERR_GONE)
        s->late[s->n_late++] = tid; /* there is room: checked above */
    if (r == 0 && by_setuid && !setuid_guard_is_own(tid)) {
        log_warning("pause", "tid %d: no longer a process of the caller, detaching", (int)tid);
        tracer_detach(s);
        return ERR_PERMISSION;
    }
    return r;
}

int tracer_attach(struct tracer *s, pid_t tid, uint64_t timeout_ns, bool same_core)
{
    int r;

    if (late_has(s, tid) || s->n_late == TRACER_LATE_MAX)
        return ERR_STOP;
    hold_guard_begin();
    r = attach(s, tid, timeout_ns, same_core);
    end_guard(s);
    return r;
}

void tracer_detach(struct tracer *s)
{
    if (!s->attached)
        return;
    release(s->attached, s->signal);
    s->last_ns = clock_now_ns() - s->attached_at_ns;
    s->attached = 0;
    end_guard(s);
}

int tracer_regs(const struct tracer *s, struct regs *ret, uint64_t *ret_base)
{
    struct user_regs_struct u;
    struct iovec iov = {&u, sizeof(u)};

    if (!s->attached || request(PTRACE_GETREGSET, s->attached, (void *)NT_PRSTATUS, &iov) < 0 ||
        iov.iov_len != sizeof(u))
        return ERR_GONE;
    *ret = (struct regs){.r = {u.rax, u.rdx, u.rcx, u.rbx, u.rsi, u.rdi, u.rbp, u.rsp, u.r8, u.r9, u.r10, u.r11, u.r12,
                               u.r13, u.r14, u.r15, u.rip}};
    *ret_base = u.fs_base;
    return 0;
}

void tracer_sweep(struct tracer *s)
{
    if (!s->n_late)
        return;
    for (size_t i = 0; i < s->n_late;) {
        pid_t tid = s->late[i];
        int status;
        pid_t got = poll_thread(s, tid, &status);

        if (got == 0) {
            i++;
            continue;
        }
        if (got == tid && handle_wait_status(s, status) == 0)
            release(tid, s->signal);
        s->late[i] = s->late[--s->n_late];
    }
    end_guard(s);
}

void tracer_settle(struct tracer *s, uint64_t timeout_ns)
{
    uint64_t end = clock_now_ns() + timeout_ns;

    for (tracer_sweep(s); s->n_late && clock_now_ns() < end; tracer_sweep(s))
        clock_sleep_ns(SETTLE_RETRY_NS);
}
