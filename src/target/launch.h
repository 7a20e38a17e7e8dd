/*
 * Starting the program that is to be sampled. Its standard streams, its terminal and its signals are its own: it is in
 * our process group, so that what is typed reaches it as if we were not there, and begins with what we were given.
 */
#ifndef TARGET_LAUNCH_H
#define TARGET_LAUNCH_H

#include "base/err.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/types.h>

struct sudo_caller;

/* How we were started: what we change of it for ourselves a launched program gets back. */
struct launch_origin {
    sigset_t mask;    /* blocked */
    sigset_t ignored; /* SIGHUP by nohup, SIGINT by a shell that put us into the background */
    struct rlimit files;
};

struct launch_options {
    bool capture;                       /* hold back what it writes to its streams */
    bool adopt;                         /* orphans of it become our children */
    const struct launch_origin *origin; /* NULL: it begins with what we have */
    const struct sudo_caller *caller;   /* run it as this one; NULL: as ourselves */
};

struct launch {
    pid_t pid;
    int output; /* with capture: what it wrote to its streams; else -1 */
    int pidfd;  /* -1 where the kernel has none */
    bool adopts;
    bool ended;
    int status; /* as of waitpid, once it has ended */
};

/* Before anything is changed: the first thing in main. */
void launch_origin_read(struct launch_origin *ret);

/* 0, or ERR_LAUNCH with `note` filled when the program could not be executed. */
int launch_start(char *const argv[], const struct launch_options *options, struct launch *ret, struct err_note *note);

/* Looks whether it has ended; buries orphans that were left to us. */
bool launch_poll(struct launch *l);
/* Told by someone else's wait. */
void launch_set_ended(struct launch *l, int status);

/* Sleeps until it has ended, a signal came or the time is over. */
void launch_wait(struct launch *l, uint64_t most_ns);

/* True when it stands still by a signal that stops (SIGTSTP, SIGTTIN …). */
bool launch_is_stopped(const struct launch *l);

/* True when what we launch needs us to stay: we are in the foreground of a terminal, or the first process of a container. */
bool launch_needs_us(void);

/* Its exit status as a shell shows it: 128 + signal when it was killed. 0 while it runs. */
int launch_exit_status(const struct launch *l);

/* Copies what was captured to `out`. */
void launch_show_output(const struct launch *l, FILE *out);
void launch_close(struct launch *l);

#endif
