/*
 * Reads str and bytes objects of a target as interned UTF-8.
 */
#ifndef PYTHON_STRINGS_H
#define PYTHON_STRINGS_H

#include "python/python.h"

/* Where the characters of a str are and how wide they are. */
struct str_shape {
    size_t length; /* in characters */
    int kind;      /* bytes per character */
    addr_t data;
};

int strings_shape(const struct python *py, addr_t object, struct str_shape *ret);

/* Reads a str (2.7: a byte string). Cuts it after PY_MAX_NAME characters and appends "…". */
int strings_read(const struct python *py, addr_t object, const char **ret);

/* True if the object is a str equal to `ascii`; false if it is unreadable. */
bool strings_equal(const struct python *py, addr_t object, const char *ascii);

#endif
