/*
 * One thread of a process, with its /proc files kept open: what the kernel is doing with it.
 */
#ifndef TARGET_TASK_H
#define TARGET_TASK_H

#include <stdint.h>
#include <sys/types.h>

struct task {
    pid_t pid, tid;
    int stat_fd, sched_fd; /* -1: opened at each use, when descriptors are short */
};

void task_open(struct task *t, pid_t pid, pid_t tid);
void task_close(struct task *t);

/* R, S, D, T, t, Z …; ERR_NO_PROCESS when the thread is gone. */
int task_state(struct task *t, char *ret_state);

/* How often the kernel gave it a CPU so far: equal at two times means that it did not run in between
 * (unless it ran all the while, which its state R at both times tells). ERR_UNSUPPORTED when unknown. */
int task_turns(struct task *t, uint64_t *ret_turns);

#endif
