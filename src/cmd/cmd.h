/*
 * The commands: struct options -> work done, exit status. One file each; main.c dispatches. Only code
 * in cmd/ and main.c prints messages and decides on the exit status.
 *
 * main.c has set up before a command runs: descriptors 0 to 2 are open; SIGINT, SIGTERM, SIGHUP,
 * SIGQUIT, SIGUSR1 and SIGCHLD are not blocked; SIGCHLD is at its default; SIGPIPE and SIGXFSZ are
 * ignored, so that a write returns EPIPE or EFBIG. A program that is launched wants it all back as it was
 * (options->origin): ignoring and blocking survive exec. main.c flushes standard output after the command and checks that it arrived.
 */
#ifndef CMD_CMD_H
#define CMD_CMD_H

#include "cmd/args.h"
#include "target/launch.h"

#include <stdbool.h>
#include <stdio.h>

struct cmd {
    /* Returns the exit status; has printed its own errors (err_print). */
    int (*run)(const struct options *options);
    bool prints; /* what it writes to standard output is its result: a write that fails fails the command */
};

int cmd_record(const struct options *o);
int cmd_dump(const struct options *o);
int cmd_merge(const struct options *o);
int cmd_ray(const struct options *o);
int cmd_doctor(const struct options *o);
int cmd_completions(const struct options *o);

/* The shells that completions are written for, by index; NULL after the last. */
const char *completions_shell(size_t i);
/* Writes the completion script of `shell` for the program `name`. 0, or ERR_USAGE for an unknown shell. */
int completions_write(const char *shell, const char *name, FILE *out);

/* Writes the help of options->command, or the overview for ARGS_NONE. */
void help_write(const struct options *options, FILE *out);

#endif
