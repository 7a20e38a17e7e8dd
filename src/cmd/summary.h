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
    pid_t pid;             /* of the root process; 0: none */
    uint64_t throttled_ns; /* how long its CPU limit kept it off the CPU during the recording */
};

void summary_write(const struct account *a);

#endif
