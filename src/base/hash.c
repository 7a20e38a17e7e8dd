/*
 * The seed of all hashes of this process.
 */
#include "base/hash.h"

#include <sys/auxv.h>
#include <sys/random.h>

/* A global: as an argument, it would have to go through every function that looks something up. */
struct hash_seed hash_seed = {0x243f6a8885a308d3ull, 0x13198a2e03707344ull};

void hash_seed_set(struct hash_seed seed)
{
    hash_seed = seed;
}

void hash_seed_randomize(void)
{
    struct hash_seed seed;
    const void *from_exec = (const void *)getauxval(AT_RANDOM);

    /* getrandom fails early at boot and before Linux 3.17; the 16 bytes that execve provides are always there. */
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == (ssize_t)sizeof(seed))
        hash_seed = seed;
    else if (from_exec)
        memcpy(&hash_seed, from_exec, sizeof(hash_seed));
}
