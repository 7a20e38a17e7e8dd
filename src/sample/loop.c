/*
 * The recording loop. Called by cmd/record; sleeps to absolute times, so that errors do not add up.
 */
#include "sample/loop.h"

#include "base/clock.h"

#define REFRESH_NS (20 * NS_PER_MS)
/* How long a sleep may last without a look at signals and the target. */
#define LOOK_NS (100 * NS_PER_MS)

struct moment {
    struct loop *loop;
    uint64_t elapsed_ns;
};

static int deliver(const struct trace *trace, void *arg)
{
    struct moment *m = arg;

    return m->loop->trace(trace, m->elapsed_ns, m->loop->arg);
}

/* Sleeps to `when`, in pieces. False when it is time to end. */
static bool sleep_to(struct loop *l, uint64_t start, uint64_t when)
{
    for (uint64_t now = clock_now_ns(); now < when; now = clock_now_ns()) {
        if (!l->tick(l->arg, now - start)) {
            l->end = LOOP_ASKED;
            return false;
        }
        if (!family_root_alive(l->family) && (l->ends_with_root || l->family->n == 1)) {
            l->end = LOOP_GONE;
            return false;
        }
        clock_sleep_until_ns(when - now > LOOK_NS ? now + LOOK_NS : when);
    }
    return true;
}

/* The next tick on the grid after now; those in between are missed. */
static uint64_t next_tick(struct loop *l, uint64_t due)
{
    uint64_t now = clock_now_ns(), next = due + l->interval_ns;

    if (now > next) {
        uint64_t skipped = (now - next) / l->interval_ns + 1;

        l->missed += skipped;
        next += skipped * l->interval_ns;
    }
    return next;
}

static int sample(struct loop *l, uint64_t start)
{
    struct moment m = {l, clock_now_ns() - start};
    int r = family_sample(l->family, deliver, &m);

    if (r == ERR_GONE)
        l->end = LOOP_GONE;
    else
        l->ticks++;
    return r;
}

int loop_run(struct loop *l)
{
    uint64_t start = clock_now_ns(), due = start, refreshed = start;
    int r = 0;

    l->end = LOOP_DURATION;
    for (;;) {
        if (l->duration_ns && due - start >= l->duration_ns) {
            if (sleep_to(l, start, start + l->duration_ns))
                l->end = LOOP_DURATION;
            break;
        }
        if (!sleep_to(l, start, due))
            break;
        if (clock_now_ns() - refreshed >= REFRESH_NS) {
            r = family_refresh(l->family, 0);
            refreshed = clock_now_ns();
        }
        if (r == 0)
            r = sample(l, start);
        if (r < 0)
            break;
        if (!l->tick(l->arg, clock_now_ns() - start)) {
            l->end = LOOP_ASKED;
            break;
        }
        due = next_tick(l, due);
    }
    l->elapsed_ns = clock_now_ns() - start;
    return r == ERR_GONE ? 0 : r;
}
