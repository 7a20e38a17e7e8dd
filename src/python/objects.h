/*
 * Reads dicts, ints and instances: what it takes to get from sys.modules to thread names, and to show
 * local variables.
 */
#ifndef PYTHON_OBJECTS_H
#define PYTHON_OBJECTS_H

#include "python/python.h"

/* Visits one entry of a dict. Return false to stop. */
typedef bool (*objects_visit)(const struct python *py, addr_t key, addr_t value, void *arg);

int objects_dict_walk(const struct python *py, addr_t dict, objects_visit visit, void *arg);

/* Looks up a str key; ERR_READ if it is missing. */
int objects_dict_get(const struct python *py, addr_t dict, const char *key, addr_t *ret_value);

/* Visits the attributes in the dict or the inline values of an instance, in insertion order. An object without a
 * dict has none. */
int objects_attrs_walk(const struct python *py, addr_t object, objects_visit visit, void *arg);

/* Looks up one of them; ERR_READ if it is missing. */
int objects_attr_get(const struct python *py, addr_t object, const char *name, addr_t *ret_value);

/* Reads a non-negative int (2.7: or long) that fits in 64 bits. */
int objects_int_read(const struct python *py, addr_t object, uint64_t *ret);

#endif
