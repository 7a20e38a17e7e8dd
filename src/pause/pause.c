/*
 * Picks the method, and keeps the statistics of how long threads were paused.
 */
#include "pause/pause.h"

#include "base/clock.h"
#include "base/log.h"
#include "pause/pause_method.h"

static const struct pause_ops *const ops[PAUSE_METHODS] = {
    [PAUSE_ASLEEP] = &pause_asleep,     [PAUSE_SAME_CORE] = &pause_same_core, [PAUSE_PTRACE] = &pause_ptrace,
    [PAUSE_UNPAUSED] = &pause_unpaused, [PAUSE_DEAD] = &pause_dead,
};

void os_thread_close(struct os_thread *t)
{
    if (t->tid && !t->dead)
        task_close(&t->task);
    perf_regs_close(&t->perf_regs);
}

bool pause_uses_same_core(const struct pauser *ps)
{
    return ps->use_same_core && !ps->avoid_cores && !ps->nonblocking;
}

const char *pause_method_name(enum pause_method method)
{
    static const char *const names[PAUSE_METHODS] = {
        [PAUSE_ASLEEP] = "while asleep", [PAUSE_SAME_CORE] = "from the same core", [PAUSE_PTRACE] = "paused by ptrace",
        [PAUSE_UNPAUSED] = "unpaused",   [PAUSE_DEAD] = "from the core file",
    };

    return names[method];
}

static bool falls_through(int r)
{
    return r == ERR_UNSUPPORTED || r == ERR_PERMISSION;
}

/* Off-CPU, or kept off its CPU by us. */
static int begin_gentle(struct pauser *ps, struct os_thread *t, struct pause *p)
{
    int r = pause_asleep.begin(ps, t, p);

    return r == ERR_UNSUPPORTED ? pause_same_core.begin(ps, t, p) : r;
}

int pause_begin(struct pauser *ps, struct os_thread *t, enum pause_need need, addr_t cpu_word, struct pause *ret)
{
    struct pause *p = ret;
    int r;

    *p = (struct pause){.look = {.state = 'R', .cpu = -1}, .since_ns = clock_now_ns()};
    if (t->dead)
        return pause_dead.begin(ps, t, p);
    if (!t->tid || (ps->nonblocking && p->since_ns < t->running_until_ns))
        return pause_unpaused.begin(ps, t, p);
    if (cpu_word && need == PAUSE_ANY && same_core_predict(ps, t, cpu_word, p))
        return 0;
    if (need == PAUSE_REGS && ps->sleeper_regs) {
        r = pause_asleep.begin(ps, t, p);
        if (r != ERR_UNSUPPORTED)
            return r;
    }
    if (need != PAUSE_ANY && !ps->nonblocking && !ps->ptrace_refused) {
        r = ptrace_begin_first(ps, t, p);
        if (r == ERR_STOP) /* it gets no CPU to stop on, so it does not run either: read it without its registers */
            return begin_gentle(ps, t, p) == 0 ? 0 : r;
        if (!falls_through(r))
            return r;
    }
    r = begin_gentle(ps, t, p);
    if (falls_through(r))
        log_often(LOG_LEVEL_DEBUG, "pause", t->tid,
                  "tid %d: state %c, CPU %d: not asleep and not on a core to share, %s", (int)t->tid, p->look.state,
                  p->look.cpu,
                  ps->nonblocking      ? "--nonblocking"
                  : ps->ptrace_refused ? "ptrace is refused"
                                       : "trying ptrace");
    if (falls_through(r) && p->look.state != 'R' && !ps->want_idle) /* without schedstat; the caller will not read it */
        return pause_unpaused.begin(ps, t, p);
    if (falls_through(r))
        r = pause_ptrace.begin(ps, t, p);
    if (falls_through(r))
        r = pause_unpaused.begin(ps, t, p);
    return r;
}

static void count_pause(struct pauser *ps, uint64_t ns)
{
    uint64_t v = ns >> 8;
    size_t shift = 0, slot;

    for (; v > 7; v >>= 1)
        shift++;
    slot = v < 4 ? v : 4 + shift * 4 + (v & 3);
    ps->histogram[slot < PAUSE_HISTOGRAM ? slot : PAUSE_HISTOGRAM - 1]++;
    ps->pauses++;
    ps->paused_ns += ns;
    if (ns > ps->longest_ns)
        ps->longest_ns = ns;
}

int pause_end(struct pauser *ps, struct os_thread *t, struct pause *p)
{
    int r = ops[p->method]->end(ps, t, p);

    if (p->method == PAUSE_PTRACE)
        count_pause(ps, ps->tracer.last_ns);
    else if (p->method == PAUSE_SAME_CORE && r == 0)
        count_pause(ps, t->left_ns - p->since_ns);
    return r;
}

/* The kernel has the other registers, too, but shows them to a tracer only. */
static bool read_sleeper_regs(struct os_thread *t, struct regs *ret)
{
    *ret = (struct regs){.unknown = ~(1u << REGS_SP | 1u << REGS_PC)};
    return task_waits_at(&t->task, &ret->r[REGS_SP], &ret->r[REGS_PC]) == 0;
}

bool pause_regs(struct pauser *ps, struct os_thread *t, const struct pause *p, uint64_t thread_id, struct regs *ret,
                uint64_t *ret_fs_base)
{
    if (p->method == PAUSE_PTRACE)
        return tracer_regs(&ps->tracer, ret, ret_fs_base) == 0;
    *ret_fs_base = thread_id;
    if ((p->method == PAUSE_SAME_CORE || p->method == PAUSE_ASLEEP) && perf_regs_read(&t->perf_regs, ret) == 0)
        return true;
    return p->method == PAUSE_ASLEEP && ps->sleeper_regs && read_sleeper_regs(t, ret);
}

uint64_t pause_percentile_ns(const struct pauser *ps, unsigned int percent)
{
    uint64_t seen = 0;

    for (size_t i = 0; i < PAUSE_HISTOGRAM; i++) {
        seen += ps->histogram[i];
        if (seen && seen * 100 >= ps->pauses * percent)
            return i < 4 ? (uint64_t)i << 8 : (uint64_t)(4 + (i & 3)) << (8 + (i - 4) / 4);
    }
    return 0;
}
