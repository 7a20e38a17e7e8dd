/*
 * Interned strings: equal strings have equal pointers, which stay valid until intern_free.
 */
#ifndef BASE_INTERN_H
#define BASE_INTERN_H

#include <stdbool.h>
#include <stddef.h>

struct intern;

struct intern *intern_new(void);               /* NULL if out of memory */
struct intern *intern_free(struct intern *in); /* accepts NULL, returns NULL */

/* Returns the pool's NUL-terminated copy of the `len` bytes at `s`, or NULL if out of memory. Once the pool holds 48
 * MB, strings that are not in it yet become "[too many names]". */
const char *intern_bytes(struct intern *in, const char *s, size_t len);
const char *intern_str(struct intern *in, const char *s);

/* True if `s`, which intern_bytes or intern_str returned, stands for a string that had no room. */
bool intern_is_full(const char *s);

#endif
