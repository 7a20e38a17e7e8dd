/*
 * Keeps one thread from running while it is read, by the least intrusive method that works, and proves afterwards that
 * it did not run.
 *
 * - asleep: the thread is off-CPU, so leave it alone.
 * - same core: the sampler pins itself to the CPU that the thread runs on. While the sampler runs, the thread cannot.
 * - ptrace: PTRACE_SEIZE and PTRACE_INTERRUPT, where the sampler may not run on that CPU, or registers are needed that the
 *   kernel does not show otherwise.
 * - unpaused: ptrace is refused or unwanted. The reader must handle stacks that change during the read.
 * - dead: a thread of a core file.
 *
 * The first two rely on /proc/PID/task/TID/schedstat: if the run count and the CPU time are the same before and after the
 * read, the thread did not run in between.
 *
 *     r = pause_begin(pauser, thread, PAUSE_ANY, 0, &pause);
 *     ... read ...
 *     r = pause_end(pauser, thread, &pause);      0: the thread did not run in between
 */
#ifndef PAUSE_PAUSE_H
#define PAUSE_PAUSE_H

#include "base/addr.h"
#include "pause/cpu_affinity.h"
#include "pause/perf_regs.h"
#include "pause/tracer.h"
#include "target/task.h"

enum pause_method { PAUSE_ASLEEP, PAUSE_SAME_CORE, PAUSE_PTRACE, PAUSE_UNPAUSED, PAUSE_DEAD, PAUSE_METHODS };

enum pause_need {
    PAUSE_ANY,
    PAUSE_REGS, /* its registers; of a sleeping thread the stack pointer and the program counter, with `sleeper_regs` */
    PAUSE_STOP, /* all of its registers, or the gentle methods have failed for this stack */
};

#define PAUSE_HISTOGRAM 128

/* One per session. */
struct pauser {
    /* Configuration. */
    bool nonblocking;     /* never stop a thread */
    bool use_same_core;   /* prefer the thread's own core to ptrace */
    bool sleeper_regs;    /* ask /proc for two registers of a sleeping thread, instead of stopping it */
    bool want_idle;       /* the caller also reads threads that are not in state R */
    uint64_t patience_ns; /* total time to wait for threads that get no CPU to stop on; 0: do not wait */
    /* State. */
    struct tracer tracer;
    struct cpu_affinity affinity;
    bool avoid_cores;           /* the kernel schedules us late on the target's core: use ptrace from another one */
    bool ptrace_refused;        /* PTRACE_SEIZE failed with EPERM: read unpaused instead */
    uint64_t unpinned_until_ns; /* the last traced thread moved to another core: do not follow it before then */
    uint64_t waited_ns;         /* of patience_ns */
    /* Results. */
    uint64_t reads[PAUSE_METHODS]; /* stacks read with each method; counted by the caller */
    uint64_t pauses, paused_ns, longest_ns;
    uint64_t histogram[PAUSE_HISTOGRAM]; /* of pause lengths: four slots per power of two, from 256 ns */
};

/* A thread of the target as the kernel knows it, with what the methods remember from one sample to the next. */
struct os_thread {
    pid_t tid;        /* in our pid namespace; 0 when unknown */
    struct task task; /* open when tid is not 0 */
    bool dead;        /* of a core file: there is no task */
    bool was_running; /* when it died */
    struct sched_stats stats;
    bool stats_fresh;          /* `stats` were read during this sample, before pause_begin */
    uint64_t left_ns;          /* when we last left it running on our core; 0: we did not */
    int left_cpu;              /* that core */
    struct sched_stats left;   /* its stats at that time */
    bool steady;               /* from that sample to the next it was scheduled once, and nothing else ran in between */
    uint64_t running_until_ns; /* unpaused: do not read its state again before then */
    struct perf_regs perf_regs;
};

/* One pause. */
struct pause {
    enum pause_method method;
    struct task_look look;    /* the kernel's view of the thread at the beginning */
    struct sched_stats stats; /* at the beginning; after a successful pause_end at the end */
    uint64_t since_ns;
    addr_t cpu_word; /* not 0: the caller must check that this word of the target still names our CPU */
    bool
        check_after; /* schedstat was not read at the beginning. After ERR_TORN, retry at once: the retry reads it first */
};

/* Closes the /proc files and the perf event. */
void os_thread_close(struct os_thread *t);

/* 0; ERR_GONE when the thread has ended; ERR_STOP when it did not stop in time. `cpu_word`: the address at which the target's
 * C library keeps the number of the thread's current CPU, or 0. Without ptrace, the thread may not be as `need` says. */
int pause_begin(struct pauser *ps, struct os_thread *t, enum pause_need need, addr_t cpu_word, struct pause *ret);

/* 0 when the thread did not run since pause_begin, ERR_TORN when it may have. Always 0 for PAUSE_UNPAUSED. */
int pause_end(struct pauser *ps, struct os_thread *t, struct pause *p);

/* The registers of the thread: from ptrace, from its last context switch, or the two that /proc shows of a sleeping thread.
 * `thread_id` is its pthread_t, which is where FS points with glibc and musl. False when they are not available with this
 * method. Those of a sleeping thread are valid if pause_end returns 0. */
bool pause_regs(struct pauser *ps, struct os_thread *t, const struct pause *p, uint64_t thread_id, struct regs *ret,
                uint64_t *ret_fs_base);

/* True when pause_begin will predict that the thread is on our core, and not read its schedstat first. */
bool pause_checks_after(const struct pauser *ps, const struct os_thread *t, uint64_t now);

/* True when running threads are read from their own core. */
bool pause_uses_same_core(const struct pauser *ps);

/* For the log. */
const char *pause_method_name(enum pause_method method);

/* The length that this share of the pauses do not exceed, within an eighth. 50: the median. */
uint64_t pause_percentile_ns(const struct pauser *ps, unsigned int percent);

#endif
