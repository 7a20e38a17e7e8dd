/*
 * The recording loop. It sleeps until absolute times, so that delays do not accumulate.
 */
#include "sample/loop.h"

#include "base/clock.h"

#include <math.h>
#include <unistd.h>

#define REFRESH_NS        (20 * NS_PER_MS)
#define REFRESH_SINGLE_NS (200 * NS_PER_MS) /* for one process that can be read */
/* Check signals and the target at least this often. */
#define MAX_SLEEP_NS           (100 * NS_PER_MS)
#define MIN_SLEEP_NS           (2 * NS_PER_US)
#define BURST_NS               (40 * NS_PER_US) /* how long the sampler stays on the target's core without a break */
#define PACE                   20 /* an interval is at least this many pauses: the target keeps 95% of its speed */
#define PACE_FULL              12 /* 90% */
#define FULL_NS                (100 * NS_PER_US) /* an interval below this asks for full speed */
#define PAUSE_COST_NS          (15 * NS_PER_US) /* of a pause besides its length: timer, context switches, cold caches */
#define PACE_TICKS             16               /* of the mean */
#define PACE_STEP              2 /* one tick raises the mean as if it needed at most this many times the interval */
#define RANDOM_NS              (10 * NS_PER_MS) /* the mean of the random part of an interval, at most */
#define RANDOM_MOST            8                /* times that mean */
#define REALTIME_INTERVAL_NS   (500 * NS_PER_US)
#define LATE_SHARE             50 /* one tick in this many */
#define LATE_NS                (300 * NS_PER_US)
#define LEAVE_CORE_SHARE       10
#define MEAN_WINDOW_NS         (4 * NS_PER_S) /* period of the mean, but at least this many ticks */
#define MEAN_MIN_TICKS         32
#define MAX_DEVIATION          8 /* times the mean; a longer read had another cause */
#define HOUSEKEEPING_NS        (200 * NS_PER_US)
#define HOUSEKEEPING_SINGLE_NS (20 * NS_PER_MS)
#define ROOT_CHECK_NS          (50 * NS_PER_MS) /* sampling itself notices sooner that a Python process has ended */
#define LAST_REFRESHES         2                /* to find children of processes that have just ended */
/* When the root and all Python processes have ended, the rest of the tree may still start one (a shell that sleeps),
 * or stay forever (a server). Wait this long. */
#define NO_PYTHON_NS (10 * NS_PER_S)

/* For a program that was just started to become Python. */
#define WAIT_POLL_NS  (2 * NS_PER_MS)
#define WAIT_OFTEN_NS (5 * NS_PER_S)

struct tick_context {
    struct loop *loop;
    uint64_t elapsed_ns;
};

static int deliver(const struct trace *trace, void *arg)
{
    struct tick_context *ctx = arg;

    return ctx->loop->trace(trace, ctx->elapsed_ns, ctx->loop->arg);
}

/* True when no more stacks can follow. */
static bool is_finished(struct loop *l)
{
    const struct process_tree *t = l->tree;
    uint64_t now = clock_now_ns();

    if (process_tree_root_alive(t) || process_tree_has_python(t)) {
        l->python_seen_ns = now;
        return false;
    }
    if (process_tree_has_only_root(t) || (t->one_at_a_time && t->has_python))
        return true;
    return (!l->duration_ns || t->one_at_a_time) && now - l->python_seen_ns >= NO_PYTHON_NS;
}

/* A process that has ended may have left children that are not in the tree yet. Refresh before giving up. Returns
 * true, with l->end or l->error set, when the loop should end. */
static bool check_ended(struct loop *l)
{
    bool ended = is_finished(l);

    for (int i = 0; i < LAST_REFRESHES && ended && l->error == 0; i++) {
        l->error = sampled_tree_refresh(l->tree);
        ended = is_finished(l);
    }
    if (ended)
        l->end = LOOP_GONE;
    return ended || l->error < 0;
}

/* Runs between samples, at most every HOUSEKEEPING_NS. False when the loop should end. */
static bool housekeep(struct loop *l, uint64_t start, uint64_t now)
{
    bool single = process_tree_is_single(l->tree);

    if (now - l->housekept_ns < (single ? HOUSEKEEPING_SINGLE_NS : HOUSEKEEPING_NS))
        return true;
    l->housekept_ns = now;
    if (!l->tick(l->arg, now - start)) {
        l->end = LOOP_STOPPED;
        return false;
    }
    if (now - l->refreshed_ns >= (single ? REFRESH_SINGLE_NS : REFRESH_NS)) {
        sampler_leave_core(l->tree->sampler);
        l->error = sampled_tree_refresh(l->tree);
        l->refreshed_ns = clock_now_ns();
        if (l->error < 0)
            return false;
    }
    if (now - l->root_checked_ns < (single ? REFRESH_SINGLE_NS : ROOT_CHECK_NS))
        return true;
    l->root_checked_ns = now;
    return !check_ended(l);
}

unsigned loop_most_loss_percent(uint64_t interval_ns)
{
    return interval_ns < FULL_NS ? 10 : 5;
}

/* The shortest interval that does not slow the target down too much: PACE times the time that a tick pauses it. Threads
 * that run at the same time share the loss. Uses a moving average, so that the rate does not depend on what the target
 * does at the moment. A tick that is much longer than the others, like the first ones, does not count in full. */
static void update_pace(struct loop *l, uint64_t pauses, uint64_t paused_ns)
{
    double most = l->min_interval_ns > (double)l->interval_ns ? l->min_interval_ns : (double)l->interval_ns;
    double need = (double)((l->interval_ns < FULL_NS ? PACE_FULL : PACE) * (paused_ns + pauses * PAUSE_COST_NS)) /
                  (double)(pauses < l->cpus ? pauses : l->cpus);

    most *= PACE_STEP;
    l->min_interval_ns += ((need < most ? need : most) - l->min_interval_ns) / PACE_TICKS;
}

/* Called before each sleep: adds up how long we kept the target from running since the last one. On the target's core,
 * that is all of our CPU time there. */
static void measure_pauses(struct loop *l)
{
    struct pauser *ps = &l->tree->sampler->pauser;
    uint64_t pauses = ps->pauses - l->pauses, paused_ns = ps->paused_ns - l->paused_ns;
    uint64_t pinned_ns = cpu_affinity_pinned_ns(&ps->affinity), used_ns = pinned_ns - l->pinned_ns;

    l->pauses = ps->pauses;
    l->paused_ns = ps->paused_ns;
    l->pinned_ns = pinned_ns;
    if (!pauses)
        return;
    if (ps->affinity.cpu >= 0 && used_ns > paused_ns)
        paused_ns = used_ns;
    if (ps->affinity.cpu >= 0 && paused_ns > ps->longest_ns)
        ps->longest_ns = paused_ns;
    update_pace(l, pauses, paused_ns);
}

/* Sleeps until `when`, in steps. False when the loop should end. */
static bool sleep_until(struct loop *l, uint64_t start, uint64_t when)
{
    /* Find new children soon, even at a low rate. */
    uint64_t now = clock_now_ns(), most = l->tree->subprocesses ? REFRESH_NS : MAX_SLEEP_NS;

    if (!housekeep(l, start, now))
        return false;
    measure_pauses(l);
    /* A sleep this short is not worth a system call. But on the target's core, the target only runs while we sleep:
     * after each burst, give it twice that time. */
    if (now + MIN_SLEEP_NS >= when) {
        if (l->tree->sampler->pauser.affinity.cpu < 0 || now - l->woke_ns < BURST_NS)
            return true;
        when = now + 2 * BURST_NS;
    }
    while (now < when) {
        clock_sleep_until_ns(when - now > most ? now + most : when);
        now = clock_now_ns();
        if (now < when && !housekeep(l, start, now))
            return false;
    }
    l->woke_ns = now;
    l->tree->sampler->pauser.affinity.since_ns = now;
    l->late += now - when > LATE_NS;
    return true;
}

/* With the same-core method the target is paused while the sampler runs, and longer when its stack has changed. Move
 * the next tick by the difference from the mean, so that each tick covers the same amount of target time. Otherwise
 * functions that take longer to read would seem to run longer. Over a few seconds the rate is the one requested. */
static int64_t pause_correction(struct loop *l, uint64_t took_ns)
{
    const struct sampler *s = l->tree->sampler;
    uint64_t same_core_reads = s->pauser.reads[PAUSE_SAME_CORE],
             other_reads = s->pauser.reads[PAUSE_PTRACE] + s->pauser.reads[PAUSE_UNPAUSED];
    double took = (double)took_ns, window = (double)MEAN_WINDOW_NS / (double)l->interval_ns, most, diff;
    bool is_measured = same_core_reads != l->same_core_reads && other_reads == l->other_reads;

    l->same_core_reads = same_core_reads;
    l->other_reads = other_reads;
    if (!is_measured || s->pauser.affinity.cpu < 0 || l->interval_ns < BURST_NS)
        return 0;
    if (l->n_reads++ < MEAN_MIN_TICKS) { /* the first reads are longer, since they fetch code objects */
        l->mean_read_ns = l->n_reads == 1 || took < l->mean_read_ns ? took : l->mean_read_ns;
        return 0;
    }
    most = (double)l->held_ns / 2;
    most = most < MAX_DEVIATION * l->mean_read_ns ? most : MAX_DEVIATION * l->mean_read_ns;
    diff = (took < most ? took : most) - l->mean_read_ns;
    window = (double)l->n_reads < window ? (double)l->n_reads : window;
    l->mean_read_ns += diff / (window > MEAN_MIN_TICKS ? window : MEAN_MIN_TICKS);
    return (int64_t)diff;
}

static uint64_t next_random(struct loop *l)
{
    l->random ^= l->random << 13;
    l->random ^= l->random >> 7;
    l->random ^= l->random << 17;
    return l->random;
}

/*
 * Ticks are regular, with some jitter, so that sampling does not run in step with a periodic program.
 *
 * Where threads compete for cores, that is not enough. We preempt whatever runs on a core, and the next thread starts when we
 * sleep again: at regular ticks, we would see it at the same points of its work each time. There the time from one tick to the
 * next is random, with an exponential distribution, so that a tick is as likely at any time as at any other; below 100 Hz, only
 * 10 ms of it are random. Callers that count samples get regular ticks.
 */
static bool is_regular(const struct loop *l)
{
    const struct sampler *s = l->tree->sampler;

    return s->options.mode == SAMPLER_COUNT || !s->contended;
}

static uint64_t random_interval(struct loop *l, uint64_t interval_ns)
{
    uint64_t random_ns = interval_ns < RANDOM_NS ? interval_ns : RANDOM_NS;
    double u = ((double)(next_random(l) >> 11) + 1) / (double)(1ull << 53), x = -log(u);

    return interval_ns - random_ns + (uint64_t)((x < RANDOM_MOST ? x : RANDOM_MOST) * (double)random_ns);
}

/* Up to a fifth of the interval in either direction. */
static uint64_t jitter(struct loop *l, uint64_t due)
{
    uint64_t fifth = l->held_ns / 5;

    return is_regular(l) && fifth ? due - fifth + next_random(l) % (2 * fifth) : due;
}

/* The next tick after now. Ticks in between are missed. */
static uint64_t next_tick(struct loop *l, uint64_t due)
{
    uint64_t now = clock_now_ns(), interval_ns = l->interval_ns, next, skipped = 0;
    struct sampler *s = l->tree->sampler;

    if (l->min_interval_ns > (double)interval_ns)
        interval_ns = (uint64_t)l->min_interval_ns;
    l->held_ns = interval_ns;
    l->slowed += interval_ns > l->interval_ns;
    if (is_regular(l)) {
        next = due + interval_ns + (uint64_t)pause_correction(l, now - l->woke_ns);
        skipped = now > next ? (now - next) / interval_ns + 1 : 0;
        next += skipped * interval_ns;
        s->tick_ns = (skipped + 1) * interval_ns;
    } else {
        next = due + random_interval(l, interval_ns);
        if (next < now) {
            skipped = (now - next) / interval_ns + 1;
            next = now + random_interval(l, interval_ns);
        }
        s->tick_ns = next - due;
    }
    s->limit_ns = s->tick_ns > interval_ns ? s->tick_ns : interval_ns;
    l->missed += skipped;
    s->contended -= s->contended > 0;
    return next;
}

/* Realtime scheduling makes each wakeup a little more expensive. Use it only at high rates, when the kernel often wakes us late,
 * and where threads compete for cores. Late wakeups bias the profile: on the target's core, we are late if the target runs, and
 * not if it sleeps. */
static void use_realtime_if_late(struct loop *l)
{
    struct sampler *s = l->tree->sampler;

    if (s->options.same_core &&
        (l->interval_ns < REALTIME_INTERVAL_NS || s->contended || l->late + l->missed > 5 + l->ticks / LATE_SHARE))
        cpu_affinity_use_realtime(&s->pauser.affinity, true);
}

/* If realtime scheduling is not allowed and wakeups on the target's core stay late, use ptrace from another core
 * instead. */
static void leave_core_if_late(struct loop *l)
{
    struct sampler *s = l->tree->sampler;

    if (s->pauser.ptrace_refused || s->pauser.avoid_cores) {
        s->pauser.avoid_cores = !s->pauser.ptrace_refused;
    } else if (s->options.same_core && s->pauser.affinity.realtime_refused &&
               l->late > 5 + l->ticks / LEAVE_CORE_SHARE && cpu_affinity_has_others(&s->pauser.affinity)) {
        cpu_affinity_move_away(&s->pauser.affinity);
        s->pauser.avoid_cores = true;
    }
}

int loop_wait(struct loop *l)
{
    uint64_t start = clock_now_ns(), now = start;

    l->python_seen_ns = start;
    while (!l->tree->has_python) {
        l->error = sampled_tree_refresh(l->tree);
        now = clock_now_ns();
        if (l->error < 0 || l->tree->has_python || check_ended(l))
            break;
        if (!l->tick(l->arg, now - start)) {
            l->end = LOOP_STOPPED;
            break;
        }
        clock_sleep_ns(now - start < WAIT_OFTEN_NS ? WAIT_POLL_NS : REFRESH_NS);
    }
    return l->error;
}

static int sample(struct loop *l, uint64_t start)
{
    struct tick_context ctx = {l, clock_now_ns() - start};
    int r = sampled_tree_sample(l->tree, deliver, &ctx);

    if (r == ERR_GONE && check_ended(l))
        return r;
    l->ticks++;
    return r == ERR_GONE ? 0 : r;
}

/* A stack is weighted by the time before it, so take a final sample to cover the time since the last tick. */
static int finish(struct loop *l, uint64_t start)
{
    struct sampler *s = l->tree->sampler;
    int r;

    s->is_last = true;
    r = s->options.mode == SAMPLER_COUNT || s->options.mode == SAMPLER_GIL ? 0 : sample(l, start);

    sampler_leave_core(s);
    sampled_tree_settle(l->tree);
    return r;
}

int loop_run(struct loop *l)
{
    uint64_t start = clock_now_ns(), due = start;
    int r = 0;

    l->end = LOOP_DURATION;
    l->random = start | 1;
    l->woke_ns = start;
    l->pinned_ns = cpu_affinity_pinned_ns(&l->tree->sampler->pauser.affinity);
    l->held_ns = l->interval_ns;
    l->cpus = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
    l->python_seen_ns = start;
    l->tree->sampler->tick_ns = l->tree->sampler->limit_ns = l->interval_ns;
    clock_set_min_timer_slack();
    cpu_affinity_use_short_slice();
    use_realtime_if_late(l);
    for (;;) {
        if (l->duration_ns && due - start >= l->duration_ns) {
            if (sleep_until(l, start, start + l->duration_ns))
                l->end = LOOP_DURATION;
            break;
        }
        if (!sleep_until(l, start, jitter(l, due)))
            break;
        r = sample(l, start);
        if (r < 0)
            break;
        due = next_tick(l, due);
        use_realtime_if_late(l);
        leave_core_if_late(l);
    }
    r = l->error < 0 ? l->error : r;
    l->is_early = l->ticks == 0;
    if (r == 0 && l->end != LOOP_GONE)
        r = finish(l, start);
    l->elapsed_ns = clock_now_ns() - start;
    cpu_affinity_use_realtime(&l->tree->sampler->pauser.affinity, false);
    cpu_affinity_unpin(&l->tree->sampler->pauser.affinity);
    return r == ERR_GONE ? 0 : r;
}
