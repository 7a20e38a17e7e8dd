/*
 * A thread that is off-CPU needs no pause: its stack cannot change until it runs again. Its run count and CPU time, which the
 * kernel updates when it runs, prove that it did not.
 */
#include "pause/pause_method.h"

/* Reads schedstat before the state: if the thread is asleep now, and schedstat is equal later, it has not run. */
static int asleep_begin(struct pauser *ps, struct os_thread *t, struct pause *p)
{
    /* With --nonblocking a running thread is never paused, so its run count does not matter. */
    if (ps->nonblocking && task_look(&t->task, &p->look) == 0 && p->look.state == 'R')
        return ERR_UNSUPPORTED;
    if (t->stats_fresh)
        p->stats = t->stats;
    else if (task_sched_stats(&t->task, &p->stats) < 0) /* a kernel without schedstat still reports the state */
        return task_look(&t->task, &p->look) < 0 ? ERR_GONE : ERR_UNSUPPORTED;
    t->stats_fresh = false;
    if (task_look(&t->task, &p->look) < 0)
        return ERR_GONE;
    p->method = PAUSE_ASLEEP;
    return p->look.state == 'R' ? ERR_UNSUPPORTED : 0;
}

static int asleep_end(struct pauser *ps, struct os_thread *t, struct pause *p)
{
    struct sched_stats after;

    (void)ps;
    t->left_ns = 0;
    if (task_sched_stats(&t->task, &after) < 0 || !sched_stats_equal(&after, &p->stats))
        return ERR_TORN;
    p->stats = after;
    return 0;
}

const struct pause_ops pause_asleep = {asleep_begin, asleep_end};
