/*
 * Prints the summary of a recording: the sampling rate, errors, pauses and the cost.
 */
#include "cmd/summary.h"

#include "base/clock.h"
#include "base/helper.h"
#include "cmd/report.h"
#include "target/access.h"

#include <ctype.h>
#include <stdarg.h>
#include <sys/resource.h>

#define BEHIND_SHARE 0.9 /* warn below this share of the requested rate */
#define NATIVE_SHARE 0.1 /* mention the CPU time of threads without Python from this share on */
#define LATE_SHARE   20  /* warn if more than one sample in this many is late */
#define WAIT_SHARE   10  /* say that threads waited for a core if it is more than this part of their CPU time, */
#define MIN_WAIT_NS  (100 * NS_PER_MS)
#define OWN_WAIT_NS  (60 * NS_PER_US) /* how long a thread waits for a core because of one sample */

__attribute__((format(printf, 2, 3))) static void say(const struct account *a, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    report_line(a->out, a->o, fmt, args);
    va_end(args);
}

static void say_ways(const struct account *a, double elapsed)
{
    const struct sampler *s = a->sampler;
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    say(a, "Stacks by method: same core %llu, ptrace %llu, asleep %llu, unpaused %llu.",
        (unsigned long long)s->pauser.reads[PAUSE_SAME_CORE], (unsigned long long)s->pauser.reads[PAUSE_PTRACE],
        (unsigned long long)s->pauser.reads[PAUSE_ASLEEP], (unsigned long long)s->pauser.reads[PAUSE_UNPAUSED]);
    say(a, "spyglass used %.2f%% of one CPU over %.2f s, and at most %.1f MB of memory.",
        elapsed > 0 ? ((double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6 +
                       (double)helper_cpu_ns() / (double)NS_PER_S) /
                          elapsed * 100
                    : 0,
        elapsed, (double)(usage.ru_maxrss + helper_max_rss_kib()) / 1024);
}

static uint64_t count_reads(const struct sampler *s)
{
    uint64_t n = 0;

    for (int i = 0; i < PAUSE_METHODS; i++)
        n += s->pauser.reads[i];
    return n;
}

static void say_rate(const struct account *a, double held)
{
    const struct sampler *s = a->sampler;
    double median = (double)pause_percentile_ns(&s->pauser, 50) / 1000, longest = (double)s->pauser.longest_ns / 1000;

    if (s->pauser.pauses)
        say(a,
            "Sampled %.1f times per second, read %llu stacks; paused running threads %llu times, median %.*f µs, "
            "longest "
            "%.*f µs.",
            held, (unsigned long long)count_reads(s), (unsigned long long)s->pauser.pauses, median < 10 ? 1 : 0, median,
            longest < 10 ? 1 : 0, longest);
    else if (a->loop->ticks)
        say(a, "Sampled %.1f times per second, read %llu stacks; no running thread had to be paused.", held,
            (unsigned long long)count_reads(s));
}

/* Each time we pause a thread, it waits for us. */
static uint64_t core_wait_ns(const struct sampler *s)
{
    uint64_t own_ns = s->pauser.pauses * OWN_WAIT_NS;

    return s->core_wait_ns > own_ns ? s->core_wait_ns - own_ns : 0;
}

/* How much CPU time there was, how much of it the profile shows, and what kept the threads from getting more. */
static void say_cpu_time(const struct account *a, double elapsed)
{
    const struct sampler *s = a->sampler;
    uint64_t cpu_ns = s->attributed_ns + s->lost_ns, wait_ns = core_wait_ns(s);
    double cpu = (double)cpu_ns / (double)NS_PER_S, wait = (double)wait_ns / (double)NS_PER_S;
    const char *limit =
        a->throttled_ns * 2 > wait_ns ? "the container's CPU limit is the bottleneck" : "the machine is the bottleneck";

    if (s->options.mode != SAMPLER_CPU || !cpu_ns)
        return;
    if (wait_ns >= MIN_WAIT_NS && wait_ns > cpu_ns / WAIT_SHARE)
        say(a, "%.2f s of CPU time in %.2f s, %.1f%% attributed; threads waited %.2f s for a core: %s.", cpu, elapsed,
            100.0 * (double)s->attributed_ns / (double)cpu_ns, wait, limit);
    else
        say(a, "%.2f s of CPU time in %.2f s, %.1f%% attributed.", cpu, elapsed,
            100.0 * (double)s->attributed_ns / (double)cpu_ns);
}

static void say_native(const struct account *a)
{
    const struct sampler *s = a->sampler;

    if (s->native_cut || s->native_failed)
        say(a,
            "Native stacks: %llu of %llu could not be unwound to the root; %llu could not be fully merged with Python "
            "frames.",
            (unsigned long long)s->native_cut, (unsigned long long)s->stacks, (unsigned long long)s->native_failed);
    if (s->native_none)
        say(a, "%llu stack(s) have no native frames: spyglass could not pause the thread.",
            (unsigned long long)s->native_none);
}

/* Only --native-all samples threads without Python. With --gil, they are not wanted. */
unsigned summary_native_percent(const struct options *o, const struct cpu_use *cpu)
{
    double share = cpu->total_ns ? (double)cpu->native_ns / (double)cpu->total_ns : 0;

    if (o->as_py_spy || o->native_all || o->gil || (double)cpu->native_ns * o->rate < (double)NS_PER_S)
        return 0;
    return share < NATIVE_SHARE ? 0 : share >= 1 ? 100 : (unsigned)(share * 100);
}

static void say_native_cpu(const struct account *a)
{
    unsigned percent = summary_native_percent(a->o, &a->cpu);

    if (percent)
        say(a, "At least %u%% of the CPU time was in threads that run no Python. %s --native-all to include them.",
            percent, a->o->nonblocking ? "Replace --nonblocking with" : "Add");
}

static void say_folded(const struct account *a)
{
    const struct profile_options *o = &a->profile->options;

    if (a->profile->folded && (o->threads || o->processes || o->timeline))
        say(a, "There were too many threads: merged %llu with the fewest samples into [other threads]%s.",
            (unsigned long long)a->profile->folded, o->processes ? " and [other processes]" : "");
}

static void say_losses(const struct account *a)
{
    const struct helper_loss *losses;
    size_t n = helper_losses(&losses);

    for (size_t i = 0; i < n; i++) {
        char text[REPORT_LOSS_ROOM];

        report_loss(&losses[i], text);
        text[0] = (char)toupper((unsigned char)text[0]);
        say(a, "%s", text);
    }
}

void summary_write(const struct account *a)
{
    const struct loop *l = a->loop;
    double elapsed = (double)l->elapsed_ns / (double)NS_PER_S;
    double held = elapsed > 0 ? (double)l->ticks / elapsed : 0;

    if (l->slowed > l->ticks / 2 && held < a->o->rate * BEHIND_SHARE)
        say(a, "Could not sample %g times per second: the program would have lost more than %u%% of its speed.",
            a->o->rate, loop_most_loss_percent(l->interval_ns));
    else if (l->missed && held < a->o->rate * BEHIND_SHARE)
        say(a, "Could not sample %g times per second: dropped %llu late sample%s. Try a lower --rate.", a->o->rate,
            (unsigned long long)l->missed, l->missed == 1 ? "" : "s");
    if (l->late > l->ticks / LATE_SHARE && a->sampler->pauser.affinity.realtime_refused)
        say(a,
            "%llu samples were late: the kernel did not preempt other threads, so threads that sleep often are "
            "undersampled. Run as root, or with CAP_SYS_NICE.",
            (unsigned long long)l->late);
    for (int i = 0; i < SAMPLER_ERRORS; i++)
        if (a->sampler->errors[i])
            say(a, "Could not read %llu stack(s): %s", (unsigned long long)a->sampler->errors[i],
                err_name(ERR_NOMEM + i));
    say_losses(a);
    say_native(a);
    say_native_cpu(a);
    if (a->sampler->unsure)
        say(a, "%llu stack(s) changed while being read: their innermost frames are shown as [unverified].",
            (unsigned long long)a->sampler->unsure);
    if (a->profile->pruned)
        say(a, "The profile exceeded its memory limit: merged %llu rare calls into their callers (pruned).",
            (unsigned long long)a->profile->pruned);
    say_folded(a);
    if (a->profile->coarsened)
        say(a, "The timeline exceeded its memory limit: merged adjacent samples %llu time(s).",
            (unsigned long long)a->profile->coarsened);
    if (a->o->verbose)
        say_ways(a, elapsed);
    say_rate(a, held);
    if (a->sampler->options.all_tasks)
        say(a, "Read the tasks %llu times; at most %llu in one process.", (unsigned long long)a->sampler->task_readings,
            (unsigned long long)a->sampler->tasks_most);
    say_cpu_time(a, elapsed);
    if (a->sampler->pauser.ptrace_refused && !a->o->nonblocking)
        say(a, "Could not pause the process (%s), so spyglass read it while it was running.",
            report_pause_refusal(a->pid).what);
}
