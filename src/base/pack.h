/*
 * Numbers, strings and bytes in one buffer, to pass them to another process. What does not fit, or is cut off, sets `failed`;
 * check it once, at the end.
 */
#ifndef BASE_PACK_H
#define BASE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pack {
    unsigned char *bytes;
    size_t len, cap;
    bool failed; /* out of memory */
};

void pack_number(struct pack *p, uint64_t value);
void pack_bytes(struct pack *p, const void *bytes, size_t len); /* `bytes` may be NULL: zeros */
void pack_text(struct pack *p, const char *text);               /* NULL stays NULL */
void pack_free(struct pack *p);

struct unpack {
    const unsigned char *at;
    size_t left;
    bool failed; /* the buffer ended early */
};

/* In the order in which they were packed. After a failure: 0, and NULL. What they return points into the buffer. */
uint64_t unpack_number(struct unpack *u);
const void *unpack_bytes(struct unpack *u, size_t *ret_len);
const char *unpack_text(struct unpack *u);

#endif
