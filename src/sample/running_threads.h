/*
 * The threads of a process that run, so that the many that sleep need not be looked at one by one.
 */
#ifndef SAMPLE_RUNNING_THREADS_H
#define SAMPLE_RUNNING_THREADS_H

#include "sample/thread_table.h"

#include <time.h>

struct running_threads {
    clockid_t clock; /* the CPU time of the whole process */
    bool has_clock;
    uint64_t noted_ns;                     /* when all threads were last looked at; 0: they must be */
    uint64_t noted_cpu_ns, noted_items_ns; /* CPU time then: of the process, of the threads below */
    struct known_thread **items;           /* threads that were not asleep then */
    size_t n, cap;
};

void running_threads_open(struct running_threads *h, pid_t pid);
void running_threads_free(struct running_threads *h);

/* After all threads were looked at: remembers those that were not asleep. */
int running_threads_note(struct running_threads *h, struct thread_table *table, const struct py_threads *threads);

/* The table has changed: what was noted is not valid any more. */
void running_threads_forget(struct running_threads *h);

/* True when the threads noted account for all CPU time since: the others still sleep. */
bool running_threads_are_all(const struct running_threads *h);

#endif
