/*
 * The ways to keep a thread still. Called for each stack that is read.
 */
#include "sample/freeze.h"

#include "base/clock.h"

#define LOOKS           4
#define LOOK_AGE_NS     (500 * NS_PER_US) /* unheld: a thread that keeps moving is not looked at each time */
#define HOLD_TIMEOUT_NS (200 * NS_PER_MS)
#define ROAM_NS         NS_PER_S
#define SWITCH_NS       (25 * NS_PER_US) /* what two switches and our own look take */

/* It has had its core from when we left it until we came back: it runs, and the kernel need not be asked. One that
 * went to sleep in the last microseconds passes for running. */
static bool ran_all_the_while(const struct freeze *fz, const struct sampler *s, const struct known_thread *k)
{
    uint64_t away_ns = fz->since_ns - k->left_ns;

    return k->left_ns && k->has_turns && s->core.cpu >= 0 && !s->options.nonblocking &&
           k->turns.run_ns - k->left_run_ns + SWITCH_NS + away_ns / 256 >= away_ns;
}

/* Asleep, or on the core where we are: it does not run now. Its turns were counted before, so that an equal count
 * later means that it has not run since. */
static int begin_still(struct freeze *fz, struct sampler *s, struct known_thread *k)
{
    for (int i = 0; i < LOOKS; i++) {
        /* Unheld, a thread that runs is not kept still, whatever its turns. */
        if (s->options.nonblocking && task_look(&k->task, &fz->look) == 0 && fz->look.state == 'R')
            return ERR_UNSUPPORTED;
        if (i == 0 && k->has_turns)
            fz->turns = k->turns;
        else if (task_turns(&k->task, &fz->turns) < 0) /* a kernel that does not count; what it does is known still */
            return task_look(&k->task, &fz->look) < 0 ? ERR_GONE : ERR_UNSUPPORTED;
        k->has_turns = false;
        if (task_look(&k->task, &fz->look) < 0)
            return ERR_GONE;
        fz->way = fz->look.state == 'R' ? FREEZE_CORE : FREEZE_ASLEEP;
        if (fz->way == FREEZE_CORE && fz->look.is_realtime) { /* it would not let us run beside it */
            core_leave(&s->core);
            return ERR_UNSUPPORTED;
        }
        if (fz->way == FREEZE_ASLEEP || s->core.cpu == fz->look.cpu)
            return 0;
        if (s->options.nonblocking || !s->options.core || core_go(&s->core, fz->look.cpu) < 0)
            return ERR_UNSUPPORTED;
    }
    return ERR_UNSUPPORTED; /* it moves from core to core faster than we follow */
}

/* A thread stops when it next gets a CPU. In state D it will not even then. */
static uint64_t hold_timeout_ns(const struct freeze *fz, const struct sampler *s)
{
    uint64_t left_ns = s->options.patience_ns > s->waited_ns ? s->options.patience_ns - s->waited_ns : 0;

    return fz->look.state != 'D' && left_ns > HOLD_TIMEOUT_NS ? left_ns : HOLD_TIMEOUT_NS;
}

static int begin_held(struct freeze *fz, struct sampler *s, struct known_thread *k)
{
    uint64_t timeout_ns = hold_timeout_ns(fz, s);
    int r = stop_hold(&s->stop, k->tid, timeout_ns, fz->look.cpu == core_here());

    fz->way = FREEZE_HELD;
    s->waited_ns += r == ERR_STOP ? timeout_ns : 0;
    /* Another tracer, a filter or a missing right: reading may still be allowed. */
    s->hold_refused |= r == ERR_PERMISSION;
    return r;
}

/* It is to be held, and we are on its core: it runs, and most likely still there. */
static bool ran_on_core(struct freeze *fz, struct sampler *s, struct known_thread *k)
{
    if (!k->left_ns || task_turns(&k->task, &k->turns) < 0)
        return false;
    k->has_turns = true;
    if (!ran_all_the_while(fz, s, k))
        return false;
    fz->turns = k->turns;
    fz->look.cpu = s->core.cpu;
    k->has_turns = false;
    return true;
}

/* To hold a thread is cheapest on its own core. But one that is let go there, while we run, is moved by the kernel to a
 * core that is free: it would wander at each sample, and we behind it. Then it is held from elsewhere for a while. */
static void choose_core(struct freeze *fz, struct sampler *s)
{
    if (s->core.cpu >= 0 && s->core.cpu != fz->look.cpu) {
        core_leave(&s->core);
        s->roams_ns = fz->since_ns + ROAM_NS;
    }
    if (s->core.cpu < 0 && s->options.core && fz->since_ns >= s->roams_ns && !fz->look.is_realtime)
        core_go(&s->core, fz->look.cpu);
}

/* How often it has run so far is of use to who stays on its core, and of one that sleeps: then it is asked first. */
static int look_firm(struct freeze *fz, const struct sampler *s, struct known_thread *k)
{
    for (int i = 0; i < 2; i++) {
        bool counts = i > 0 || s->core.cpu >= 0;

        if (!counts || task_turns(&k->task, &fz->turns) < 0)
            fz->turns = (struct task_turns){0};
        if (task_look(&k->task, &fz->look) < 0)
            return ERR_GONE;
        if (counts || fz->look.state == 'R')
            break;
    }
    return 0;
}

/* A thread that must be held, for its registers. */
static int begin_firm(struct freeze *fz, struct sampler *s, struct known_thread *k)
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

int freeze_begin(struct freeze *fz, struct sampler *s, struct known_thread *k, bool firm, addr_t cpu_word)
{
    int r;

    *fz = (struct freeze){.way = FREEZE_NOT, .look = {.state = 'R', .cpu = -1}, .since_ns = clock_now_ns()};
    if (k->dead) { /* of a core file: it moves no more */
        fz->way = FREEZE_DEAD;
        fz->look.state = k->was_active ? 'R' : 'S';
        return 0;
    }
    if (!k->tid || (s->options.nonblocking && fz->since_ns < k->look_again_ns))
        return 0;
    if (cpu_word && !firm && ran_all_the_while(fz, s, k)) {
        fz->way = FREEZE_CORE;
        fz->look.cpu = s->core.cpu;
        fz->turns = k->turns;
        fz->cpu_word = cpu_word;
        k->has_turns = false;
        return 0;
    }
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
    fz->way = FREEZE_NOT;
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

int freeze_end(struct freeze *fz, struct sampler *s, struct known_thread *k)
{
    struct task_turns after;
    uint64_t now;

    k->left_ns = 0;
    if (fz->way == FREEZE_HELD) {
        stop_release(&s->stop);
        count_hold(s, s->stop.last_ns);
        if (fz->turns.count && s->core.cpu >= 0 && s->core.cpu == fz->look.cpu && fz->look.state == 'R') {
            k->left_ns = clock_now_ns();
            k->left_run_ns = fz->turns.run_ns;
        }
        return 0;
    }
    if (fz->way == FREEZE_NOT || fz->way == FREEZE_DEAD)
        return 0;
    if (task_turns(&k->task, &after) < 0 || after.count != fz->turns.count)
        return ERR_TORN;
    if (fz->way == FREEZE_CORE) {
        now = clock_now_ns();
        count_hold(s, now - fz->since_ns);
        k->left_ns = now;
        k->left_run_ns = after.run_ns;
    }
    return 0;
}
