/*
 * Holding one thread while its stack is read: PTRACE_SEIZE, INTERRUPT, wait … DETACH. Never SIGSTOP:
 * the kernel lets a seized thread go when we die, whatever the reason.
 *
 *     if (tracer_attach(&s, tid) == 0) {
 *         … read …
 *         tracer_detach(&s);
 *     }
 *
 * One thread at a time; between samples nothing stays attached, so signals reach the target undelayed.
 */
#ifndef PAUSE_TRACER_H
#define PAUSE_TRACER_H

#include "target/regs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TRACER_LATE_MAX 256

struct tracer {
    pid_t held; /* 0: none */
    int signal; /* a signal that arrived just then, passed on at release */
    uint64_t since_ns;
    uint64_t last_ns; /* how long the last hold was */
    /* Threads that did not stop in time (in the kernel, not to be interrupted): let go once they do. */
    pid_t late[TRACER_LATE_MAX];
    size_t n_late;
    /* A child of ours whose end is to be told if a wait here is the one that sees it; then `exited` is its pid, too. */
    pid_t child;
    pid_t exited;
    int exit_status; /* as of waitpid */
    bool blocked;    /* SIGCHLD is, since the first wait */
};

/* 0; ERR_GONE; ERR_PERMISSION (also when a debugger has it); ERR_STOP when it does not stop within
 * `timeout_ns`: then it is let go as soon as it stops. `same_core`: we are on the core that it runs on. */
int tracer_attach(struct tracer *s, pid_t tid, uint64_t timeout_ns, bool same_core);
void tracer_detach(struct tracer *s);

/* The registers of the thread that is held; `ret_base` is its FS register. ERR_GONE. */
int tracer_regs(const struct tracer *s, struct regs *ret, uint64_t *ret_base);

/* Lets go the late ones that have stopped meanwhile. Cheap when there are none. */
void tracer_sweep(struct tracer *s);
/* The same, and waits for them: before a time in which nobody sweeps. */
void tracer_settle(struct tracer *s, uint64_t most_ns);

#endif
