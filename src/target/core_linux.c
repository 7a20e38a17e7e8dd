/*
 * Affinity and priority of our own thread; nothing of the target is changed. Called by the sampler.
 */
#include "target/core.h"

#include "base/err.h"

#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>

#define CPUS          4096
#define URGENT_MAX_US 200000

int core_go(struct core *c, int cpu)
{
    cpu_set_t *set;
    int r;

    if (c->cpu == cpu)
        return 0;
    if (cpu < 0 || cpu >= CPUS || !(set = CPU_ALLOC(CPUS)))
        return ERR_PERMISSION;
    CPU_ZERO_S(CPU_ALLOC_SIZE(CPUS), set);
    CPU_SET_S((size_t)cpu, CPU_ALLOC_SIZE(CPUS), set);
    r = sched_setaffinity(0, CPU_ALLOC_SIZE(CPUS), set);
    CPU_FREE(set);
    if (r < 0) {
        c->refused = true;
        return ERR_PERMISSION;
    }
    c->cpu = cpu;
    return 0;
}

void core_leave(struct core *c)
{
    cpu_set_t *set;

    if (c->cpu < 0 || !(set = CPU_ALLOC(CPUS)))
        return;
    CPU_ZERO_S(CPU_ALLOC_SIZE(CPUS), set);
    for (size_t i = 0; i < CPUS; i++)
        CPU_SET_S(i, CPU_ALLOC_SIZE(CPUS), set);
    sched_setaffinity(0, CPU_ALLOC_SIZE(CPUS), set);
    CPU_FREE(set);
    c->cpu = -1;
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

void core_be_urgent(struct core *c, bool urgent)
{
    if (c->urgent == urgent)
        return;
    if (urgent)
        set_watchdog();
    if (set_urgent(urgent) == 0)
        c->urgent = urgent;
}
