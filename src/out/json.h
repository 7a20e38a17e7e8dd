/*
 * Writes JSON values to a file.
 */
#ifndef OUT_JSON_H
#define OUT_JSON_H

#include <stdint.h>
#include <stdio.h>

/* Writes a quoted string, or null if `s` is NULL. The output is valid UTF-8 without control characters. */
void json_string(FILE *out, const char *s);

/* Writes nanoseconds as seconds, exactly, with at least one digit after the decimal point: 0.95, 1.0. */
void json_seconds(FILE *out, uint64_t ns);

#endif
