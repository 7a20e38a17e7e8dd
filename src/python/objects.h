/*
 * dict, int and instances: enough to go from sys.modules to the names of threads, and to show local variables.
 */
#ifndef PYTHON_OBJECTS_H
#define PYTHON_OBJECTS_H

#include "python/python.h"

/* Called for each entry of a dict; returns false to end the walk. */
typedef bool (*objects_visit)(const struct python *py, addr_t key, addr_t value, void *arg);

int objects_dict_walk(const struct python *py, addr_t dict, objects_visit visit, void *arg);

/* The value of a str key of a dict; ERR_READ when it is not there. */
int objects_dict_get(const struct python *py, addr_t dict, const char *key, addr_t *ret_value);

/* Each attribute in an instance's own dict or inline values, in the order in which they were set. An object that has
 * no dict has none. */
int objects_attrs_walk(const struct python *py, addr_t object, objects_visit visit, void *arg);

/* The value of one of them; ERR_READ when it is not there. */
int objects_attr_get(const struct python *py, addr_t object, const char *name, addr_t *ret_value);

/* A non-negative int (or 2.7 long) that fits in 64 bits. */
int objects_int_read(const struct python *py, addr_t object, uint64_t *ret);

#endif
