/*
 * Attributes CPU time to samples.
 */
#include "sample/thread_time.h"

#include "base/clock.h"

#define OWN_NS  (100 * NS_PER_US) /* the longest wait that the sampler causes by itself */
#define CONTEND 16                /* a thread that waits longer than this fraction of its run time competes for cores */
#define DECAY   64
#define LAG_NS  (10 * NS_PER_MS) /* the longest time between two timer ticks, with CONFIG_HZ=100 */

void thread_time_begin(struct thread_time *t, struct task *task, bool during_recording, uint64_t now_ns)
{
    struct sched_stats stats = {0};
    bool is_known = task_sched_stats(task, &stats) == 0;

    *t = (struct thread_time){
        .is_known = is_known, .is_new = during_recording, .is_recorded = during_recording, .at_ns = now_ns};
    if (!during_recording) {
        t->run_ns = stats.run_ns;
        t->core_wait_ns = stats.wait_ns;
        t->seen = stats;
    }
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

uint64_t thread_time_left(const struct thread_time *t, const struct sched_stats *stats)
{
    return minus(stats->run_ns, t->run_ns);
}

/* Decaying sums: each call adds the new time and drops a part of the old. */
bool thread_time_competes(struct thread_time *t, const struct sched_stats *stats)
{
    uint64_t own_ns = minus(stats->run_count, t->seen.run_count) * OWN_NS;

    t->recent_run_ns += minus(stats->run_ns, t->seen.run_ns) - t->recent_run_ns / DECAY;
    t->recent_wait_ns += minus(minus(stats->wait_ns, t->seen.wait_ns), own_ns) - t->recent_wait_ns / DECAY;
    t->seen = *stats;
    return t->recent_wait_ns > t->recent_run_ns / CONTEND;
}

struct time_parts thread_time_take(struct thread_time *t, const struct sched_stats *stats, bool is_exact,
                                   uint64_t now_ns, uint64_t limit_ns)
{
    struct time_parts parts = {.elapsed_ns = minus(now_ns, t->at_ns),
                               .run_ns = thread_time_left(t, stats),
                               .core_wait_ns = minus(stats->wait_ns, t->core_wait_ns)};

    if (!is_exact && parts.run_ns < parts.elapsed_ns) {
        uint64_t most = minus(stats->run_ns + LAG_NS, t->run_ns);

        parts.run_ns = parts.elapsed_ns < most ? parts.elapsed_ns : most;
    }
    t->run_ns += parts.run_ns;
    t->core_wait_ns = stats->wait_ns > t->core_wait_ns ? stats->wait_ns : t->core_wait_ns;
    t->at_ns = now_ns;
    if (t->is_new && parts.run_ns > limit_ns) {
        parts.lost_ns = t->was_elsewhere ? 0 : parts.run_ns - limit_ns;
        parts.run_ns = limit_ns;
    }
    t->is_new = false;
    return parts;
}
