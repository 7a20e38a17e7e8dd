/*
 * A remote address is a number, never a C pointer.
 */
#ifndef BASE_ADDR_H
#define BASE_ADDR_H

#include <stdint.h>

typedef uint64_t addr_t;

#endif
