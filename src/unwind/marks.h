/*
 * Whether a library is the one whose names and tables are known: its build id in memory, read in the same instant as the
 * stack. Another library can take its place as soon as the thread runs on, so that a look afterwards may be too late.
 *
 *     n = marks_spans(&marks, spans);          // for the reading of the stack
 *     marks_take(&marks, how many were read);
 *     …unwind…
 *     if (marks_vouch(&marks, mod)) …
 */
#ifndef UNWIND_MARKS_H
#define UNWIND_MARKS_H

#include "elf/build_id.h"
#include "target/mem.h"

#include <stdbool.h>

#define MARKS_MAX 16

struct module;

struct marks {
    struct module *items[MARKS_MAX]; /* those met last: a ring */
    size_t n, next;
    uint64_t round;
    unsigned char bytes[MARKS_MAX][BUILD_ID_MAX];
};

/* A module that was met; one without a build id cannot be marked. */
void marks_add(struct marks *marks, struct module *mod);
/* Modules may have gone. */
void marks_forget(struct marks *marks);

/* What to read; begins anew: nobody is vouched for. Gives the number, MARKS_MAX at most. */
size_t marks_spans(struct marks *marks, struct mem_span *spans);
/* The first `n` were read. A module that has another build id now is stale. */
void marks_take(struct marks *marks, size_t n);
bool marks_vouch(const struct marks *marks, const struct module *mod);

#endif
