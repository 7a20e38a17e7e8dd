/*
 * str and bytes objects of a target -> interned UTF-8.
 */
#ifndef PYTHON_STRINGS_H
#define PYTHON_STRINGS_H

#include "python/python.h"

/* Where a str's characters are and how wide each is. */
struct str_shape {
    size_t length; /* in characters */
    int kind;      /* bytes per character */
    addr_t data;
};

int strings_shape(const struct python *py, addr_t object, struct str_shape *ret);

/* A str (a byte string on 2.7); longer ones are cut at PY_MAX_NAME characters and end in "…". */
int strings_read(const struct python *py, addr_t object, const char **ret);

/* True when the object is a str equal to `ascii`. Any failure to read is false. */
bool strings_equal(const struct python *py, addr_t object, const char *ascii);

/* `n` characters of 1, 2 or 4 bytes -> UTF-8 in `out`, which has room for 4 * n bytes. Returns the length. */
size_t strings_to_utf8(const unsigned char *data, size_t n, int kind, char *out);

#endif
