/*
 * The summary that record prints at the end.
 */
#ifndef CMD_SUMMARY_H
#define CMD_SUMMARY_H

#include "cmd/args.h"
#include "profile/profile.h"
#include "sample/loop.h"

#include <stdio.h>

struct account {
    FILE *out;
    const struct options *o;
    const struct loop *loop;
    const struct sampler *sampler;
    const struct profile *profile;
    struct cpu_use cpu;
    pid_t pid;             /* of the root process; 0: none */
    uint64_t throttled_ns; /* how long its CPU limit kept it off the CPU during the recording */
};

void summary_write(const struct account *a);

/* The share of the CPU time in threads without Python, rounded down; 0 if it is not worth mentioning. */
unsigned summary_native_percent(const struct options *o, const struct cpu_use *cpu);

#endif
