/*
 * Writers for NumPy arrays, NumPy scalars and array.array.
 */
#ifndef PYTHON_REPR_ARRAYS_H
#define PYTHON_REPR_ARRAYS_H

#include "python/repr/repr.h"

int arrays_write_array(struct repr *v, addr_t object, const struct repr_type *t);
int arrays_write_ndarray(struct repr *v, addr_t object, const struct repr_type *t);
int arrays_write_dtype(struct repr *v, addr_t object, const struct repr_type *t);
int arrays_write_scalar(struct repr *v, addr_t object, const struct repr_type *t);

/* Writes a type name, with NumPy's as users write it: np.float64. */
void arrays_put_name(struct repr *v, const struct repr_type *t);

#endif
