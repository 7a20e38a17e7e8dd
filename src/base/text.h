/*
 * Sanitizes text from a target: the result is valid UTF-8 without characters that control a terminal or reorder text.
 *
 *     text_print_safe(stdout, "a\x1b[31mb");      // prints a backslash, x1b and the rest as they are
 */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Control characters, C1, marks that turn the direction of text, line separators, the byte order mark. */
bool text_is_control(uint32_t cp);

/* The width of the character in a terminal or a monospaced font: 1 or 2 columns. */
unsigned text_columns(uint32_t cp);

/* The number of bytes of `s`, in whole characters, that fit in `max` columns. */
size_t text_fit(const char *s, size_t max);

/* Prints `s`. Control characters (see text_is_control) and invalid bytes become escapes such as \n, \x1b or \u202e. */
void text_print_safe(FILE *out, const char *s);

/* The same as a value, for the arguments of printf: text_safe(path).s. A long text is cut and ends with "...". */
struct text_safe {
    char s[320]; /* two of them fit into an error message */
};
struct text_safe text_safe(const char *s);

#endif
