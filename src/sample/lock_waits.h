/*
 * Which lock each thread waits for, and which thread holds it. `dump` only.
 *
 *     lock_waits_note(p, th);              each thread, when its stack was read
 *     lock_waits_read(p, th, &stats, &w);  if it sleeps, before the caller checks that it has not run since
 *     lock_waits_finish(p, waits, ids, n); after all threads: finds the holders of locks that do not store their owner
 */
#ifndef SAMPLE_LOCK_WAITS_H
#define SAMPLE_LOCK_WAITS_H

#include "python/repr/repr.h"
#include "sample/thread_table.h"

struct process;

/* A thread whose stack was read, and its frames in lock_waits.frames. */
struct noted_thread {
    addr_t tstate;
    uint64_t thread_id;
    size_t first, n;
    bool is_cut;              /* it has more frames than fit in there */
    struct sched_stats stats; /* when it was asleep in its wait, if it has one */
    bool waits;
    addr_t object;   /* that it waits for; 0: none */
    addr_t released; /* the lock that it has released in Condition.wait(); 0: none */
};

struct noted_frame {
    struct py_frame frame;
    bool is_threading; /* a function of threading.py, which may use any lock of its objects */
};

/* Zeroed at first. */
struct lock_waits {
    struct repr *repr;
    struct noted_thread *threads;
    size_t n, cap;
    struct noted_frame *frames;
    size_t n_frames, cap_frames;
};

/* Remembers the frames of the stack that was read last. 0 or ERR_NOMEM. */
int lock_waits_note(struct process *p, const struct sampled_thread *th);

/* Fills ret->object for the thread that was noted last. `before`: its times before `ret` was read. */
void lock_waits_read(struct process *p, const struct sampled_thread *th, const struct sched_stats *before,
                     struct wait_reason *ret);

/* `threads`: the IDs of the threads of `waits`. Forgets what was noted. */
void lock_waits_finish(struct process *p, struct wait_reason **waits, const uint64_t *threads, size_t n);

void lock_waits_free(struct lock_waits *w);

#endif
