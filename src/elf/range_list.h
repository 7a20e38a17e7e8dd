/*
 * A map from address ranges to values. Add ranges in any order, sort once, then look up by binary search.
 */
#ifndef ELF_RANGE_LIST_H
#define ELF_RANGE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range_list_item {
    uint64_t start, end, value;
    size_t order; /* in which it was added */
};

struct range_list {
    struct range_list_item *items;
    size_t n, cap;
};

/* Ignores an empty range. Returns 0, ERR_NOMEM, or ERR_BOUNDS once there are 16 million ranges. */
int range_list_add(struct range_list *l, uint64_t start, uint64_t end, uint64_t value);
void range_list_sort(struct range_list *l);

/* Finds the value of the innermost range that contains `at`; among equal ranges, of the one added last. */
bool range_list_find(const struct range_list *l, uint64_t at, uint64_t *ret_value);

void range_list_clear(struct range_list *l);

#endif
