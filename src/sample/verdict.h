/*
 * Why a process does not continue: from what its threads wait for to a cycle, or to the one thing that they all wait for. Pure: the
 * traces are all that it knows.
 */
#ifndef SAMPLE_VERDICT_H
#define SAMPLE_VERDICT_H

#include "sample/trace.h"

enum verdict_kind {
    VERDICT_NONE,
    VERDICT_DEADLOCK, /* the threads wait for each other; one thread: for itself */
    VERDICT_CHILD,    /* the thread waits for another process that waits for this one */
    VERDICT_ORPHAN,   /* the last thread waits for a lock of a thread that has exited */
    VERDICT_GIL,      /* the thread holds the GIL, for which others wait, and nothing else runs */
    VERDICT_STOPPED,  /* all threads wait, in the end, for one process that is stopped, or are stopped themselves */
    VERDICT_WAITS,    /* no cycle: the last thread waits for something else, or runs */
};

#define VERDICT_THREADS_MAX 32

struct verdict {
    enum verdict_kind kind;
    bool certain;
    /* Each waits for the next; in a deadlock, the last one for the first. */
    const struct trace *threads[VERDICT_THREADS_MAX];
    size_t n;        /* may be more than the array has room for */
    size_t n_others; /* other threads that wait for one of these, directly or not; VERDICT_GIL: for the GIL */
    bool all_others; /* VERDICT_GIL: all threads but the holder */
    const struct awaited_process *process; /* VERDICT_STOPPED: the stopped process; NULL: this one */
};

/* The traces are those of one process, the main thread first. A deadlock comes before all else, and a certain one before a likely one.
 * 0 or ERR_NOMEM. */
int verdict_find(const struct trace *traces, size_t n, struct verdict *ret);

#endif
