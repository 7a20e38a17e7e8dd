/*
 * Errors: every failure a user can meet is one row here, with its words, what to do about it and the
 * exit status. Functions return 0 or a negative `enum err`; a failed sample is counted by that code.
 *
 *     int r = attach(pid, &note);
 *     if (r < 0)
 *         return err_print(stderr, r, &note);     // "Error: …" and one line of what to do
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

/* What a failing function can add to its code: `what` names the case, `hint` is what to do or paste. */
struct err_note {
    char what[768];
    char hint[1280];
};

/* Fills `note` (which may be NULL) and returns `code`. */
__attribute__((format(printf, 3, 4))) int err_note_what(struct err_note *note, int code, const char *fmt, ...);
__attribute__((format(printf, 2, 3))) void err_note_hint(struct err_note *note, const char *fmt, ...);

/* The short name of a code, for counting errors by kind: "torn read". */
const char *err_name(int code);

/* Prints one line of what went wrong and, where there is one, what to do; returns the exit status. */
int err_print(FILE *out, int code, const struct err_note *note);

#endif
