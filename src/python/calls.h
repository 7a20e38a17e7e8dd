/*
 * Functions, generators, modules and the singletons of a target -> text, for values.c.
 */
#ifndef PYTHON_CALLS_H
#define PYTHON_CALLS_H

#include "python/values.h"

int calls_write_none(struct values *v, addr_t object, const struct value_type *t);
int calls_write_ellipsis(struct values *v, addr_t object, const struct value_type *t);
int calls_write_not_implemented(struct values *v, addr_t object, const struct value_type *t);
int calls_write_function(struct values *v, addr_t object, const struct value_type *t);
int calls_write_builtin(struct values *v, addr_t object, const struct value_type *t);
int calls_write_method(struct values *v, addr_t object, const struct value_type *t);
int calls_write_descriptor(struct values *v, addr_t object, const struct value_type *t);
int calls_write_generator(struct values *v, addr_t object, const struct value_type *t);
int calls_write_code(struct values *v, addr_t object, const struct value_type *t);
int calls_write_module(struct values *v, addr_t object, const struct value_type *t);

#endif
