/*
 * Hashes for tables in memory. A target chooses many of the keys, so the hashes depend on a secret seed: keys that
 * collide in one run do not collide in the next. They are not cryptographic.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct hash_seed {
    uint64_t a, b;
};

/* A constant until hash_seed_set or hash_seed_randomize changes it; then all hashes change. */
extern struct hash_seed hash_seed;

/* Sets the seed; for tests. Tables that were filled before must not be used any more. */
void hash_seed_set(struct hash_seed seed);

/* Takes a seed from the kernel. main() does this once, before anything is hashed. */
void hash_seed_randomize(void);

/* Both halves of the 128-bit product: every bit of `h`, `v` and the seed counts. */
static inline uint64_t hash_fold(uint64_t h, uint64_t v)
{
    __extension__ unsigned __int128 product = (unsigned __int128)(h ^ hash_seed.a) * (v ^ hash_seed.b);

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The product alone maps evenly spaced keys, such as pages, to evenly spaced hashes, which with some seeds are all
 * adjacent. The second multiplication scatters them. */
static inline uint64_t hash_mix(uint64_t h, uint64_t v)
{
    h = hash_fold(h, v);
    h = (h ^ (h >> 32)) * 0x9e3779b97f4a7c15ull;
    return h ^ (h >> 32);
}

static inline uint64_t hash_bytes(const void *data, size_t len)
{
    const unsigned char *p = data;
    uint64_t h = len, w;

    for (; len >= 8; len -= 8, p += 8) {
        memcpy(&w, p, 8);
        h = hash_fold(h, w);
    }
    w = 0;
    memcpy(&w, p, len);
    return hash_mix(h, w);
}

#endif
