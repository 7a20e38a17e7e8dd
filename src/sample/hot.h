/*
 * The threads of a process that run, so that the many that sleep need not be looked at one by one.
 */
#ifndef SAMPLE_HOT_H
#define SAMPLE_HOT_H

#include "sample/thread_table.h"

#include <time.h>

struct hot {
    clockid_t clock; /* the CPU time of the whole process */
    bool has_clock;
    uint64_t noted_ns;                     /* when all threads were last looked at; 0: they must be */
    uint64_t noted_cpu_ns, noted_items_ns; /* CPU time then: of the process, of the threads below */
    struct known_thread **items;           /* threads that were not asleep then */
    size_t n, cap;
};

void hot_open(struct hot *h, pid_t pid);
void hot_free(struct hot *h);

/* After all threads were looked at: remembers those that were not asleep. */
int hot_note(struct hot *h, struct thread_table *table, const struct py_threads *threads);

/* The table has changed: what was noted is not valid any more. */
void hot_forget(struct hot *h);

/* True when the threads noted account for all CPU time since: the others still sleep. */
bool hot_are_all(const struct hot *h);

#endif
