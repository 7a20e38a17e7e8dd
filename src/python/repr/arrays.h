/*
 * Arrays and scalars of NumPy, and array.array, of a target -> text, for values.c.
 */
#ifndef PYTHON_REPR_ARRAYS_H
#define PYTHON_REPR_ARRAYS_H

#include "python/repr/repr.h"

int arrays_write_array(struct repr *v, addr_t object, const struct repr_type *t);
int arrays_write_ndarray(struct repr *v, addr_t object, const struct repr_type *t);
int arrays_write_dtype(struct repr *v, addr_t object, const struct repr_type *t);
int arrays_write_scalar(struct repr *v, addr_t object, const struct repr_type *t);

/* A type's name; NumPy's as its users write it: np.float64. */
void arrays_put_name(struct repr *v, const struct repr_type *t);

#endif
