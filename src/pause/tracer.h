/*
 * Stops one thread with ptrace while its stack is read: PTRACE_SEIZE, INTERRUPT, wait, DETACH. Never
 * SIGSTOP, so the kernel resumes the thread if spyglass dies for whatever reason.
 *
 * One thread at a time. Nothing stays attached between samples, so signals reach the target without
 * delay.
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
    pid_t attached; /* the attached thread; 0: none */
    int signal;     /* a signal that arrived while we attached; tracer_detach() delivers it */
    uint64_t attached_at_ns;
    uint64_t last_ns; /* how long the last thread was stopped */
    /* Threads that did not stop in time because they sleep uninterruptibly in the kernel. tracer_sweep() detaches
     * them once they stop. */
    pid_t late[TRACER_LATE_MAX];
    size_t n_late;
    pid_t child;          /* a child of ours whose exit status must not be consumed here; 0: none */
    bool sigchld_blocked; /* SIGCHLD has been blocked since the first wait */
};

/* 0; ERR_GONE; ERR_PERMISSION (also if a debugger is attached); ERR_STOP if the thread does not stop within
 * `timeout_ns`; it is then detached as soon as it stops. `same_core`: we run on the core of the thread. */
int tracer_attach(struct tracer *s, pid_t tid, uint64_t timeout_ns, bool same_core);
void tracer_detach(struct tracer *s);

/* Registers of the attached thread; `ret_base` is its FS base. ERR_GONE. */
int tracer_regs(const struct tracer *s, struct regs *ret, uint64_t *ret_base);

/* Detaches late threads that have stopped since. Cheap if there are none. */
void tracer_sweep(struct tracer *s);
/* The same, but waits for them. Call it before a time without sweeps. */
void tracer_settle(struct tracer *s, uint64_t timeout_ns);

#endif
