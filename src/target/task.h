/*
 * One thread of a process, with its /proc files kept open: what the kernel is doing with it.
 */
#ifndef TARGET_TASK_H
#define TARGET_TASK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct task {
    pid_t pid, tid;
    int stat_fd, sched_fd; /* -1: opened at each use, when descriptors are short */
    uint64_t stack;        /* where the stack of its process begins; 0: not looked yet, or not told */
    bool replaced;         /* that has changed: the process has executed another program */
};

struct task_look {
    char state; /* R, S, D, T, t, Z … */
    int cpu;    /* where it runs or ran last */
    bool is_realtime;
};

struct sched_stats {
    uint64_t count;   /* how often the kernel gave it a CPU so far */
    uint64_t run_ns;  /* how long it had one */
    uint64_t wait_ns; /* how long it waited for one, up to its last turn */
};

void task_open(struct task *t, pid_t pid, pid_t tid);
void task_close(struct task *t);

/* ERR_NO_PROCESS when the thread is gone, or is one of another program now. */
int task_look(struct task *t, struct task_look *ret);

/* An equal count at two times means that it was not put on a CPU in between: if it was not on one at the first
 * time, it did not run at all. ERR_UNSUPPORTED when the kernel does not tell. */
int task_sched_stats(struct task *t, struct sched_stats *ret);

/* Of a thread that waits in a call of the kernel: its stack pointer, and where it will go on. */
int task_waits_at(const struct task *t, uint64_t *ret_sp, uint64_t *ret_pc);

#endif
