/*
 * Messages shared by several commands.
 */
#ifndef CMD_REPORT_H
#define CMD_REPORT_H

#include "cmd/args.h"

#include <stdarg.h>
#include <stdio.h>

/* Prints one line with the prefix "spyglass> " or "py-spy> ". */
__attribute__((format(printf, 3, 0))) void report_line(FILE *out, const struct options *o, const char *fmt,
                                                       va_list args);

/* Checks for flags that cannot be combined. Returns 0, or ERR_USAGE with `note` filled. */
int report_contradiction(const struct options *o, struct err_note *note);

/* Reports that no target was given; on a terminal, also lists the Python processes. Returns the exit status. */
int report_missing_target(const struct options *o);

#endif
