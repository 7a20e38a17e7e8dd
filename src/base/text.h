/*
 * Text that comes from a target, made harmless: valid UTF-8 or a mark, and no character that can steer
 * a terminal or reorder what is read.
 *
 *     text_print_safe(stdout, "a\x1b[31mb");      // a\x1b[31mb, the escape spelled out
 */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Control characters, C1, marks that turn the direction of text, line separators, the byte order mark. */
bool text_is_control(uint32_t cp);

/* Columns that a terminal or a monospaced font gives the character: 1 or 2. */
unsigned text_columns(uint32_t cp);

/* Bytes of `s` that fit in `max` columns, whole characters only; all of them when it fits. */
size_t text_fit(const char *s, size_t max);

/* Prints `s` with the characters above, and bytes that are not UTF-8, as \n, \x1b or \u202e. */
void text_print_safe(FILE *out, const char *s);

/* The same as a value, for the arguments of printf: text_safe(path).s. A long text is cut and ends with "...". */
struct text_safe {
    char s[320]; /* two of them fit into an err_note */
};
struct text_safe text_safe(const char *s);

#endif
