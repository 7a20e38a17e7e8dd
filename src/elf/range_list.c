/*
 * A sorted list of address ranges, for the units and functions of debug info.
 */
#include "elf/range_list.h"

#include "base/err.h"
#include "base/grow.h"

#include <stdlib.h>

#define RANGES_MAX ((size_t)1 << 24)
#define SCAN_MAX   64 /* ranges to skip that end before the address, to find one that encloses them and the address */

int range_list_add(struct range_list *l, uint64_t start, uint64_t end, uint64_t value)
{
    if (end <= start)
        return 0;
    if (l->n == RANGES_MAX)
        return ERR_BOUNDS;
    if (grow_array((void **)&l->items, &l->cap, l->n + 1, sizeof(*l->items)) < 0)
        return ERR_NOMEM;
    l->items[l->n] = (struct range_list_item){start, end, value, l->n};
    l->n++;
    return 0;
}

/* Orders by start; then enclosing ranges before enclosed ones, earlier ones before later ones. */
static int compare(const void *a, const void *b)
{
    const struct range_list_item *x = a, *y = b;

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->end != y->end)
        return x->end > y->end ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

void range_list_sort(struct range_list *l)
{
    if (l->n > 1)
        qsort(l->items, l->n, sizeof(*l->items), compare);
}

bool range_list_find(const struct range_list *l, uint64_t at, uint64_t *ret_value)
{
    size_t low = 0, high = l->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (l->items[middle].start <= at)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = 0; i < SCAN_MAX && low > i; i++) {
        if (at < l->items[low - 1 - i].end) {
            *ret_value = l->items[low - 1 - i].value;
            return true;
        }
    }
    return false;
}

void range_list_clear(struct range_list *l)
{
    free(l->items);
    *l = (struct range_list){.items = NULL};
}
