/*
 * The list of Python processes, for `list` and for commands that need a process but got none.
 */
#ifndef CMD_LIST_H
#define CMD_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

struct list_counts {
    size_t shown;  /* all that can be read */
    size_t denied; /* Python processes, by their names, that we have no permission to read */
};

/* Writes a table (nothing if there is no process) of at most `max` processes, or JSON of all. Returns 0 or an error of
 * base/err.h. */
int list_write(bool json, size_t max, FILE *out, struct list_counts *ret);

/* By its name. For a process that we have no permission to read. */
bool list_looks_like_python(pid_t pid);

/* A pattern with a wildcard must match the whole command line, another one a part of it. */
bool list_command_matches(const char *pattern, const char *command);

/* Calls `visit` for each Python process whose command line matches, busiest first. */
int list_matching(const char *pattern, void (*visit)(pid_t pid, const char *command, void *arg), void *arg,
                  struct list_counts *ret);

#endif
