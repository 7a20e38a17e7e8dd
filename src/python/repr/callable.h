/*
 * Writers for functions, generators, modules and the singletons None, Ellipsis and NotImplemented.
 */
#ifndef PYTHON_REPR_CALLABLE_H
#define PYTHON_REPR_CALLABLE_H

#include "python/repr/repr.h"

int callable_write_none(struct repr *v, addr_t object, const struct repr_type *t);
int callable_write_ellipsis(struct repr *v, addr_t object, const struct repr_type *t);
int callable_write_not_implemented(struct repr *v, addr_t object, const struct repr_type *t);
int callable_write_function(struct repr *v, addr_t object, const struct repr_type *t);
int callable_write_builtin(struct repr *v, addr_t object, const struct repr_type *t);
int callable_write_method(struct repr *v, addr_t object, const struct repr_type *t);
int callable_write_descriptor(struct repr *v, addr_t object, const struct repr_type *t);
int callable_write_generator(struct repr *v, addr_t object, const struct repr_type *t);
int callable_write_code(struct repr *v, addr_t object, const struct repr_type *t);
int callable_write_module(struct repr *v, addr_t object, const struct repr_type *t);

#endif
