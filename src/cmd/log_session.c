/*
 * Options and environment -> the level of the log; machine, user and command line -> its first lines; counters -> its last.
 */
#include "cmd/log_session.h"

#include "base/clock.h"
#include "cmd/suggest.h"
#include "sample/loop.h"
#include "target/access.h"
#include "target/caps.h"
#include "target/container.h"
#include "target/setuid_guard.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#define VARIABLE "SPYGLASS_LOG"

/* An empty variable counts as unset. A setuid spyglass reads it too: it only selects one of four words. */
static int level_of_environment(enum log_level *ret, struct error_text *text)
{
    const char *name = getenv(VARIABLE);
    struct suggest g = {.word = name};

    *ret = name && *name ? log_level_by_name(name) : LOG_LEVEL_OFF;
    if (!name || !*name || *ret != LOG_LEVEL_OFF)
        return 0;
    for (enum log_level level = LOG_LEVEL_ERROR; log_level_name(level); level++)
        suggest_try(&g, log_level_name(level));
    error_text_what(text, ERR_USAGE, "the value of " VARIABLE " is not a log level");
    error_text_hint(text, "Available log levels: %s. Unset " VARIABLE " to turn the log off.", g.all);
    return ERR_USAGE;
}

/* One line for each fact about the build. */
static void log_build(const struct options *o, void (*write_build)(FILE *out))
{
    char *text = NULL, *save = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    log_info("start", "%s", args_version(o));
    if (!out)
        return;
    write_build(out);
    if (fclose(out) == 0)
        for (const char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
            log_info("start", "%s", line);
    free(text);
}

static void log_command_line(const struct options *o)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    if (!out)
        return;
    for (int i = 0; i < o->argc; i++)
        fprintf(out, strpbrk(o->argv[i], " \t'") || !*o->argv[i] ? " \"%s\"" : " %s", o->argv[i]);
    if (fclose(out) == 0)
        log_info("start", "command line:%s", text);
    free(text);
}

static void log_machine(void)
{
    struct utsname name;
    struct container c;
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    if (uname(&name) == 0)
        log_info("start", "%s %s %s %s", name.sysname, name.release, name.version, name.machine);
    log_info("start", "may run on %d of %ld CPUs",
             sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 0, sysconf(_SC_NPROCESSORS_ONLN));
    log_info("start", "container: %s",
             container_of(getpid(), &c) ? c.id
             : container_evidence()     ? container_evidence()
                                        : "none");
}

static void log_user(void)
{
    int yama = access_yama_scope();

    log_info("start", "pid %d, uid %u, gid %u, capabilities %016llx (CAP_SYS_PTRACE %s)", (int)getpid(),
             (unsigned)getuid(), (unsigned)getgid(), (unsigned long long)caps_effective(),
             caps_effective() & CAPS_PTRACE ? "yes" : "no");
    if (yama >= 0)
        log_info("start", "Yama ptrace_scope %d", yama);
    if (access_readv_filtered())
        log_warning("start", "a seccomp filter refuses process_vm_readv");
    if (access_ptrace_filtered())
        log_warning("start", "a seccomp filter refuses ptrace");
    if (setuid_guard_active())
        log_info("start", "setuid or file capabilities: gave up all rights of the file but %s",
                 caps_permitted() & CAPS_PTRACE ? "CAP_SYS_PTRACE, for processes of this user" : "none");
}

int log_session_start(const struct options *o, void (*write_build)(FILE *out), struct error_text *text)
{
    enum log_level level = o->log_level;
    int r = 0;

    if (level == LOG_LEVEL_OFF)
        r = level_of_environment(&level, text);
    if (r < 0 || level == LOG_LEVEL_OFF)
        return r;
    log_start(level, STDERR_FILENO);
    if (!log_is_on(LOG_LEVEL_INFO))
        return 0;
    log_build(o, write_build);
    log_machine();
    log_user();
    log_command_line(o);
    return 0;
}

static double share_of_core(const struct rusage *usage, uint64_t elapsed_ns)
{
    double used = (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
                  (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1e6;

    return elapsed_ns ? used * 1e11 / (double)elapsed_ns : 0;
}

static void log_loop(const struct loop *l)
{
    static const char *const ends[] = {
        [LOOP_DURATION] = "the duration is over", [LOOP_GONE] = "the target exited", [LOOP_STOPPED] = "asked to stop"};
    struct rusage usage = {0};

    getrusage(RUSAGE_SELF, &usage);
    log_info("end", "%llu ticks in %.3f s, %llu late, %llu skipped: %s", (unsigned long long)l->ticks,
             (double)l->elapsed_ns / 1e9, (unsigned long long)l->late, (unsigned long long)l->missed, ends[l->end]);
    log_info("end", "spyglass used %.2f%% of a core and at most %ld KB", share_of_core(&usage, l->elapsed_ns),
             usage.ru_maxrss);
}

void log_session_counters(const struct sampler *s, const struct loop *l)
{
    if (!s || !log_is_on(LOG_LEVEL_INFO))
        return;
    if (l && l->elapsed_ns)
        log_loop(l);
    log_info("end", "%llu stacks; skipped %llu idle and %llu without the GIL; %llu unverified",
             (unsigned long long)s->stacks, (unsigned long long)s->idle, (unsigned long long)s->no_gil,
             (unsigned long long)s->unsure);
    log_info("end", "read while asleep %llu, from the same core %llu, paused by ptrace %llu, unpaused %llu",
             (unsigned long long)s->pauser.reads[PAUSE_ASLEEP], (unsigned long long)s->pauser.reads[PAUSE_SAME_CORE],
             (unsigned long long)s->pauser.reads[PAUSE_PTRACE], (unsigned long long)s->pauser.reads[PAUSE_UNPAUSED]);
    log_info("end", "%llu pauses, median %.1f us, 99th percentile %.1f us, longest %.1f us%s",
             (unsigned long long)s->pauser.pauses, (double)pause_percentile_ns(&s->pauser, 50) / NS_PER_US,
             (double)pause_percentile_ns(&s->pauser, 99) / NS_PER_US, (double)s->pauser.longest_ns / NS_PER_US,
             s->pauser.ptrace_refused ? "; ptrace was refused" : "");
    if (s->options.native)
        log_info("end", "native stacks: %llu missing, %llu cut off, %llu with Python frames left over",
                 (unsigned long long)s->native_none, (unsigned long long)s->native_cut,
                 (unsigned long long)s->native_failed);
    for (int i = 0; i < SAMPLER_ERRORS; i++)
        if (s->errors[i])
            log_info("end", "discarded %llu stacks: %s", (unsigned long long)s->errors[i], err_name(ERR_NOMEM + i));
}

void log_session_end(int status)
{
    if (status)
        log_error("end", "exit status %d", status);
    else
        log_info("end", "exit status %d", status);
    log_finish();
}
