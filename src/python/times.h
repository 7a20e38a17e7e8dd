/*
 * Dates and times of a target -> text, for values.c.
 */
#ifndef PYTHON_TIMES_H
#define PYTHON_TIMES_H

#include "python/values.h"

int times_write_date(struct values *v, addr_t object, const struct value_type *t);
int times_write_datetime(struct values *v, addr_t object, const struct value_type *t);
int times_write_time(struct values *v, addr_t object, const struct value_type *t);
int times_write_delta(struct values *v, addr_t object, const struct value_type *t);
int times_write_zone(struct values *v, addr_t object, const struct value_type *t);
int times_write_zoneinfo(struct values *v, addr_t object, const struct value_type *t);

#endif
