/*
 * An address in the target. It is an integer, so that nobody can dereference it by accident.
 */
#ifndef BASE_ADDR_H
#define BASE_ADDR_H

#include <stdint.h>

typedef uint64_t addr_t;

#endif
