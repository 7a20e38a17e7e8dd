/*
 * Keeping a thread still while it is read, by the gentlest way that works.
 *
 *     pause_begin(&fz, s, k, false);
 *     … read …
 *     r = pause_end(&fz, s, k);                   // 0: it stood still all the while
 *
 * A thread that sleeps is left alone. One that runs cannot run on while we are on its core, which takes no call
 * on it at all; where we may not go there, it is held by ptrace; where that is refused, it is read as it runs.
 * In the first two ways the kernel's count of its turns on a CPU proves afterwards that it did not run.
 */
#ifndef SAMPLE_PAUSE_H
#define SAMPLE_PAUSE_H

#include "sample/sampler.h"
#include "sample/thread_table.h"

struct pause {
    enum pause_method way;
    struct task_look look; /* what the kernel did with the thread at the beginning */
    struct sched_stats turns;
    uint64_t since_ns;
    addr_t cpu_word; /* not 0: instead of asking the kernel, that this word names our core must be seen at the end */
    bool
        asks_after; /* its turns are asked for at the end alone; ERR_TORN then: again at once, and they are asked first */
};

/* True when it is so likely that the thread has run since we left it that this is not asked for before it is read. */
bool pause_checks_after(const struct sampler *s, const struct known_thread *k, uint64_t now);

/* `after` was asked for at `now`, when the reading had ended. True when the thread has had one turn since we left it, was
 * not asleep when we came back, and that turn was longer than the reading: so it was over before. (That it is on our core
 * its own memory tells.) */
bool pause_ran_only_before(const struct pause *fz, const struct known_thread *k, const struct sched_stats *after,
                           uint64_t now);

/* 0; ERR_GONE when the thread has ended; ERR_STOP when it could not be held in time. `firm`: the gentle ways have
 * failed for this stack. `cpu_word` is where the thread's C library keeps the number of its CPU; 0: unknown. */
int pause_begin(struct pause *fz, struct sampler *s, struct known_thread *k, bool firm, addr_t cpu_word);

/* 0 when the thread stood still since pause_begin; ERR_TORN when it may have run. PAUSE_NONE is always 0. */
int pause_end(struct pause *fz, struct sampler *s, struct known_thread *k);

#endif
