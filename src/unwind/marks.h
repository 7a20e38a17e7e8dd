/*
 * Whether a library is the one whose names and tables are known: its build id in memory, or all of its first page if it
 * has none, read in the same instant as the stack. Another library can take its place as soon as the thread runs on, so that a look afterwards may be too late.
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

#define MARKS_MAX   16
#define MARKS_BYTES 4096

struct module;

struct marks {
    struct module *items[MARKS_MAX]; /* those met last, the newest at the end */
    size_t n;
    uint64_t round;
    unsigned char bytes[MARKS_MAX][MARKS_BYTES];
};

/* A module that was met; one of which no first page was kept cannot be marked. */
void marks_add(struct marks *marks, struct module *mod);
/* Modules have come or gone: only those that are there now are kept, and those that take turns with others are added. */
void marks_update(struct marks *marks, struct module *const *mods, size_t n);

/* What to read; begins anew: nobody is vouched for. Gives the number, MARKS_MAX at most. */
size_t marks_spans(struct marks *marks, struct mem_span *spans);
/* The first `n` were read. A module that reads otherwise now is stale; so is the one behind them, which could not be read,
 * and which is left out from now on: it kept those behind it from being read. */
void marks_take(struct marks *marks, size_t n);
bool marks_vouch(const struct marks *marks, const struct module *mod);

#endif
