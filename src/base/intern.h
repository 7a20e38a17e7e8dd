/*
 * Interned strings: equal content, equal pointer, alive until intern_free. One pool per session.
 */
#ifndef BASE_INTERN_H
#define BASE_INTERN_H

#include <stddef.h>

struct intern;

struct intern *intern_new(void);               /* NULL when out of memory */
struct intern *intern_free(struct intern *in); /* accepts NULL, returns NULL */

/* The pool's copy of `len` bytes at `s`, NUL-terminated; NULL when out of memory. When the pool is full (48 MB),
 * new texts are "[too many names]". */
const char *intern_bytes(struct intern *in, const char *s, size_t len);
const char *intern_str(struct intern *in, const char *s);

#endif
