/*
 * Arrays and scalars of NumPy, and array.array, of a target -> text, for values.c.
 */
#ifndef PYTHON_ARRAYS_H
#define PYTHON_ARRAYS_H

#include "python/values.h"

int arrays_write_array(struct values *v, addr_t object, const struct value_type *t);
int arrays_write_ndarray(struct values *v, addr_t object, const struct value_type *t);
int arrays_write_dtype(struct values *v, addr_t object, const struct value_type *t);
int arrays_write_scalar(struct values *v, addr_t object, const struct value_type *t);

/* A type's name; NumPy's as its users write it: np.float64. */
void arrays_put_name(struct values *v, const struct value_type *t);

#endif
