/*
 * Error messages: codes, reasons and facts (base/err.h) -> sentences.
 *
 *     r = error_text_explain(&text, output_file_open(path, &file, &note), &note.facts);
 *     if (r < 0)
 *         return error_text_print(stderr, r, &text);
 */
#ifndef CMD_ERROR_TEXT_H
#define CMD_ERROR_TEXT_H

#include "base/err.h"

#include <stdio.h>

/* What a message says beyond its code: `what` names the case, `hint` tells the user what to do. Both are sanitized
 * (base/text.h) and can be shown on a terminal. */
struct error_text {
    char what[768];
    char hint[1280];
    const char *command; /* the command that the advice repeats: "record"; NULL: "dump" */
};

/* Sets text->what, clears text->hint and returns `code`. `text` may be NULL, here and in error_text_hint. */
__attribute__((format(printf, 3, 4))) int error_text_what(struct error_text *text, int code, const char *fmt, ...);
__attribute__((format(printf, 2, 3))) void error_text_hint(struct error_text *text, const char *fmt, ...);

/* If `code` is an error and `facts` has a reason, fills in `text`. Returns `code`. */
int error_text_explain(struct error_text *text, int code, const struct err_facts *facts);

/* Fills in what is empty with the general message and hint of `code`. */
void error_text_complete(struct error_text *text, int code);

/* Prints the message and, if there is one, the hint on a line of its own. Returns the exit status. `text` may be
 * NULL. */
int error_text_print(FILE *out, int code, const struct error_text *text);

#endif
