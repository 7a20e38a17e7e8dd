/*
 * Affinity and priority of our own thread; nothing of the target is changed. Called by the sampler.
 */
#include "pause/cpu_affinity.h"

#include "base/err.h"
#include "base/log.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define URGENT_MAX_US 200000

/* Where we were allowed to run when we started: the user's wish and the cpuset's. */
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
        /* The kernel fills what it has; our words are its words (sched_setaffinity(2)). */
        if (sched_getaffinity(0, sizeof(c->allowed), (cpu_set_t *)(void *)c->allowed) < 0)
            memset(c->allowed, 0, sizeof(c->allowed));
    }
    if (!is_allowed(c, cpu)) {
        log_often(LOG_LEVEL_INFO, "pause", cpu, "core %d: affinity or cpuset keeps us away from it", cpu);
        c->refused = true;
        return ERR_PERMISSION;
    }
    set[cpu / 64] = 1ull << (cpu % 64);
    if (sched_setaffinity(0, sizeof(set), (const cpu_set_t *)(const void *)set) < 0) {
        log_often(LOG_LEVEL_INFO, "pause", cpu, "core %d: sched_setaffinity: %s", cpu, strerror(errno));
        c->refused = true;
        return ERR_PERMISSION;
    }
    c->cpu = cpu;
    return 0;
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
    c->cpu = CPU_AFFINITY_AWAY;
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
    c->cpu = CPU_AFFINITY_ANY;
}

/* The kernel's struct sched_attr, as far as it is needed (include/uapi/linux/sched/types.h); glibc has none yet. */
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

static int set_urgent(bool urgent)
{
    struct sched_param param = {.sched_priority = urgent ? 1 : 0};

    /* A child of ours must not inherit it. */
    return sched_setscheduler(0, (urgent ? SCHED_FIFO : SCHED_OTHER) | SCHED_RESET_ON_FORK, &param);
}

static void on_too_long(int sig)
{
    (void)sig;
    set_urgent(false);
}

/* Whatever goes wrong here, the machine must not suffer: after this long without a sleep we are like all others. */
static void set_watchdog(void)
{
    struct rlimit limit = {.rlim_cur = URGENT_MAX_US, .rlim_max = RLIM_INFINITY};
    struct sigaction action = {.sa_handler = on_too_long};

    sigaction(SIGXCPU, &action, NULL);
    setrlimit(RLIMIT_RTTIME, &limit);
}

void cpu_affinity_use_realtime(struct cpu_affinity *c, bool urgent)
{
    if (c->urgent == urgent || (urgent && c->never_urgent))
        return;
    if (urgent)
        set_watchdog();
    if (set_urgent(urgent) == 0)
        c->urgent = urgent;
    else
        c->never_urgent = true;
    log_debug("pause", "SCHED_FIFO %s: %s", urgent ? "on" : "off", c->urgent == urgent ? "done" : strerror(errno));
}
