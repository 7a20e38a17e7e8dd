/*
 * Writers for instances, exceptions and classes.
 */
#ifndef PYTHON_REPR_INSTANCES_H
#define PYTHON_REPR_INSTANCES_H

#include "python/repr/repr.h"

int instances_write_object(struct repr *v, addr_t object, const struct repr_type *t);
int instances_write_exception(struct repr *v, addr_t object, const struct repr_type *t);
int instances_write_namespace(struct repr *v, addr_t object, const struct repr_type *t);
int instances_write_class(struct repr *v, addr_t object, const struct repr_type *t);
int instances_write_classobj(struct repr *v, addr_t object, const struct repr_type *t); /* 2.7 */
int instances_write_instance(struct repr *v, addr_t object, const struct repr_type *t); /* 2.7 */

/* Looks up an attribute in the __slots__ or the dict of an instance. ERR_READ if it is missing. */
int instances_get(struct repr *v, addr_t object, const char *name, addr_t *ret);

/* The offset of one of the __slots__ of a class, or of its bases. ERR_READ if there is no such slot. */
int instances_slot(struct repr *v, const struct repr_type *t, const char *name, uint64_t *ret);

/* True if the class derives from enum.Enum; its members look like `<Color.RED: 1>`. */
bool instances_is_enum(struct repr *v, const struct repr_type *t);
int instances_write_enum(struct repr *v, addr_t object, const struct repr_type *t);

#endif
