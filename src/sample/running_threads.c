/*
 * Compares CPU clocks and run counts to find the threads that can have run.
 */
#include "sample/running_threads.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/grow.h"
#include "target/proc.h"

#include <stdlib.h>

#define NOTE_AGE_NS NS_PER_S
#define SLACK_NS    (50 * NS_PER_US) /* this much CPU time of other threads is not worth reading them all */

void running_threads_free(struct running_threads *rt)
{
    free(rt->items);
    *rt = (struct running_threads){0};
}

void running_threads_forget(struct running_threads *rt)
{
    rt->noted_ns = 0;
    rt->n = 0;
}

static uint64_t items_ns(const struct running_threads *rt)
{
    struct sched_stats stats;
    uint64_t sum = 0;

    for (size_t i = 0; i < rt->n; i++)
        sum += task_sched_stats(&rt->items[i]->os.task, &stats) < 0 ? 0 : stats.run_ns;
    return sum;
}

uint64_t running_threads_clock(const struct running_threads *rt, pid_t pid)
{
    return rt->all_idle ? proc_cpu_ns(pid) : 0;
}

void running_threads_note_idle(struct running_threads *rt, uint64_t process_ns, addr_t gil_holder)
{
    rt->all_idle = true;
    rt->n = 0;
    rt->process_ns = process_ns;
    rt->gil_holder = gil_holder;
    rt->noted_ns = process_ns ? clock_now_ns() : 0;
}

int running_threads_note(struct running_threads *rt, pid_t pid, struct thread_table *table,
                         const struct py_threads *threads)
{
    rt->n = 0;
    for (size_t i = 0; i < threads->n; i++) {
        struct sampled_thread *th = thread_table_find(table, threads->items[i].tstate);

        if (!th || !th->os.tid || (th->last.off_cpu && !th->last.active))
            continue;
        if (grow_array((void **)&rt->items, &rt->cap, rt->n + 1, sizeof(struct sampled_thread *)) < 0)
            return ERR_NOMEM;
        rt->items[rt->n++] = th;
    }
    rt->items_ns = items_ns(rt);
    rt->process_ns = proc_cpu_ns(pid);
    rt->noted_ns = rt->n && rt->process_ns ? clock_now_ns() : 0;
    return 0;
}

static bool none_ran(struct thread_table *table, const struct py_threads *threads)
{
    struct sched_stats stats;

    for (size_t i = 0; i < threads->n; i++) {
        struct sampled_thread *th = thread_table_find(table, threads->items[i].tstate);

        if (!th || !th->last.off_cpu || task_sched_stats(&th->os.task, &stats) < 0 ||
            !sched_stats_equal(&stats, &th->os.stats))
            return false;
    }
    return true;
}

bool running_threads_is_complete(const struct running_threads *rt, pid_t pid, struct thread_table *table,
                                 const struct py_threads *threads, const struct python *py, bool poll_each)
{
    uint64_t items, process;
    addr_t holder;

    if (!rt->noted_ns || !threads->n)
        return false;
    if (rt->n == 0) /* a new thread shows on the clock, or as the GIL holder */
        return proc_cpu_ns(pid) == rt->process_ns &&
               threads_gil_holder(py, threads->items[0].interp) == rt->gil_holder &&
               (!poll_each || none_ran(table, threads));
    if (poll_each || clock_now_ns() - rt->noted_ns > NOTE_AGE_NS)
        return false;
    items = items_ns(rt);
    process = proc_cpu_ns(pid);
    if (!process || process - rt->process_ns >= items - rt->items_ns + SLACK_NS)
        return false;
    holder = threads_gil_holder(py, threads->items[0].interp);
    for (size_t i = 0; i < rt->n; i++)
        if (rt->items[i]->tstate == holder)
            return true;
    return !holder;
}
