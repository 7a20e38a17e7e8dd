/*
 * Ranges of addresses, each with a number: added in any order, sorted once, searched by halves.
 */
#ifndef ELF_RANGE_LIST_H
#define ELF_RANGE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range_list_item {
    uint64_t start, end, value;
    size_t order; /* of adding */
};

struct range_list {
    struct range_list_item *items;
    size_t n, cap;
};

/* Empty ranges are left out. 0, ERR_NOMEM, or ERR_BOUNDS when there are 16 million. */
int range_list_add(struct range_list *l, uint64_t start, uint64_t end, uint64_t value);
void range_list_sort(struct range_list *l);

/* The value of the innermost range that holds `at`; of equal ones the last that was added. */
bool range_list_find(const struct range_list *l, uint64_t at, uint64_t *ret_value);

void range_list_clear(struct range_list *l);

#endif
