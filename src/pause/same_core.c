/*
 * A thread cannot run while we occupy its CPU. This needs no system call on the thread, and the thread continues as
 * soon as we sleep. See docs/decisions/0006.
 */
#include "base/clock.h"
#include "base/log.h"
#include "pause/pause_method.h"

#define MOVES_MAX 4
#define SWITCH_NS (25 * NS_PER_US)  /* two context switches and our own reads */
#define TRUST_NS  (200 * NS_PER_US) /* after a shorter absence, read schedstat first */

bool same_core_was_left(const struct pauser *ps, const struct os_thread *t)
{
    return t->left_ns && ps->affinity.cpu >= 0 && ps->affinity.cpu == t->left_cpu && !ps->nonblocking;
}

/* A thread that went to sleep in the last microseconds counts as running. */
bool same_core_ran_throughout(const struct pause *p, const struct os_thread *t, const struct sched_stats *stats)
{
    uint64_t away_ns = p->since_ns - t->left_ns;

    return stats->run_ns - t->left.run_ns + stats->wait_ns - t->left.wait_ns + SWITCH_NS + away_ns / 512 >= away_ns;
}

bool same_core_ran_only_before(const struct pause *p, const struct os_thread *t, const struct sched_stats *after,
                               uint64_t now)
{
    return after->run_count == t->left.run_count + 1 && after->run_ns - t->left.run_ns > now - p->since_ns &&
           same_core_ran_throughout(p, t, after);
}

bool pause_checks_after(const struct pauser *ps, const struct os_thread *t, uint64_t now)
{
    return t->steady && same_core_was_left(ps, t) && now - t->left_ns >= TRUST_NS;
}

bool same_core_predict(struct pauser *ps, struct os_thread *t, addr_t cpu_word, struct pause *p)
{
    p->check_after = !t->stats_fresh && pause_checks_after(ps, t, p->since_ns);
    if (!p->check_after && !(same_core_was_left(ps, t) && t->stats_fresh && same_core_ran_throughout(p, t, &t->stats)))
        return false;
    p->method = PAUSE_SAME_CORE;
    p->look.cpu = ps->affinity.cpu;
    p->stats = t->stats;
    p->cpu_word = cpu_word;
    t->stats_fresh = false;
    return true;
}

static int same_core_begin(struct pauser *ps, struct os_thread *t, struct pause *p)
{
    int r;

    for (int i = 0; i < MOVES_MAX; i++) {
        if (p->look.state != 'R' || !p->stats.run_count)
            return ERR_UNSUPPORTED;
        p->method = PAUSE_SAME_CORE;
        if (p->look.is_realtime) { /* it would not let us run beside it */
            log_often(LOG_LEVEL_DEBUG, "pause", t->tid, "tid %d: real-time thread, not sharing its core", (int)t->tid);
            cpu_affinity_unpin(&ps->affinity);
            return ERR_UNSUPPORTED;
        }
        if (ps->affinity.cpu == p->look.cpu)
            return 0;
        if (!pause_uses_same_core(ps) || cpu_affinity_pin(&ps->affinity, p->look.cpu) < 0)
            return ERR_UNSUPPORTED;
        /* Look again from here: it may have moved, or gone to sleep. */
        r = pause_asleep.begin(ps, t, p);
        if (r != ERR_UNSUPPORTED)
            return r;
    }
    return ERR_UNSUPPORTED; /* it moves from CPU to CPU faster than we follow */
}

static int same_core_end(struct pauser *ps, struct os_thread *t, struct pause *p)
{
    struct sched_stats after;
    uint64_t now;

    if (task_sched_stats(&t->task, &after) < 0) {
        t->left_ns = 0;
        return ERR_TORN;
    }
    now = clock_now_ns();
    if (p->check_after ? !same_core_ran_only_before(p, t, &after, now) : after.run_count != p->stats.run_count) {
        t->left_ns = 0;
        if (p->check_after) { /* the retry reads schedstat first, and these are it */
            t->steady = false;
            t->stats = after;
            t->stats_fresh = true;
        }
        return ERR_TORN;
    }
    p->stats = after;
    t->steady = p->cpu_word && after.run_count == t->left.run_count + 1;
    t->left = after;
    t->left_ns = now;
    t->left_cpu = ps->affinity.cpu;
    return 0;
}

const struct pause_ops pause_same_core = {same_core_begin, same_core_end};
