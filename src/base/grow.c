/*
 * The slow path of grow_array: reallocates by doubling.
 */
#include "base/grow.h"

#include "base/err.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int grow_array_to(void **array, size_t *cap, size_t need, size_t size)
{
    size_t n = *cap ? *cap : 16;
    void *p;

    while (n < need) {
        if (n > SIZE_MAX / 2 / size)
            return ERR_NOMEM;
        n *= 2;
    }
    p = realloc(*array, n * size);
    if (!p)
        return ERR_NOMEM;
    memset((char *)p + *cap * size, 0, (n - *cap) * size);
    *array = p;
    *cap = n;
    return 0;
}
