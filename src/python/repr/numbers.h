/*
 * Writers for numbers.
 */
#ifndef PYTHON_REPR_NUMBERS_H
#define PYTHON_REPR_NUMBERS_H

#include "python/repr/repr.h"

int numbers_write_bool(struct repr *v, addr_t object, const struct repr_type *t);
int numbers_write_int(struct repr *v, addr_t object, const struct repr_type *t);
int numbers_write_long(struct repr *v, addr_t object, const struct repr_type *t); /* 2.7 */
int numbers_write_float(struct repr *v, addr_t object, const struct repr_type *t);
int numbers_write_complex(struct repr *v, addr_t object, const struct repr_type *t);
int numbers_write_decimal(struct repr *v, addr_t object, const struct repr_type *t);

#define NUMBERS_FLOAT_MAX 40

/* Formats a number like Python: 1e+16, 0.1, 3.0. `digits` is 17 for a double, 9 for a float, 5 for half precision.
 * `whole` is appended to a number without a fraction: ".0", or "" inside a complex number. */
void numbers_print_float(char out[NUMBERS_FLOAT_MAX], double value, int digits, const char *whole);
void numbers_put_complex(struct repr *v, double real, double imag, int digits);

/* Reads an int that fits in 64 bits. */
int numbers_read_int(struct repr *v, addr_t object, int64_t *ret);

#endif
