/*
 * The commands: struct options -> work done, exit status. One file each; main.c dispatches. Only code
 * in cmd/ and main.c prints messages and decides on the exit status.
 *
 * main.c has set up before a command runs: descriptors 0 to 2 are open; SIGINT, SIGTERM, SIGHUP and
 * SIGUSR1 are not blocked; SIGPIPE and SIGXFSZ are ignored, so that a write returns EPIPE or EFBIG. A
 * program that is launched wants the last two back at SIG_DFL: ignoring survives exec.
 */
#ifndef CMD_CMD_H
#define CMD_CMD_H

#include "cmd/args.h"

#include <stdio.h>

/* A command returns the exit status; it has printed its own errors (err_print). */
struct cmd {
    int (*run)(const struct options *options);
};

int cmd_record(const struct options *o);
int cmd_dump(const struct options *o);
int cmd_completions(const struct options *o);

/* Writes the completion script of `shell` for the program `name`. 0 or ERR_USAGE for an unknown shell. */
int completions_write(const char *shell, const char *name, FILE *out);

/* Writes the help of options->command, or the overview for ARGS_NONE. */
void help_write(const struct options *options, FILE *out);

/* Flushes standard output at the end of a command: `status`, or 1 when the output did not arrive. A
 * closed pipe is silent (`dump | head -1`); anything else prints one line. */
int cmd_finish_stdout(int status);

#endif
