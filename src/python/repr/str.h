/*
 * Writers for str, unicode, bytes and bytearray.
 */
#ifndef PYTHON_REPR_STR_H
#define PYTHON_REPR_STR_H

#include "python/repr/repr.h"

int str_write(struct repr *v, addr_t object, const struct repr_type *t);         /* byte strings on 2.7 */
int str_write_unicode(struct repr *v, addr_t object, const struct repr_type *t); /* 2.7 */
int str_write_bytes(struct repr *v, addr_t object, const struct repr_type *t);
int str_write_bytearray(struct repr *v, addr_t object, const struct repr_type *t);

/* Reads the first characters of a str or bytes object, a key or attribute name, as UTF-8. False for other objects. */
bool str_read_key(struct repr *v, addr_t object, char out[REPR_KEY_MAX]);

/* Writes a str without quotes: the name of a function or module. */
int str_put_name(struct repr *v, addr_t object);

#endif
