/*
 * Sleeping threads cost a process nothing, and so must they us. Called at each sample of a process with many threads.
 */
#include "sample/running_threads.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/grow.h"

#include <stdlib.h>

#define NOTE_AGE_NS NS_PER_S
#define UNSEEN_NS   (50 * NS_PER_US) /* CPU time of threads that were not looked at: more, and all are */

void running_threads_open(struct running_threads *h, pid_t pid)
{
    h->has_clock = clock_getcpuclockid(pid, &h->clock) == 0;
}

void running_threads_free(struct running_threads *h)
{
    free(h->items);
    *h = (struct running_threads){0};
}

void running_threads_forget(struct running_threads *h)
{
    h->noted_ns = 0;
}

static uint64_t process_ns(const struct running_threads *h)
{
    struct timespec ts;

    if (!h->has_clock || clock_gettime(h->clock, &ts) < 0)
        return 0;
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static uint64_t items_ns(const struct running_threads *h)
{
    struct sched_stats stats;
    uint64_t sum = 0;

    for (size_t i = 0; i < h->n; i++)
        sum += task_sched_stats(&h->items[i]->os.task, &stats) < 0 ? 0 : stats.run_ns;
    return sum;
}

int running_threads_note(struct running_threads *h, struct thread_table *table, const struct py_threads *threads)
{
    h->n = 0;
    for (size_t i = 0; i < threads->n; i++) {
        struct known_thread *k = thread_table_find(table, threads->items[i].tstate);

        if (!k || !k->os.tid || (k->last.still && !k->last.active))
            continue;
        if (grow_array((void **)&h->items, &h->cap, h->n + 1, sizeof(struct known_thread *)) < 0)
            return ERR_NOMEM;
        h->items[h->n++] = k;
    }
    h->noted_items_ns = items_ns(h);
    h->noted_cpu_ns = process_ns(h);
    h->noted_ns = h->noted_cpu_ns ? clock_now_ns() : 0;
    return 0;
}

bool running_threads_are_all(const struct running_threads *h)
{
    uint64_t items, process;

    if (!h->noted_ns || clock_now_ns() - h->noted_ns > NOTE_AGE_NS)
        return false;
    items = items_ns(h);
    process = process_ns(h);
    return process && process - h->noted_cpu_ns < items - h->noted_items_ns + UNSEEN_NS;
}
