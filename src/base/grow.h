/*
 * Growing arrays: doubles `*array` until it holds `need` items of `size` bytes.
 *
 *     if (grow_array((void **)&v->items, &v->cap, v->n + 1, sizeof(*v->items)) < 0)
 *         return ERR_NOMEM;
 *     v->items[v->n++] = item;
 */
#ifndef BASE_GROW_H
#define BASE_GROW_H

#include <stddef.h>

int grow_array_to(void **array, size_t *cap, size_t need, size_t size);

/* 0 or ERR_NOMEM, and then the array is as it was. New room is zeroed. That there is room is seen without a call: this
 * is done for each frame of each sample. */
static inline int grow_array(void **array, size_t *cap, size_t need, size_t size)
{
    return need <= *cap ? 0 : grow_array_to(array, cap, need, size);
}

#endif
