/*
 * Instances of classes, exceptions and classes themselves -> text, for values.c.
 */
#ifndef PYTHON_INSTANCES_H
#define PYTHON_INSTANCES_H

#include "python/values.h"

int instances_write_object(struct values *v, addr_t object, const struct value_type *t);
int instances_write_exception(struct values *v, addr_t object, const struct value_type *t);
int instances_write_namespace(struct values *v, addr_t object, const struct value_type *t);
int instances_write_class(struct values *v, addr_t object, const struct value_type *t);
int instances_write_classobj(struct values *v, addr_t object, const struct value_type *t); /* 2.7 */
int instances_write_instance(struct values *v, addr_t object, const struct value_type *t); /* 2.7 */

/* True for a class that derives from enum.Enum; its members are shown as `<Color.RED: 1>`. */
bool instances_is_enum(struct values *v, const struct value_type *t);
int instances_write_enum(struct values *v, addr_t object, const struct value_type *t);

#endif
