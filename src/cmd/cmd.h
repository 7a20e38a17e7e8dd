/*
 * The commands, one file each; main.c dispatches. Only code in cmd/ and main.c prints messages and chooses the exit
 * status.
 *
 * Before main.c runs a command, it makes sure that descriptors 0 to 2 are open; unblocks SIGINT, SIGTERM, SIGHUP,
 * SIGQUIT, SIGUSR1 and SIGCHLD; resets SIGCHLD, SIGINT and SIGTERM; and ignores SIGPIPE and SIGXFSZ, so that write
 * returns EPIPE or EFBIG.
 * Ignored and blocked signals survive exec, so a launched program gets the inherited state back (options->origin).
 * After the command, main.c flushes standard output and checks for errors.
 */
#ifndef CMD_CMD_H
#define CMD_CMD_H

#include "cmd/args.h"
#include "target/launch.h"

#include <stdbool.h>
#include <stdio.h>

struct cmd {
    /* Prints its own errors (error_text_print) and returns the exit status. */
    int (*run)(const struct options *options);
    bool prints; /* its result goes to standard output, so a failed write fails the command */
    bool logs;   /* takes --log-level and reads SPYGLASS_LOG */
};

int cmd_record(const struct options *o);
int cmd_dump(const struct options *o);
int cmd_list(const struct options *o);
int cmd_group(const struct options *o);
int cmd_merge(const struct options *o);
int cmd_ray(const struct options *o);
int cmd_doctor(const struct options *o);
int cmd_completions(const struct options *o);

/* The supported shells by index; NULL after the last. */
const char *completions_shell(size_t i);
/* Writes the completion script for `shell` and the program `name`. Returns 0, or ERR_USAGE for an unknown shell. */
int completions_write(const char *shell, const char *name, FILE *out);

/* Writes the help of options->command, or the overview for ARGS_NONE. */
void help_write(const struct options *options, FILE *out);

#endif
