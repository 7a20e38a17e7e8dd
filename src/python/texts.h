/*
 * str, bytes and their like of a target -> text, for values.c.
 */
#ifndef PYTHON_TEXTS_H
#define PYTHON_TEXTS_H

#include "python/values.h"

int texts_write_str(struct values *v, addr_t object, const struct value_type *t);     /* bytes on 2.7 */
int texts_write_unicode(struct values *v, addr_t object, const struct value_type *t); /* 2.7 */
int texts_write_bytes(struct values *v, addr_t object, const struct value_type *t);
int texts_write_bytearray(struct values *v, addr_t object, const struct value_type *t);

/* The first characters of a str, or bytes, as UTF-8: a key, an attribute's name. False for any other object. */
bool texts_read_key(struct values *v, addr_t object, char out[VALUES_KEY_MAX]);

/* A str as it is, without quotes: the name of a function, of a module. */
int texts_put_name(struct values *v, addr_t object);

#endif
