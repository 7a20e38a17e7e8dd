/*
 * The end of a recording -> what was held and what it cost, a line each. Called by record.
 */
#include "cmd/summary.h"

#include "base/clock.h"
#include "cmd/report.h"
#include "target/access.h"

#include <stdarg.h>
#include <sys/resource.h>

#define BEHIND_SHARE 0.9 /* below this share of the rate asked for, it is told */
#define LATE_SHARE   20  /* and when one sample in so many is late */

__attribute__((format(printf, 2, 3))) static void say(const struct account *a, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    report_line(a->out, a->o, fmt, args);
    va_end(args);
}

static void say_ways(const struct account *a, double held, double elapsed)
{
    const struct sampler *s = a->sampler;
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    say(a, "Read from the thread's own core: %llu; held by ptrace: %llu; asleep: %llu; unheld: %llu.",
        (unsigned long long)s->ways[PAUSE_SAME_CORE], (unsigned long long)s->ways[PAUSE_PTRACE],
        (unsigned long long)s->ways[PAUSE_ASLEEP], (unsigned long long)s->ways[PAUSE_NONE]);
    say(a, "%.1f samples a second over %.2f s; our CPU time %.2f%% of a core, %.1f MB at most.", held, elapsed,
        elapsed > 0 ? ((double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6) /
                          elapsed * 100
                    : 0,
        (double)usage.ru_maxrss / 1024);
}

static void say_holds(const struct account *a, double held)
{
    const struct sampler *s = a->sampler;

    if (s->holds)
        say(a, "%.1f samples a second; running threads stood still %llu times for it, median %.1f us, longest %.1f us.",
            held, (unsigned long long)s->holds, (double)sampler_median_hold_ns(s) / 1000,
            (double)s->hold_longest_ns / 1000);
    else if (a->loop->ticks)
        say(a, "%.1f samples a second; no running thread had to stand still for it.", held);
}

static void say_native(const struct account *a)
{
    const struct sampler *s = a->sampler;

    if (s->native_cut || s->native_failed)
        say(a,
            "Native stacks: %llu of %llu could not be followed to their beginning; in %llu Python frames had no place.",
            (unsigned long long)s->native_cut, (unsigned long long)s->stacks, (unsigned long long)s->native_failed);
    if (s->native_none)
        say(a, "%llu of the stacks have no native frames: their thread could not be held.",
            (unsigned long long)s->native_none);
}

void summary_write(const struct account *a)
{
    const struct loop *l = a->loop;
    double elapsed = (double)l->elapsed_ns / (double)NS_PER_S;
    double held = elapsed > 0 ? (double)l->ticks / elapsed : 0;

    if (l->missed && held < a->o->rate * BEHIND_SHARE)
        say(a, "Held %.1f of the %g samples a second asked for: %llu late ones were dropped. Try a lower --rate.", held,
            a->o->rate, (unsigned long long)l->missed);
    if (l->late > l->ticks / LATE_SHARE && a->sampler->core.realtime_refused)
        say(a,
            "%llu samples were late: the kernel let others end their turn. Threads that sleep often are then seen too "
            "rarely. Run as root, or with CAP_SYS_NICE.",
            (unsigned long long)l->late);
    for (int i = 0; i < SAMPLER_ERRORS; i++)
        if (a->sampler->errors[i])
            say(a, "%llu stack(s) could not be read: %s", (unsigned long long)a->sampler->errors[i],
                err_name(ERR_NOMEM + i));
    say_native(a);
    if (a->sampler->unsure)
        say(a, "%llu of the stacks were read while their thread moved: the frames on top are marked [not sure].",
            (unsigned long long)a->sampler->unsure);
    if (a->profile->pruned)
        say(a, "The profile outgrew its memory: %llu of its rarest calls were folded into their callers (pruned).",
            (unsigned long long)a->profile->pruned);
    if (a->profile->coarsened)
        say(a, "The time line outgrew its memory: neighbouring samples were joined %llu time(s).",
            (unsigned long long)a->profile->coarsened);
    if (a->o->verbose)
        say_ways(a, held, elapsed);
    say_holds(a, held);
    if (a->sampler->hold_refused && !a->o->nonblocking)
        say(a, "The process may not be held (%s): it was read while it ran.", access_hold_reason(a->pid).text);
}
