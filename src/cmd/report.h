/*
 * What record and dump have in common in talking to the user.
 */
#ifndef CMD_REPORT_H
#define CMD_REPORT_H

#include "cmd/args.h"

/* Refuses what does not exist yet: 0, or ERR_UNSUPPORTED with `note` filled. */
int report_contradiction(const struct options *o, struct err_note *note);

/* Neither a pid nor a program was given: lists the Python processes there are. Returns the exit status. */
int report_missing_target(const struct options *o);

#endif
