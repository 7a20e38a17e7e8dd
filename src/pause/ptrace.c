/*
 * A thread in ptrace-stop does not run, and its registers can be read. One thread at a time, detached after each sample.
 */
#include "base/clock.h"
#include "base/deadline.h"
#include "base/log.h"
#include "pause/pause_method.h"

#define STOP_TIMEOUT_NS (200 * NS_PER_MS)
#define UNPIN_NS        NS_PER_S

/* A thread stops when it next gets a CPU. In state D it will not even then. */
static uint64_t stop_timeout_ns(const struct pauser *ps, const struct pause *p)
{
    uint64_t patience_ns = ps->patience_ns > ps->waited_ns ? ps->patience_ns - ps->waited_ns : 0;

    return deadline_cap(p->look.state != 'D' && patience_ns > STOP_TIMEOUT_NS ? patience_ns : STOP_TIMEOUT_NS);
}

static int ptrace_begin(struct pauser *ps, struct os_thread *t, struct pause *p)
{
    uint64_t timeout_ns = stop_timeout_ns(ps, p);
    int r;

    if (ps->nonblocking || ps->ptrace_refused)
        return ERR_PERMISSION;
    if (!timeout_ns)
        return ERR_STOP;
    r = tracer_attach(&ps->tracer, t->tid, timeout_ns, p->look.cpu == cpu_affinity_current());
    p->method = PAUSE_PTRACE;
    ps->waited_ns += r == ERR_STOP ? timeout_ns : 0;
    if (r < 0)
        log_often(LOG_LEVEL_DEBUG, "pause", t->tid, "tid %d: state %c: ptrace: %s", (int)t->tid, p->look.state,
                  err_name(r));
    /* Another tracer, a seccomp filter or a missing capability. Reading memory may still be allowed. */
    ps->ptrace_refused |= r == ERR_PERMISSION;
    return r;
}

/* The run count is worth a read only if we share the thread's core or the thread is asleep. */
static int look_at(const struct pauser *ps, struct os_thread *t, struct pause *p)
{
    for (int i = 0; i < 2; i++) {
        bool counts = i > 0 || ps->affinity.cpu >= 0;

        if (!counts || task_sched_stats(&t->task, &p->stats) < 0)
            p->stats = (struct sched_stats){0};
        if (task_look(&t->task, &p->look) < 0)
            return ERR_GONE;
        if (counts || p->look.state == 'R')
            break;
    }
    return 0;
}

int ptrace_begin_first(struct pauser *ps, struct os_thread *t, struct pause *p)
{
    if (same_core_was_left(ps, t) && task_sched_stats(&t->task, &t->stats) == 0) {
        t->stats_fresh = true;
        if (same_core_ran_throughout(p, t, &t->stats)) { /* it is running, most likely still on our core */
            p->stats = t->stats;
            p->look.cpu = ps->affinity.cpu;
            t->stats_fresh = false;
            return ptrace_begin(ps, t, p);
        }
    }
    t->stats_fresh = false;
    if (look_at(ps, t, p) < 0)
        return ERR_GONE;
    if (p->look.state != 'R' && !ps->want_idle) /* the caller will not read it */
        return pause_asleep.begin(ps, t, p);
    /* Stopping a thread is cheapest from its own core. But when we resume it there, we occupy the core, so the kernel
     * moves the thread to a free one: it would migrate at each sample, and we would follow it. If that happens, stay
     * off its core for a while. */
    if (p->look.state == 'R') {
        if (ps->affinity.cpu >= 0 && ps->affinity.cpu != p->look.cpu) {
            cpu_affinity_unpin(&ps->affinity);
            ps->unpinned_until_ns = p->since_ns + UNPIN_NS;
        }
        if (ps->affinity.cpu < 0 && pause_uses_same_core(ps) && p->since_ns >= ps->unpinned_until_ns &&
            !p->look.is_realtime)
            cpu_affinity_pin(&ps->affinity, p->look.cpu);
    }
    return ptrace_begin(ps, t, p);
}

static int ptrace_end(struct pauser *ps, struct os_thread *t, struct pause *p)
{
    struct task_look look;

    tracer_detach(&ps->tracer);
    /* The kernel tends to put a thread that we resume onto our core. There we would be scheduled late at the next sample. */
    if (ps->avoid_cores && task_look(&t->task, &look) == 0 && look.cpu == cpu_affinity_current())
        cpu_affinity_move_away(&ps->affinity);
    t->left_ns = 0;
    if (p->stats.run_count && ps->affinity.cpu >= 0 && ps->affinity.cpu == p->look.cpu && p->look.state == 'R') {
        t->left_ns = clock_now_ns();
        t->left_cpu = ps->affinity.cpu;
        t->left = p->stats;
    }
    return 0;
}

const struct pause_ops pause_ptrace = {ptrace_begin, ptrace_end};
