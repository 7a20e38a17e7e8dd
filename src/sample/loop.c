/*
 * The recording loop. Called by cmd/record; sleeps to absolute times, so that errors do not add up.
 */
#include "sample/loop.h"

#include "base/clock.h"

#define REFRESH_NS (20 * NS_PER_MS)
#define CALM_NS    (200 * NS_PER_MS) /* one process that is read without a fault */
/* How long a sleep may last without a look at signals and the target. */
#define LOOK_NS        (100 * NS_PER_MS)
#define LEAST_SLEEP_NS (2 * NS_PER_US)
#define BURST_NS       (40 * NS_PER_US) /* how long we stay on the target's core at a time */
#define URGENT_NS      (500 * NS_PER_US)
#define LATE_SHARE     50 /* one tick in so many */
#define LATE_NS        (300 * NS_PER_US)
#define APART_SHARE    10
#define USUAL_NS       (4 * NS_PER_S) /* over so long, but not less than so many ticks, a mean is taken */
#define USUAL_LEAST    32
#define USUAL_MOST     8 /* times: beyond that something else happened */
#define LOOK_LEAST_NS  (200 * NS_PER_US)
#define LOOK_CALM_NS   (20 * NS_PER_MS)
#define ROOT_NS        (50 * NS_PER_MS) /* sampling itself notices the end of a Python sooner */
#define LAST_LOOKS     2                /* for children of those that have just ended */
/* Without its root and without any Python a tree may yet start one (a shell that sleeps), or it is a server's, that stays
 * for ever. So long it is given. */
#define NO_PYTHON_NS (10 * NS_PER_S)

struct moment {
    struct loop *loop;
    uint64_t elapsed_ns;
};

static int deliver(const struct trace *trace, void *arg)
{
    struct moment *m = arg;

    return m->loop->trace(trace, m->elapsed_ns, m->loop->arg);
}

/* Is it certain that no stack will come any more? */
static bool has_ended(struct loop *l)
{
    const struct process_tree *f = l->tree;
    uint64_t now = clock_now_ns();

    if (process_tree_root_alive(f) || process_tree_has_python(f)) {
        l->python_ns = now;
        return false;
    }
    return process_tree_is_alone(f) || (!l->duration_ns && now - l->python_ns >= NO_PYTHON_NS);
}

/* Who has ended may have left children that are not known yet: it is over when these have been looked for since. */
static bool is_over(struct loop *l)
{
    bool ended = has_ended(l);

    for (int i = 0; i < LAST_LOOKS && ended && l->error == 0; i++) {
        l->error = process_tree_refresh(l->tree);
        ended = has_ended(l);
    }
    if (ended)
        l->end = LOOP_GONE;
    return ended || l->error < 0;
}

/* Done between samples, but not more often than needs be. False when it is time to end. */
static bool look_around(struct loop *l, uint64_t start, uint64_t now)
{
    bool calm = process_tree_is_calm(l->tree);

    if (now - l->looked_ns < (calm ? LOOK_CALM_NS : LOOK_LEAST_NS))
        return true;
    l->looked_ns = now;
    if (!l->tick(l->arg, now - start)) {
        l->end = LOOP_ASKED;
        return false;
    }
    if (now - l->refreshed_ns >= (calm ? CALM_NS : REFRESH_NS)) {
        l->error = process_tree_refresh(l->tree);
        l->refreshed_ns = clock_now_ns();
        if (l->error < 0)
            return false;
    }
    if (now - l->root_ns < (calm ? CALM_NS : ROOT_NS))
        return true;
    l->root_ns = now;
    return !is_over(l);
}

/* Sleeps to `when`, in pieces. False when it is time to end. */
static bool sleep_to(struct loop *l, uint64_t start, uint64_t when)
{
    /* Children are found soon after their birth, however low the rate. */
    uint64_t now = clock_now_ns(), most = l->tree->subprocesses ? REFRESH_NS : LOOK_NS;

    if (!look_around(l, start, now))
        return false;
    /* A sleep this short is not worth a call; but on the target's own core it runs only while we sleep: it gets
     * twice the time that we take. */
    if (now + LEAST_SLEEP_NS >= when) {
        if (l->tree->sampler->pauser.affinity.cpu < 0 || now - l->woke_ns < BURST_NS)
            return true;
        when = now + 2 * BURST_NS;
    }
    for (; now < when; now = clock_now_ns()) {
        clock_sleep_until_ns(when - now > most ? now + most : when);
        if (!look_around(l, start, now))
            return false;
    }
    l->woke_ns = now;
    l->late += now - when > LATE_NS;
    return true;
}

/* On its own core the target stands still while we are there: for longer where its stack has changed. The next tick is so
 * much later, or earlier, than usual: then each stands for as much of the target's time, and functions that take us longer
 * do not seem to take longer. Over some seconds the rate is what was asked for. */
static int64_t spare(struct loop *l, uint64_t took_ns)
{
    const struct sampler *s = l->tree->sampler;
    uint64_t on_core = s->pauser.reads[PAUSE_SAME_CORE],
             elsewhere = s->pauser.reads[PAUSE_PTRACE] + s->pauser.reads[PAUSE_UNPAUSED];
    double took = (double)took_ns, over = (double)USUAL_NS / (double)l->interval_ns, most, diff;
    bool counts = on_core != l->on_core && elsewhere == l->elsewhere;

    l->on_core = on_core;
    l->elsewhere = elsewhere;
    if (!counts || s->pauser.affinity.cpu < 0 || l->interval_ns < BURST_NS)
        return 0;
    if (l->spared++ < USUAL_LEAST) { /* the first ones read code objects */
        l->usual_ns = l->spared == 1 || took < l->usual_ns ? took : l->usual_ns;
        return 0;
    }
    most = (double)l->interval_ns / 2;
    most = most < USUAL_MOST * l->usual_ns ? most : USUAL_MOST * l->usual_ns;
    diff = (took < most ? took : most) - l->usual_ns;
    over = (double)l->spared < over ? (double)l->spared : over;
    l->usual_ns += diff / (over > USUAL_LEAST ? over : USUAL_LEAST);
    return (int64_t)diff;
}

/* The next tick after now; those in between are missed. */
static uint64_t next_tick(struct loop *l, uint64_t due)
{
    uint64_t now = clock_now_ns(), next = due + l->interval_ns + (uint64_t)spare(l, now - l->woke_ns);

    if (now > next) {
        uint64_t skipped = (now - next) / l->interval_ns + 1;

        l->missed += skipped;
        next += skipped * l->interval_ns;
    }
    return next;
}

/* Up to a fifth of the interval to either side, so that a program with a rhythm of its own is seen at all its
 * moments. */
static uint64_t jitter(struct loop *l, uint64_t due)
{
    uint64_t fifth = l->interval_ns / 5;

    l->random ^= l->random << 13;
    l->random ^= l->random >> 7;
    l->random ^= l->random << 17;
    return fifth ? due - fifth + l->random % (2 * fifth) : due;
}

/* To be run before everyone else costs a little more at each wake-up: only for high rates, and where we are often run
 * late. That is worse than it seems: on the target's own core we are run late while it runs, and in time while it
 * sleeps, and would see it asleep too often. */
static void be_urgent_if_late(struct loop *l)
{
    if (l->tree->sampler->options.same_core &&
        (l->interval_ns < URGENT_NS || l->late + l->missed > 5 + l->ticks / LATE_SHARE))
        cpu_affinity_use_realtime(&l->tree->sampler->pauser.affinity, true);
}

/* Where nothing gets us run in time on the target's core, it is held from another one instead, if it may be. */
static void stay_apart_if_late(struct loop *l)
{
    struct sampler *s = l->tree->sampler;

    if (s->pauser.ptrace_refused || s->pauser.avoid_cores) {
        s->pauser.avoid_cores = !s->pauser.ptrace_refused;
    } else if (s->options.same_core && s->pauser.affinity.realtime_refused && l->late > 5 + l->ticks / APART_SHARE &&
               cpu_affinity_has_others(&s->pauser.affinity)) {
        cpu_affinity_move_away(&s->pauser.affinity);
        s->pauser.avoid_cores = true;
    }
}

static int sample(struct loop *l, uint64_t start)
{
    struct moment m = {l, clock_now_ns() - start};
    int r = process_tree_sample(l->tree, deliver, &m);

    if (r == ERR_GONE && is_over(l))
        return r;
    l->ticks++;
    return r == ERR_GONE ? 0 : r;
}

int loop_run(struct loop *l)
{
    uint64_t start = clock_now_ns(), due = start;
    int r = 0;

    l->end = LOOP_DURATION;
    l->random = start | 1;
    l->woke_ns = start;
    l->python_ns = start;
    clock_set_min_timer_slack();
    cpu_affinity_use_short_slice();
    be_urgent_if_late(l);
    for (;;) {
        if (l->duration_ns && due - start >= l->duration_ns) {
            if (sleep_to(l, start, start + l->duration_ns))
                l->end = LOOP_DURATION;
            break;
        }
        if (!sleep_to(l, start, jitter(l, due)))
            break;
        r = sample(l, start);
        if (r < 0)
            break;
        due = next_tick(l, due);
        be_urgent_if_late(l);
        stay_apart_if_late(l);
    }
    r = l->error < 0 ? l->error : r;
    l->elapsed_ns = clock_now_ns() - start;
    cpu_affinity_use_realtime(&l->tree->sampler->pauser.affinity, false);
    cpu_affinity_unpin(&l->tree->sampler->pauser.affinity);
    return r == ERR_GONE ? 0 : r;
}
