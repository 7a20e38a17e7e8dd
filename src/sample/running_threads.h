/*
 * Which threads of a process can have run since the last sample. A process with a thousand sleeping threads, or a
 * thousand sleeping processes, must not cost a thousand reads per sample.
 *
 * If the process CPU clock has advanced no further than the run times of the threads that were awake, no other thread
 * ran. While a thread runs on another CPU the clock lags behind, so the GIL holder is checked, too.
 */
#ifndef SAMPLE_RUNNING_THREADS_H
#define SAMPLE_RUNNING_THREADS_H

#include "sample/thread_table.h"

/* Zeroed at first. */
struct running_threads {
    bool all_idle;                 /* no thread was awake at the last sample */
    struct sampled_thread **items; /* threads that were awake when all were last read */
    size_t n, cap;
    uint64_t noted_ns;             /* when that was; 0: unknown, read all threads */
    uint64_t process_ns, items_ns; /* CPU time at that point: of the process, of `items` */
    addr_t gil_holder;             /* at that point, if no thread was awake */
};

void running_threads_free(struct running_threads *rt);

/* Call it when the list of threads has changed. */
void running_threads_forget(struct running_threads *rt);

/* Call it before reading all threads: the CPU time to pass to running_threads_note_idle. 0, without a system call,
 * unless the process was idle at the last sample. */
uint64_t running_threads_clock(const struct running_threads *rt, pid_t pid);

/* Call it after all threads were read and found off-CPU. */
void running_threads_note_idle(struct running_threads *rt, uint64_t process_ns, addr_t gil_holder);

/* Call it after all threads were read. Notes the threads that were awake. 0 or ERR_NOMEM. */
int running_threads_note(struct running_threads *rt, pid_t pid, struct thread_table *table,
                         const struct py_threads *threads);

/* True when no thread but `items` can have run since running_threads_note. With `poll_each`, compares the run count of
 * each thread as well: for few threads. */
bool running_threads_is_complete(const struct running_threads *rt, pid_t pid, struct thread_table *table,
                                 const struct py_threads *threads, const struct python *py, bool poll_each);

#endif
