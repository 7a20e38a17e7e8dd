/*
 * What record and dump have in common in talking to the user.
 */
#ifndef CMD_REPORT_H
#define CMD_REPORT_H

#include "cmd/args.h"

#include <stdarg.h>
#include <stdio.h>

/* A line for the user, begun as the command's lines are. */
__attribute__((format(printf, 3, 0))) void report_line(FILE *out, const struct options *o, const char *fmt,
                                                       va_list args);

/* Refuses what does not exist yet: 0, or ERR_UNSUPPORTED with `note` filled. */
int report_contradiction(const struct options *o, struct err_note *note);

/* Neither a pid nor a program was given: lists the Python processes there are. Returns the exit status. */
int report_missing_target(const struct options *o);

#endif
