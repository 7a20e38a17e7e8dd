/*
 * Starts the program to be sampled. It keeps our standard streams, terminal and process group, so that
 * typed signals reach it directly, and it starts with the signal and resource settings that we were
 * started with.
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

/* The settings we were started with. spyglass changes them for itself; a launched program gets them back. */
struct launch_origin {
    sigset_t mask;    /* blocked signals */
    sigset_t ignored; /* SIGHUP by nohup, SIGINT by a shell that started us in the background */
    struct rlimit files;
    bool closed[3]; /* standard streams that were not open */
};

struct launch_options {
    void (*before_reap)(void);          /* called once, when it has exited but its PID cannot be reused yet; or NULL */
    bool capture;                       /* buffer what it writes to stdout and stderr */
    bool adopt;                         /* become the reaper of its orphans */
    const struct launch_origin *origin; /* NULL: it inherits our current settings */
    const struct sudo_caller *caller;   /* the user to run it as; NULL: ourselves */
};

struct launch {
    pid_t pid;
    int output; /* with `capture`: the buffered output; else -1 */
    int pidfd;  /* -1 if the kernel has no pidfd_open */
    void (*before_reap)(void);
    bool adopts;
    bool ended;
    int status; /* wait status, once `ended` */
};

/* Call this first in main(), before anything changes. */
void launch_origin_read(struct launch_origin *ret);

/* 0, or ERR_LAUNCH with `note` filled in if the program cannot be executed. */
int launch_start(char *const argv[], const struct launch_options *options, struct launch *ret, struct err_note *note);

/* Orphans that come later go to init again. */
void launch_stop_adopting(void);

/* Checks whether it has exited; reaps adopted orphans. */
bool launch_poll(struct launch *l);

/* Sleeps until it exits, a signal arrives or the time is up. */
void launch_wait(struct launch *l, uint64_t timeout_ns);

/* True if a stop signal (SIGTSTP, SIGTTIN, …) has stopped it. */
bool launch_is_stopped(const struct launch *l);

/* True if the launched program needs us to stay alive: we are in the foreground of a terminal, or the init process
 * of a container. */
bool launch_needs_us(void);

/* The exit status that a shell would show: 128 + signal if it was killed. 0 while it runs. */
int launch_exit_status(const struct launch *l);

/* Copies the captured output to `out`. */
void launch_show_output(const struct launch *l, FILE *out);
void launch_close(struct launch *l);

#endif
