/*
 * Signal handlers: they set flags and forward signals to the launched program.
 */
#include "cmd/signals.h"

#include "base/clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* timeout(1) and others signal us and then our process group. Signals within this time count as one request. */
#define ONCE_NS (200 * NS_PER_MS)

/* Set by the handler. */
static volatile sig_atomic_t ended_by, ended_times;
static atomic_bool snapshot_asked, stop_asked;
/* The launched program; 0: none. Signals are blocked while the two change. */
static volatile sig_atomic_t program, program_fd;
/* Time of the last request to end that counted. Only the handler uses it, and nothing interrupts the handler. */
static uint64_t asked_ns;

static bool ends(int sig)
{
    return sig == SIGINT || sig == SIGTERM || sig == SIGHUP || sig == SIGQUIT;
}

static void note_end(int sig)
{
    uint64_t now = clock_now_ns();

    ended_by = sig;
    if (asked_ns && now - asked_ns < ONCE_NS)
        return;
    ended_times = ended_times + 1;
    asked_ns = now;
}

/* A pidfd never refers to another process. Kernels before 5.1 and some seccomp filters have no pidfd_send_signal. */
static void forward(int sig)
{
    if (program_fd >= 0 && (syscall(SYS_pidfd_send_signal, (int)program_fd, sig, NULL, 0) == 0 || errno == ESRCH))
        return;
    kill(program, sig);
}

/* Signals typed at a terminal come from the kernel and reach the whole foreground group, so the program already has
 * them. Signals that the program sends to its own group reach us too; do not send them back. */
static void on_signal(int sig, siginfo_t *info, void *context)
{
    bool typed = info->si_code == SI_KERNEL;
    int error = errno;

    (void)context;
    if (info->si_code == SI_TIMER) /* pause/hold_guard_linux.c */
        return;
    if (sig == SIGUSR1) {
        atomic_store(&snapshot_asked, true);
        return;
    }
    if (ends(sig))
        note_end(sig);
    if (sig == SIGTSTP)
        atomic_store(&stop_asked, true);
    if (program && !typed && info->si_pid != program)
        forward(sig);
    errno = error;
}

static void catch_signal(int sig)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};

    sigfillset(&action.sa_mask);
    sigaction(sig, &action, NULL);
}

/* Signals that we only forward. */
static void program_signals(sigset_t *ret)
{
    static const int signals[] = {SIGUSR2, SIGWINCH, SIGCONT, SIGALRM, SIGIO, SIGPWR};

    sigemptyset(ret);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        sigaddset(ret, signals[i]);
    for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
        sigaddset(ret, sig);
}

void signals_catch(const struct launch_origin *origin)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGTSTP};

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        catch_signal(signals[i]);
    /* Leave SIGHUP ignored under nohup. Catch SIGINT even if a shell made us ignore it: callers use it to stop us. */
    if (!origin || sigismember(&origin->ignored, SIGHUP) != 1)
        catch_signal(SIGHUP);
}

void signals_hold(sigset_t *ret_before)
{
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, ret_before);
}

void signals_release(const struct launch *l, const sigset_t *before)
{
    sigset_t more;

    program = l ? l->pid : 0;
    program_fd = l ? l->pidfd : -1;
    program_signals(&more);
    for (int sig = 1; l && sig <= SIGRTMAX; sig++)
        if (sigismember(&more, sig) == 1)
            catch_signal(sig);
    sigprocmask(SIG_SETMASK, before, NULL);
    if (l)
        sigprocmask(SIG_UNBLOCK, &more, NULL);
}

void signals_forget_program(void)
{
    program = 0;
}

int signals_ended_by(void)
{
    return ended_by;
}

int signals_ended_times(void)
{
    return ended_times;
}

bool signals_take_snapshot(void)
{
    return atomic_exchange(&snapshot_asked, false);
}

bool signals_take_stop(void)
{
    return atomic_exchange(&stop_asked, false);
}

void signals_stop_us(void)
{
    kill(getpid(), SIGSTOP);
}
