/*
 * Writers for dates and times.
 */
#ifndef PYTHON_REPR_DATETIME_H
#define PYTHON_REPR_DATETIME_H

#include "python/repr/repr.h"

int datetime_write_date(struct repr *v, addr_t object, const struct repr_type *t);
int datetime_write(struct repr *v, addr_t object, const struct repr_type *t);
int datetime_write_time(struct repr *v, addr_t object, const struct repr_type *t);
int datetime_write_delta(struct repr *v, addr_t object, const struct repr_type *t);
int datetime_write_zone(struct repr *v, addr_t object, const struct repr_type *t);
int datetime_write_zoneinfo(struct repr *v, addr_t object, const struct repr_type *t);

#endif
