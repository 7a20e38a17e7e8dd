/*
 * POSIX timers that send SIGCONT and SIGKILL to ourselves.
 *
 * A timer does not fire again before its signal is delivered, and a SIGSTOP that arrives at that moment discards a
 * pending SIGCONT. So there is more than one timer. The handler of SIGCONT runs only if spyglass is not stopped, and
 * restarts all timers: a slow read, or a thread that takes long to stop, must not lead to SIGKILL.
 */
#include "pause/hold_guard.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TIMERS 3

static const struct {
    int signal;
    uint64_t after_ns;
} stages[TIMERS] = {
    {SIGCONT, 100 * NS_PER_MS}, {SIGCONT, 2 * NS_PER_S}, {SIGKILL, 20 * NS_PER_S}, /* frozen, or traced by a debugger */
};

/* One per process, because its timers and signals are. The handler needs it. */
static struct {
    bool tried;
    bool blocks_stop;            /* SIGTSTP would stop us at once */
    volatile sig_atomic_t n;     /* timers; 0: this system does not provide them */
    volatile sig_atomic_t armed; /* they run */
    int timers[TIMERS];
    struct sigaction before; /* of SIGCONT */
} guard;

/* System calls, because timer_settime(3) needs another library before glibc 2.34. */
static void set_timers(bool on)
{
    for (int i = 0; i < guard.n; i++) {
        uint64_t ns = on ? stages[i].after_ns : 0;
        struct itimerspec when = {
            .it_value = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)},
        };

        syscall(SYS_timer_settime, guard.timers[i], 0, &when, NULL);
    }
}

static void on_sigcont(int sig, siginfo_t *info, void *context)
{
    int error = errno;

    if (info->si_code == SI_TIMER) {
        if (guard.armed)
            set_timers(true);
    } else if (guard.before.sa_flags & SA_SIGINFO) { /* cmd/signals.c */
        guard.before.sa_sigaction(sig, info, context);
    }
    errno = error;
}

static void block_stop(int how)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    sigprocmask(how, &set, NULL);
}

static void set_up(void)
{
    struct sigaction action = {.sa_sigaction = on_sigcont, .sa_flags = SA_SIGINFO | SA_RESTART}, stop;
    sigset_t set;

    guard.tried = true;
    guard.blocks_stop = sigaction(SIGTSTP, NULL, &stop) == 0 && stop.sa_handler == SIG_DFL;
    sigfillset(&action.sa_mask);
    sigaction(SIGCONT, &action, &guard.before);
    sigemptyset(&set);
    sigaddset(&set, SIGCONT);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    for (int i = 0; i < TIMERS; i++) {
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = stages[i].signal};

        if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &guard.timers[i]) < 0) {
            log_warning("pause", "no timer to resume a thread if spyglass is stopped: %s", strerror(errno));
            break;
        }
        guard.n = i + 1;
    }
}

void hold_guard_begin(void)
{
    if (!guard.tried)
        set_up();
    if (guard.blocks_stop && !guard.armed)
        block_stop(SIG_BLOCK);
    guard.armed = true;
    set_timers(true);
}

void hold_guard_end(void)
{
    if (!guard.armed)
        return;
    guard.armed = false;
    set_timers(false);
    if (guard.blocks_stop)
        block_stop(SIG_UNBLOCK);
}
