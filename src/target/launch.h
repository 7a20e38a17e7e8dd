/*
 * Starting the program that is to be sampled. Its standard streams are its own.
 */
#ifndef TARGET_LAUNCH_H
#define TARGET_LAUNCH_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct launch {
    pid_t pid;
    int output; /* with capture: what it wrote to its streams; else -1 */
    bool ended;
    int status; /* as of waitpid, once it has ended */
};

/* 0, or ERR_LAUNCH with `note` filled when the program could not be executed. */
int launch_start(char *const argv[], bool capture, struct launch *ret, struct err_note *note);

/* Looks whether it has ended. */
bool launch_poll(struct launch *l);
/* Told by someone else's wait. */
void launch_set_ended(struct launch *l, int status);

/* Its exit status as a shell shows it: 128 + signal when it was killed. 0 while it runs. */
int launch_exit_status(const struct launch *l);

/* Copies what was captured to `out`. */
void launch_show_output(const struct launch *l, FILE *out);
void launch_close(struct launch *l);

#endif
