/*
 * The ways to keep a thread still. Called for each stack that is read.
 */
#include "sample/pause.h"

#include "base/clock.h"

#define LOOKS           4
#define LOOK_AGE_NS     (500 * NS_PER_US) /* unheld: a thread that keeps moving is not looked at each time */
#define HOLD_TIMEOUT_NS (200 * NS_PER_MS)
#define ROAM_NS         NS_PER_S
#define SWITCH_NS       (25 * NS_PER_US) /* what two switches and our own look take */
#define TRUST_NS        (200 * NS_PER_US)

static bool was_left_here(const struct sampler *s, const struct known_thread *k)
{
    return k->left_ns && s->core.cpu >= 0 && !s->options.nonblocking;
}

/* It has had its core, or waited for it, from when we left it until we came back: it runs, and its state need not be
 * asked for. One that went to sleep in the last microseconds passes for running. */
static bool ran_all_the_while(const struct pause *fz, const struct known_thread *k, const struct sched_stats *turns)
{
    uint64_t away_ns = fz->since_ns - k->left_ns;

    return turns->run_ns - k->left.run_ns + turns->wait_ns - k->left.wait_ns + SWITCH_NS + away_ns / 512 >= away_ns;
}

bool pause_ran_only_before(const struct pause *fz, const struct known_thread *k, const struct sched_stats *after,
                           uint64_t now)
{
    return after->run_count == k->left.run_count + 1 && after->run_ns - k->left.run_ns > now - fz->since_ns &&
           ran_all_the_while(fz, k, after);
}

/* Asleep, or on the core where we are: it does not run now. Its turns were counted before, so that an equal count
 * later means that it has not run since. */
static int begin_still(struct pause *fz, struct sampler *s, struct known_thread *k)
{
    for (int i = 0; i < LOOKS; i++) {
        /* Unheld, a thread that runs is not kept still, whatever its turns. */
        if (s->options.nonblocking && task_look(&k->task, &fz->look) == 0 && fz->look.state == 'R')
            return ERR_UNSUPPORTED;
        if (i == 0 && k->has_turns)
            fz->turns = k->turns;
        else if (task_sched_stats(&k->task, &fz->turns) <
                 0) /* a kernel that does not count; what it does is known still */
            return task_look(&k->task, &fz->look) < 0 ? ERR_GONE : ERR_UNSUPPORTED;
        k->has_turns = false;
        if (task_look(&k->task, &fz->look) < 0)
            return ERR_GONE;
        fz->way = fz->look.state == 'R' ? PAUSE_SAME_CORE : PAUSE_ASLEEP;
        if (fz->way == PAUSE_SAME_CORE && fz->look.is_realtime) { /* it would not let us run beside it */
            cpu_affinity_unpin(&s->core);
            return ERR_UNSUPPORTED;
        }
        if (fz->way == PAUSE_ASLEEP || s->core.cpu == fz->look.cpu)
            return 0;
        if (s->options.nonblocking || !sampler_goes_to_cores(s) || cpu_affinity_pin(&s->core, fz->look.cpu) < 0)
            return ERR_UNSUPPORTED;
    }
    return ERR_UNSUPPORTED; /* it moves from core to core faster than we follow */
}

/* A thread stops when it next gets a CPU. In state D it will not even then. */
static uint64_t hold_timeout_ns(const struct pause *fz, const struct sampler *s)
{
    uint64_t left_ns = s->options.patience_ns > s->waited_ns ? s->options.patience_ns - s->waited_ns : 0;

    return fz->look.state != 'D' && left_ns > HOLD_TIMEOUT_NS ? left_ns : HOLD_TIMEOUT_NS;
}

static int begin_held(struct pause *fz, struct sampler *s, struct known_thread *k)
{
    uint64_t timeout_ns = hold_timeout_ns(fz, s);
    int r = tracer_attach(&s->stop, k->tid, timeout_ns, fz->look.cpu == cpu_affinity_current());

    fz->way = PAUSE_PTRACE;
    s->waited_ns += r == ERR_STOP ? timeout_ns : 0;
    /* Another tracer, a filter or a missing right: reading may still be allowed. */
    s->hold_refused |= r == ERR_PERMISSION;
    return r;
}

/* It is to be held, and we are on its core: it runs, and most likely still there. */
static bool ran_on_core(struct pause *fz, struct sampler *s, struct known_thread *k)
{
    if (!was_left_here(s, k) || task_sched_stats(&k->task, &k->turns) < 0)
        return false;
    k->has_turns = true;
    if (!ran_all_the_while(fz, k, &k->turns))
        return false;
    fz->turns = k->turns;
    fz->look.cpu = s->core.cpu;
    k->has_turns = false;
    return true;
}

/* To hold a thread is cheapest on its own core. But one that is let go there, while we run, is moved by the kernel to a
 * core that is free: it would wander at each sample, and we behind it. Then it is held from elsewhere for a while. */
static void choose_core(struct pause *fz, struct sampler *s)
{
    if (s->core.cpu >= 0 && s->core.cpu != fz->look.cpu) {
        cpu_affinity_unpin(&s->core);
        s->roams_ns = fz->since_ns + ROAM_NS;
    }
    if (s->core.cpu < 0 && sampler_goes_to_cores(s) && fz->since_ns >= s->roams_ns && !fz->look.is_realtime)
        cpu_affinity_pin(&s->core, fz->look.cpu);
}

/* How often it has run so far is of use to who stays on its core, and of one that sleeps: then it is asked first. */
static int look_firm(struct pause *fz, const struct sampler *s, struct known_thread *k)
{
    for (int i = 0; i < 2; i++) {
        bool counts = i > 0 || s->core.cpu >= 0;

        if (!counts || task_sched_stats(&k->task, &fz->turns) < 0)
            fz->turns = (struct sched_stats){0};
        if (task_look(&k->task, &fz->look) < 0)
            return ERR_GONE;
        if (counts || fz->look.state == 'R')
            break;
    }
    return 0;
}

/* A thread that must be held, for its registers. */
static int begin_firm(struct pause *fz, struct sampler *s, struct known_thread *k)
{
    if (ran_on_core(fz, s, k))
        return begin_held(fz, s, k);
    k->has_turns = false;
    if (look_firm(fz, s, k) < 0)
        return ERR_GONE;
    if (fz->look.state != 'R' && !s->options.idle) /* nobody wants its stack */
        return begin_still(fz, s, k);
    if (fz->look.state == 'R')
        choose_core(fz, s);
    return begin_held(fz, s, k);
}

bool pause_checks_after(const struct sampler *s, const struct known_thread *k, uint64_t now)
{
    return k->steady && was_left_here(s, k) && now - k->left_ns >= TRUST_NS;
}

/* On our core, and not asleep, as far as is known without a look at its state. */
static bool begin_seen_running(struct pause *fz, const struct sampler *s, struct known_thread *k, addr_t cpu_word)
{
    fz->asks_after = !k->has_turns && pause_checks_after(s, k, fz->since_ns);
    if (!fz->asks_after && (!was_left_here(s, k) || !k->has_turns || !ran_all_the_while(fz, k, &k->turns)))
        return false;
    fz->way = PAUSE_SAME_CORE;
    fz->look.cpu = s->core.cpu;
    fz->turns = k->turns;
    fz->cpu_word = cpu_word;
    k->has_turns = false;
    return true;
}

int pause_begin(struct pause *fz, struct sampler *s, struct known_thread *k, bool firm, addr_t cpu_word)
{
    int r;

    *fz = (struct pause){.way = PAUSE_NONE, .look = {.state = 'R', .cpu = -1}, .since_ns = clock_now_ns()};
    if (k->dead) { /* of a core file: it moves no more */
        fz->way = PAUSE_DEAD;
        fz->look.state = k->was_active ? 'R' : 'S';
        return 0;
    }
    if (!k->tid || (s->options.nonblocking && fz->since_ns < k->look_again_ns))
        return 0;
    if (cpu_word && !firm && begin_seen_running(fz, s, k, cpu_word))
        return 0;
    if (firm && !s->options.nonblocking && !s->hold_refused) {
        r = begin_firm(fz, s, k);
        /* It gets no CPU to stop on: so it does not run either, and can be read without its registers. */
        if (r == ERR_STOP)
            return begin_still(fz, s, k) == 0 ? 0 : r;
        if (r != ERR_PERMISSION && r != ERR_UNSUPPORTED)
            return r;
    }
    r = begin_still(fz, s, k);
    if (r != ERR_UNSUPPORTED)
        return r;
    if (!s->options.nonblocking && !s->hold_refused) {
        r = begin_held(fz, s, k);
        if (r != ERR_PERMISSION)
            return r;
    }
    fz->way = PAUSE_NONE;
    k->look_again_ns = fz->since_ns + LOOK_AGE_NS;
    return 0;
}

static void count_hold(struct sampler *s, uint64_t ns)
{
    uint64_t v = ns >> 8;
    size_t shift = 0, slot;

    for (; v > 7; v >>= 1)
        shift++;
    slot = v < 4 ? v : 4 + shift * 4 + (v & 3);
    s->hold_slots[slot < SAMPLER_HOLD_SLOTS ? slot : SAMPLER_HOLD_SLOTS - 1]++;
    s->holds++;
    if (ns > s->hold_longest_ns)
        s->hold_longest_ns = ns;
}

/* The kernel likes to put a thread that we let go onto our core. There we would be run late at the next sample. */
static void part_from(struct sampler *s, struct known_thread *k)
{
    struct task_look look;

    if (task_look(&k->task, &look) == 0 && look.cpu == cpu_affinity_current())
        cpu_affinity_move_away(&s->core);
}

static int end_held(struct pause *fz, struct sampler *s, struct known_thread *k)
{
    tracer_detach(&s->stop);
    if (s->apart)
        part_from(s, k);
    count_hold(s, s->stop.last_ns);
    k->left_ns = 0;
    if (fz->turns.run_count && s->core.cpu >= 0 && s->core.cpu == fz->look.cpu && fz->look.state == 'R') {
        k->left_ns = clock_now_ns();
        k->left = fz->turns;
    }
    return 0;
}

/* Left on its core, where it goes on when we sleep. */
static void leave_here(const struct pause *fz, struct sampler *s, struct known_thread *k, uint64_t now)
{
    count_hold(s, now - fz->since_ns);
    k->steady = fz->cpu_word && fz->turns.run_count == k->left.run_count + 1;
    k->left = fz->turns;
    k->left_ns = now;
}

/* It was read before it was asked for: it will be asked first the next time. */
static int doubt(struct known_thread *k, const struct sched_stats *after)
{
    k->steady = false;
    k->turns = *after;
    k->has_turns = true;
    return ERR_TORN;
}

int pause_end(struct pause *fz, struct sampler *s, struct known_thread *k)
{
    struct sched_stats after;
    uint64_t now;
    bool still;

    if (fz->way == PAUSE_PTRACE)
        return end_held(fz, s, k);
    if (fz->way == PAUSE_NONE || fz->way == PAUSE_DEAD) {
        k->left_ns = 0;
        return 0;
    }
    if (task_sched_stats(&k->task, &after) < 0) {
        k->left_ns = 0;
        return ERR_TORN;
    }
    now = clock_now_ns();
    still = fz->asks_after ? pause_ran_only_before(fz, k, &after, now) : after.run_count == fz->turns.run_count;
    if (!still || fz->way != PAUSE_SAME_CORE)
        k->left_ns = 0;
    if (!still)
        return fz->asks_after ? doubt(k, &after) : ERR_TORN;
    fz->turns = after;
    if (fz->way == PAUSE_SAME_CORE)
        leave_here(fz, s, k, now);
    return 0;
}
