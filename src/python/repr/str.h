/*
 * str, bytes and their like of a target -> text, for values.c.
 */
#ifndef PYTHON_REPR_STR_H
#define PYTHON_REPR_STR_H

#include "python/repr/repr.h"

int str_write(struct repr *v, addr_t object, const struct repr_type *t);         /* bytes on 2.7 */
int str_write_unicode(struct repr *v, addr_t object, const struct repr_type *t); /* 2.7 */
int str_write_bytes(struct repr *v, addr_t object, const struct repr_type *t);
int str_write_bytearray(struct repr *v, addr_t object, const struct repr_type *t);

/* The first characters of a str, or bytes, as UTF-8: a key, an attribute's name. False for any other object. */
bool str_read_key(struct repr *v, addr_t object, char out[REPR_KEY_MAX]);

/* A str as it is, without quotes: the name of a function, of a module. */
int str_put_name(struct repr *v, addr_t object);

#endif
