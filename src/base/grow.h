/*
 * Dynamic arrays: grows `*array`, which has room for `*cap` items of `size` bytes, until it has room for `need` items.
 *
 *     if (grow_array((void **)&v->items, &v->cap, v->n + 1, sizeof(*v->items)) < 0)
 *         return ERR_NOMEM;
 *     v->items[v->n++] = item;
 */
#ifndef BASE_GROW_H
#define BASE_GROW_H

#include <stddef.h>

int grow_array_to(void **array, size_t *cap, size_t need, size_t size);

/* Returns 0, or ERR_NOMEM with the array unchanged. New items are zeroed. The check is inline because callers do it for
 * every frame of every sample. */
static inline int grow_array(void **array, size_t *cap, size_t need, size_t size)
{
    return need <= *cap ? 0 : grow_array_to(array, cap, need, size);
}

#endif
