/*
 * Scheduler state of one thread, read from /proc files that stay open.
 */
#ifndef TARGET_TASK_H
#define TARGET_TASK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct task {
    pid_t pid, tid;
    int stat_fd, schedstat_fd; /* -1: opened for each read, if descriptors are scarce */
    int syscall_fd;            /* the same; opened at the first use */
    int sched_fd;              /* the same, of the file sched */
    uint64_t stack;            /* address of the process's stack; 0: not read yet, or hidden */
    bool execed;               /* that address has changed: the process has called exec */
};

#define TASK_NO_FILES .stat_fd = -1, .schedstat_fd = -1, .syscall_fd = -1, .sched_fd = -1

struct task_look {
    char state; /* R, S, D, T, t, Z, … */
    int cpu;    /* where it runs or ran last */
    bool is_realtime;
};

struct sched_stats {
    uint64_t run_count; /* how often the kernel has put it on a CPU */
    uint64_t run_ns;    /* time on a CPU */
    uint64_t wait_ns;   /* time in a run queue, up to when it last got a CPU */
};

void task_open(struct task *t, pid_t pid, pid_t tid);
void task_close(struct task *t);

/* ERR_NO_PROCESS if the thread has exited, or its process has called exec. */
int task_look(struct task *t, struct task_look *ret);

/* ERR_UNSUPPORTED if the kernel has no schedstat. To find out whether a thread ran, see sched_stats_equal. */
int task_sched_stats(struct task *t, struct sched_stats *ret);

/* True if the thread, which was off-CPU at the first reading, did not run between the two. The run count alone is not enough: a
 * thread in state S may be about to call schedule(), find that its wait is over, and run on without a context switch. */
static inline bool sched_stats_equal(const struct sched_stats *a, const struct sched_stats *b)
{
    return a->run_count == b->run_count && a->run_ns == b->run_ns;
}

struct task_run {
    /* When the thread was last charged for CPU time, on the clock of its CPU. If it is off-CPU: when it last ran, or 0 if the
     * kernel has moved it to another CPU since. */
    uint64_t charged_ns;
    uint64_t switches; /* how often it was taken off a CPU: while it runs, this is one less than its run count */
};

/* ERR_UNSUPPORTED if the kernel has no /proc/PID/task/TID/sched. */
int task_last_run(struct task *t, struct task_run *ret);

/* Stack pointer and program counter of a thread that is not in state R: in user space, where it called the kernel, or where the
 * kernel interrupted it. ERR_UNSUPPORTED if it is running, or if we may not know. */
int task_waits_at(struct task *t, uint64_t *ret_sp, uint64_t *ret_pc);

/* The text of /proc/PID/task/TID/syscall. ERR_UNSUPPORTED if we may not read it. */
int task_syscall_text(struct task *t, char *buf, size_t size);

/* The address of the futex that a thread sleeps on, and its stack pointer. ERR_TORN if it is awake; ERR_UNSUPPORTED if it
 * sleeps for another reason, or if we may not know: this needs the same permission as reading the memory. */
int task_sleeps_on(struct task *t, uint64_t *ret_futex, uint64_t *ret_sp);

#endif
