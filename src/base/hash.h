/*
 * Hash functions for in-memory tables. They do not resist an attacker who chooses the keys.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t hash_mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15ull;
    return h ^ (h >> 29);
}

static inline uint64_t hash_bytes(const void *data, size_t len)
{
    const unsigned char *p = data;
    uint64_t h = 0x2545f4914f6cdd1dull ^ len, w;

    for (; len >= 8; len -= 8, p += 8) {
        memcpy(&w, p, 8);
        h = hash_mix(h, w);
    }
    w = 0;
    memcpy(&w, p, len);
    return hash_mix(h, w);
}

#endif
