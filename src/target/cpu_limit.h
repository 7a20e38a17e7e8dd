/*
 * The CPU limit of a container: how long the kernel has kept its threads off the CPU because they had used up their quota.
 */
#ifndef TARGET_CPU_LIMIT_H
#define TARGET_CPU_LIMIT_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

struct cpu_limit {
    char dir[PATH_MAX]; /* of the cgroup; "": unknown */
    uint64_t before_ns; /* the total when it was found */
};

/* Finds the cgroup of a process. */
void cpu_limit_find(pid_t pid, struct cpu_limit *ret);

/* How long the cgroup, or one above it, has been kept off the CPU since then, in ns. 0 if it has no limit, or is unknown. */
uint64_t cpu_limit_throttled_ns(const struct cpu_limit *limit);

#endif
