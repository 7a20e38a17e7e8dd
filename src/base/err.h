/*
 * Error codes. Functions return 0 or a negative `enum err`. Each code has one row in err.c with its message, a hint and
 * the exit status. Failed samples are counted by code.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdio.h>

enum err {
    ERR_OK = 0,
    ERR_NOMEM = -1000,
    ERR_IO,
    ERR_USAGE,
    ERR_NO_PROCESS,
    ERR_NOT_PYTHON,
    ERR_STARTING,
    ERR_PERMISSION,
    ERR_VERSION,
    ERR_GONE,
    ERR_READ,
    ERR_BOUNDS,
    ERR_CYCLE,
    ERR_TORN,
    ERR_STOP,
    ERR_OUTPUT,
    ERR_DISK,
    ERR_LAUNCH,
    ERR_CORE,
    ERR_NO_SAMPLES,
    ERR_PROFILE,
    ERR_UNSUPPORTED,
    ERR_INTERNAL,
    ERR_END_ /* one past the last row */
};

/* Details that a failing function adds to its code: `what` names the case, `hint` tells the user what to do. */
struct err_note {
    char what[768];
    char hint[1280];
};

/* Sets note->what, clears note->hint and returns `code`. `note` may be NULL, here and in err_note_hint. */
__attribute__((format(printf, 3, 4))) int err_note_what(struct err_note *note, int code, const char *fmt, ...);
__attribute__((format(printf, 2, 3))) void err_note_hint(struct err_note *note, const char *fmt, ...);

/* The short name of a code, such as "torn read". */
const char *err_name(int code);

/* Prints the message and, if there is one, the hint on a line of its own. Returns the exit status. `note` may be
 * NULL. */
int err_print(FILE *out, int code, const struct err_note *note);

#endif
