/*
 * Holding threads by ptrace. Uses SEIZE, INTERRUPT and DETACH only: no register and no byte of the
 * target is written.
 */
#include "pause/tracer.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
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

#define SEIZE_LOOKS      12
#define SEIZE_LOOKS_LENT 3 /* there is another way, and each time it comes to that */
#define SEIZE_PAUSE_NS   (200 * NS_PER_US)

#define SETTLE_PAUSE_NS (1000 * NS_PER_US)

static int code_from_errno(void)
{
    return errno == ESRCH ? ERR_GONE : errno == EPERM || errno == EACCES ? ERR_PERMISSION : ERR_STOP;
}

/* A wait status: held, or gone. Sets the signal to pass on at release. */
static int status_take(struct tracer *s, pid_t tid, int status)
{
    if (!WIFSTOPPED(status)) {
        if (tid == s->child) { /* others of our children may end before anyone asks */
            s->exited = tid;
            s->exit_status = status;
        }
        return ERR_GONE;
    }
    /* A stop that is not ours is a signal on its way in: the thread stands still all the same. */
    s->signal = status >> 16 == PTRACE_EVENT_STOP ? 0 : WSTOPSIG(status);
    return 0;
}

/* Sleeps until a child or a held thread changes. The signal is kept blocked, so that none is missed. */
static void wait_signal(struct tracer *s, uint64_t ns)
{
    struct timespec most = {.tv_nsec = (long)ns};
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    if (!s->blocked)
        sigprocmask(SIG_BLOCK, &set, NULL);
    s->blocked = true;
    sigtimedwait(&set, NULL, &most);
}

/* From another core the thread stops at once, and to sleep would take longer; on its own core it goes on only when we
 * sleep. */
static int wait_stopped(struct tracer *s, pid_t tid, uint64_t timeout_ns, bool same_core)
{
    uint64_t begin = clock_now_ns();
    int status;

    /* It cannot have stopped yet, since we run; unless it was on another core after all: then its signal is there. */
    if (same_core && s->blocked)
        wait_signal(s, WAIT_NS);
    for (;;) {
        pid_t got = waitpid(tid, &status, __WALL | WNOHANG);
        uint64_t waited = clock_now_ns() - begin;

        if (got == tid)
            return status_take(s, tid, status);
        if (got < 0 && errno != EINTR)
            return ERR_GONE;
        if (waited >= timeout_ns)
            return ERR_STOP;
        if (same_core || waited > SPIN_NS)
            wait_signal(s, WAIT_NS);
    }
}

static void late_add(struct tracer *s, pid_t tid)
{
    if (s->n_late < TRACER_LATE_MAX)
        s->late[s->n_late++] = tid;
}

static bool late_has(const struct tracer *s, pid_t tid)
{
    for (size_t i = 0; i < s->n_late; i++)
        if (s->late[i] == tid)
            return true;
    return false;
}

/* Why it was refused. The kernel says EPERM also of a thread that is just ending, which is no want of rights. */
static int code_of_refusal(pid_t tid)
{
    struct proc_stat st;
    int r = code_from_errno();

    if (r == ERR_PERMISSION && (proc_stat_read(tid, 0, &st) < 0 || st.state == 'Z' || st.state == 'X'))
        return ERR_GONE;
    return r;
}

/* Is this tracer one of us? One that has ended since it was named, or hides, is not. */
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

/*
 * A thread has one tracer at a time. Another of our kind lets it go in a moment, as we do: two who press a button at
 * once both get an answer. A debugger keeps it. Returns 0, or an error with errno set by ptrace.
 */
static int seize(pid_t tid, uint64_t timeout_ns)
{
    uint64_t end = clock_now_ns() + timeout_ns;
    struct proc_status st;
    int unseen = 0;

    while (ptrace(PTRACE_SEIZE, tid, 0, 0) < 0) {
        int error = errno;
        bool debugger = false, known = error == EPERM && proc_status_read(tid, 0, &st) == 0;

        /* No tracer: it was let go since, and taken by the next before us, or else nobody may. */
        if (known)
            unseen = is_profiler(st.tracer, &debugger) ? 0 : unseen + 1;
        if (!known || debugger || unseen > (setuid_guard_active() ? SEIZE_LOOKS_LENT : SEIZE_LOOKS)) {
            log_often(LOG_LEVEL_WARNING, "pause", tid, "tid %d: PTRACE_SEIZE: %s%s", (int)tid, strerror(error),
                      debugger ? ", another tracer has it" : "");
            errno = error;
            return ERR_PERMISSION;
        }
        if (clock_now_ns() > end)
            return ERR_STOP;
        clock_sleep_ns(SEIZE_PAUSE_NS);
    }
    return 0;
}

int tracer_attach(struct tracer *s, pid_t tid, uint64_t timeout_ns, bool same_core)
{
    bool lent = false;
    int r;

    if (late_has(s, tid) || s->n_late == TRACER_LATE_MAX)
        return ERR_STOP;
    r = seize(tid, timeout_ns);
    if (r == ERR_STOP)
        return r;
    if (r < 0) {
        lent = errno == EPERM && setuid_guard_seize(tid);
        if (!lent)
            return code_of_refusal(tid);
    }
    r = ptrace(PTRACE_INTERRUPT, tid, 0, 0) < 0 ? code_from_errno() : wait_stopped(s, tid, timeout_ns, same_core);
    s->since_ns = clock_now_ns();
    if (r == 0)
        s->held = tid;
    else if (r != ERR_GONE)
        late_add(s, tid);
    if (r == 0 && lent && !setuid_guard_is_own(tid)) {
        log_warning("pause", "tid %d: no longer a process of the caller, detaching", (int)tid);
        tracer_detach(s);
        return ERR_PERMISSION;
    }
    return r;
}

void tracer_detach(struct tracer *s)
{
    if (!s->held)
        return;
    /* The kernel takes the number of a signal to pass on in place of a pointer. */
    ptrace(PTRACE_DETACH, s->held, 0, (void *)(uintptr_t)s->signal);
    s->last_ns = clock_now_ns() - s->since_ns;
    s->held = 0;
}

int tracer_regs(const struct tracer *s, struct regs *ret, uint64_t *ret_base)
{
    struct user_regs_struct u;
    struct iovec iov = {&u, sizeof(u)};

    if (!s->held || ptrace(PTRACE_GETREGSET, s->held, (void *)NT_PRSTATUS, &iov) < 0 || iov.iov_len != sizeof(u))
        return ERR_GONE;
    *ret = (struct regs){{u.rax, u.rdx, u.rcx, u.rbx, u.rsi, u.rdi, u.rbp, u.rsp, u.r8, u.r9, u.r10, u.r11, u.r12,
                          u.r13, u.r14, u.r15, u.rip}};
    *ret_base = u.fs_base;
    return 0;
}

void tracer_sweep(struct tracer *s)
{
    for (size_t i = 0; i < s->n_late;) {
        pid_t tid = s->late[i];
        int status;
        pid_t got = waitpid(tid, &status, __WALL | WNOHANG);

        if (got == 0) {
            i++;
            continue;
        }
        if (got == tid && status_take(s, tid, status) == 0)
            ptrace(PTRACE_DETACH, tid, 0, (void *)(uintptr_t)s->signal);
        s->late[i] = s->late[--s->n_late];
    }
}

void tracer_settle(struct tracer *s, uint64_t most_ns)
{
    uint64_t end = clock_now_ns() + most_ns;

    for (tracer_sweep(s); s->n_late && clock_now_ns() < end; tracer_sweep(s))
        clock_sleep_ns(SETTLE_PAUSE_NS);
}
