/*
 * Affinity and priority of our own thread. Does not touch the target.
 */
#include "pause/cpu_affinity.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REALTIME_MAX_US 50000 /* without a sleep; far more than a stack takes */

/* The CPUs we could run on at start: the user's affinity mask within the cpuset. */
static bool is_allowed(const struct cpu_affinity *c, int cpu)
{
    return cpu >= 0 && cpu < CPU_AFFINITY_CPUS && c->allowed[cpu / 64] >> (cpu % 64) & 1;
}

int cpu_affinity_pin(struct cpu_affinity *c, int cpu)
{
    uint64_t set[CPU_AFFINITY_CPUS / 64] = {0};

    if (c->cpu == cpu)
        return 0;
    if (!c->known) {
        c->known = true;
        /* The kernel fills in as many words as it has; its words are ours (sched_setaffinity(2)). */
        if (sched_getaffinity(0, sizeof(c->allowed), (cpu_set_t *)(void *)c->allowed) < 0)
            memset(c->allowed, 0, sizeof(c->allowed));
    }
    if (!is_allowed(c, cpu)) {
        log_often(LOG_LEVEL_INFO, "pause", cpu, "core %d: affinity or cpuset keeps us away from it", cpu);
        return ERR_PERMISSION;
    }
    if (c->returning) {
        c->returning = false;
        cpu_affinity_use_realtime(c, true);
    }
    set[cpu / 64] = 1ull << (cpu % 64);
    if (sched_setaffinity(0, sizeof(set), (const cpu_set_t *)(const void *)set) < 0) {
        log_often(LOG_LEVEL_INFO, "pause", cpu, "core %d: sched_setaffinity: %s", cpu, strerror(errno));
        return ERR_PERMISSION;
    }
    if (c->cpu < 0)
        c->away_ns += clock_cpu_ns() - c->left_ns;
    c->cpu = cpu;
    c->since_ns = clock_now_ns();
    return 0;
}

static void set_unpinned(struct cpu_affinity *c, int cpu)
{
    if (c->cpu >= 0)
        c->left_ns = clock_cpu_ns();
    c->cpu = cpu;
}

bool cpu_affinity_has_others(const struct cpu_affinity *c)
{
    int n = 0;

    for (size_t i = 0; i < sizeof(c->allowed) / sizeof(c->allowed[0]); i++)
        n += __builtin_popcountll(c->allowed[i]);
    return n > 1;
}

void cpu_affinity_move_away(struct cpu_affinity *c)
{
    uint64_t set[CPU_AFFINITY_CPUS / 64];
    int here = cpu_affinity_current();

    memcpy(set, c->allowed, sizeof(set));
    if (is_allowed(c, here))
        set[here / 64] &= ~(1ull << (here % 64));
    sched_setaffinity(0, sizeof(set), (const cpu_set_t *)(const void *)set);
    log_often(LOG_LEVEL_DEBUG, "pause", 0, "moving away from core %d", here);
    set_unpinned(c, CPU_AFFINITY_AWAY);
}

int cpu_affinity_current(void)
{
    return sched_getcpu();
}

void cpu_affinity_unpin(struct cpu_affinity *c)
{
    if (c->cpu == CPU_AFFINITY_ANY)
        return;
    sched_setaffinity(0, sizeof(c->allowed), (const cpu_set_t *)(const void *)c->allowed);
    set_unpinned(c, CPU_AFFINITY_ANY);
}

/* The kernel's struct sched_attr, as far as we need it (include/uapi/linux/sched/types.h); glibc does not have it
 * yet. */
struct attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

#define SLICE_NS      100000
#define RESET_ON_FORK 1

void cpu_affinity_use_short_slice(void)
{
    struct attr attr = {.size = sizeof(attr)};

    if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) < 0 || attr.policy != SCHED_OTHER)
        return;
    attr.size = sizeof(attr);
    attr.flags = RESET_ON_FORK;
    attr.runtime = SLICE_NS;
    syscall(SYS_sched_setattr, 0, &attr, 0);
}

static int set_realtime(bool realtime)
{
    struct sched_param param = {.sched_priority = realtime ? 1 : 0};

    /* Children must not inherit it. */
    return sched_setscheduler(0, (realtime ? SCHED_FIFO : SCHED_OTHER) | SCHED_RESET_ON_FORK, &param);
}

static volatile sig_atomic_t is_expired; /* the watchdog has taken the priority away */

static void on_sigxcpu(int sig)
{
    (void)sig;
    set_realtime(false);
    is_expired = 1;
}

/* Protects the machine from a bug: after REALTIME_MAX_US without a sleep, the kernel sends SIGXCPU. The kernel raises
 * the limit by a second each time, so set it whenever we request the priority. */
static int set_watchdog(void)
{
    struct sigaction action = {.sa_handler = on_sigxcpu, .sa_flags = SA_RESTART};
    struct rlimit limit;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGXCPU);
    if (getrlimit(RLIMIT_RTTIME, &limit) < 0 || limit.rlim_max < 2 * REALTIME_MAX_US) /* beyond rlim_max, it kills us */
        return -1;
    limit.rlim_cur = REALTIME_MAX_US;
    if (sigaction(SIGXCPU, &action, NULL) < 0 || sigprocmask(SIG_UNBLOCK, &set, NULL) < 0)
        return -1;
    return setrlimit(RLIMIT_RTTIME, &limit);
}

void cpu_affinity_use_realtime(struct cpu_affinity *c, bool realtime)
{
    if (is_expired) {
        is_expired = 0;
        c->realtime = false;
        log_often(LOG_LEVEL_INFO, "pause", 0, "SCHED_FIFO off: %d ms without a sleep", REALTIME_MAX_US / 1000);
    }
    if (c->realtime == realtime || (realtime && c->realtime_refused))
        return;
    if ((!realtime || set_watchdog() == 0) && set_realtime(realtime) == 0)
        c->realtime = realtime;
    else
        c->realtime_refused = true;
    log_often(LOG_LEVEL_DEBUG, "pause", realtime, "SCHED_FIFO %s: %s", realtime ? "on" : "off",
              c->realtime == realtime ? "done" : strerror(errno));
}

void cpu_affinity_leave(struct cpu_affinity *c)
{
    if (c->cpu >= 0 && !c->realtime_refused && cpu_affinity_has_others(c)) {
        cpu_affinity_use_realtime(c, true); /* or the target would get the core before we have moved */
        cpu_affinity_move_away(c);
    }
    c->returning |= c->realtime;
    cpu_affinity_use_realtime(c, false);
}

uint64_t cpu_affinity_pinned_ns(const struct cpu_affinity *c)
{
    return (c->cpu < 0 ? c->left_ns : clock_cpu_ns()) - c->away_ns;
}
