/*
 * Which private anonymous memory a process has in RAM: the heap of a program, in which objects can be searched for.
 */
#ifndef TARGET_RESIDENT_H
#define TARGET_RESIDENT_H

#include "base/addr.h"
#include "target/proc.h"

#include <stdint.h>

struct addr_range {
    addr_t start, end;
};

struct addr_ranges {
    struct addr_range *items;
    size_t n, cap;
    uint64_t bytes; /* of all items */
    bool cut;       /* some memory is missing, because there is too much */
};

/* Replaces the contents of `ret` with the writable, anonymous parts of `maps` that are in RAM, those of small mappings first. Reading the
 * others would make the kernel allocate them, or fetch them from swap. `pid` 0: all parts (a core file). 0 or ERR_NOMEM. */
int resident_read(pid_t pid, const struct proc_maps *maps, struct addr_ranges *ret);
void resident_free(struct addr_ranges *ranges);

#endif
