/*
 * Pieces of JSON, written straight to a file.
 */
#ifndef OUT_JSON_H
#define OUT_JSON_H

#include <stdint.h>
#include <stdio.h>

/* A quoted string, "null" for NULL. Always valid UTF-8; control characters and the like are \u escapes. */
void json_string(FILE *out, const char *s);

/* Nanoseconds as seconds, exact and with at least one digit after the point: 0.95, 1.0. */
void json_seconds(FILE *out, uint64_t ns);

#endif
