/*
 * Sanitizes text from a target or a user: the result is valid UTF-8 without characters that control a terminal, reorder
 * text or cannot be seen.
 *
 *     text_print_safe(stdout, "a\x1b[31mb");      // prints a backslash, x1b and the rest as they are
 */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Control characters (also C1), line separators, and characters that are invisible: those that change the direction of text,
 * zero-width ones, fillers, tags. With them, two names can look the same. */
bool text_is_hidden(uint32_t cp);

/* The width of the character in a terminal or a monospaced font: 1 or 2 columns. */
unsigned text_columns(uint32_t cp);

/* The number of bytes of `s`, in whole characters, that fit in `max` columns. */
size_t text_fit(const char *s, size_t max);

/* The width in a terminal of the first `n` bytes of `s`, as text_print_safe prints them. */
size_t text_safe_columns(const char *s, size_t n);

/* Prints `s`. Hidden characters (see text_is_hidden) and invalid bytes become escapes such as \n, \x1b or \u202e. */
void text_print_safe(FILE *out, const char *s);

/* The same into a buffer of `size` >= 4 bytes. A long text is cut and ends with "...". */
void text_copy_safe(char *to, size_t size, const char *s);

/* The same as a value, for the arguments of printf: text_safe(path).s. */
struct text_safe {
    char s[320]; /* two of them fit into an error message */
};
struct text_safe text_safe(const char *s);

#endif
