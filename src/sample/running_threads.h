/*
 * Which threads of a process can have run since the last sample. A process with a thousand sleeping threads, or a thousand
 * sleeping processes, must not cost a thousand reads per sample.
 *
 * The process CPU clock shows that something ran; the run times of the threads that were awake show whether it was they. The
 * clock lags behind while a thread runs on another CPU, so the GIL holder is checked, too.
 */
#ifndef SAMPLE_RUNNING_THREADS_H
#define SAMPLE_RUNNING_THREADS_H

#include "sample/thread_table.h"

/* Zeroed at first. */
struct running_threads {
    bool all_idle;                 /* no thread was awake at the last sample */
    struct sampled_thread **items; /* threads that were awake when all were last read */
    size_t n, cap;
    uint64_t noted_ns;             /* when that was; 0: unknown, read all */
    uint64_t process_ns, items_ns; /* CPU time then: of the process, of `items` */
    addr_t gil_holder;             /* then, if no thread was awake */
};

void running_threads_free(struct running_threads *rt);

/* The list of threads has changed. */
void running_threads_forget(struct running_threads *rt);

/* Before all threads are read: the CPU time to pass to running_threads_note. Only worth its system call, and not 0, if the
 * process was idle at the last sample. */
uint64_t running_threads_clock(const struct running_threads *rt, pid_t pid);

/* After all threads were read and found off-CPU. */
void running_threads_note_idle(struct running_threads *rt, uint64_t process_ns, addr_t gil_holder);

/* After all threads were read: notes those that were awake. 0 or ERR_NOMEM. */
int running_threads_note(struct running_threads *rt, pid_t pid, struct thread_table *table,
                         const struct py_threads *threads);

/* True when no thread but `items` can have run since they were noted. `poll_each`: there are few enough threads to compare
 * each one's run count. */
bool running_threads_is_complete(const struct running_threads *rt, pid_t pid, struct thread_table *table,
                                 const struct py_threads *threads, const struct python *py, bool poll_each);

#endif
