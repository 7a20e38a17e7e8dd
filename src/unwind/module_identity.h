/*
 * Whether a library is the one whose names and tables are known: its build id in memory, or all of its first page if it
 * has none, read in the same instant as the stack. Another library can take its place as soon as the thread runs on, so that a look afterwards may be too late.
 *
 *     n = module_identity_spans(&marks, spans);          // for the reading of the stack
 *     module_identity_check(&marks, how many were read);
 *     …unwind…
 *     if (module_identity_is_confirmed(&marks, mod)) …
 */
#ifndef UNWIND_MODULE_IDENTITY_H
#define UNWIND_MODULE_IDENTITY_H

#include "elf/build_id.h"
#include "target/mem.h"

#include <stdbool.h>

#define MODULE_IDENTITY_MAX   16
#define MODULE_IDENTITY_BYTES 4096

struct module;

struct module_identities {
    struct module *items[MODULE_IDENTITY_MAX]; /* those met last, the newest at the end */
    size_t n;
    uint64_t round;
    unsigned char bytes[MODULE_IDENTITY_MAX][MODULE_IDENTITY_BYTES];
};

/* A module that was met; one of which no first page was kept cannot be marked. */
void module_identity_add(struct module_identities *marks, struct module *mod);
/* Modules have come or gone: only those that are there now are kept, and those that take turns with others are added. */
void module_identity_update(struct module_identities *marks, struct module *const *mods, size_t n);

/* What to read; begins anew: nobody is vouched for. Gives the number, MODULE_IDENTITY_MAX at most. */
size_t module_identity_spans(struct module_identities *marks, struct mem_span *spans);
/* The first `n` were read. A module that reads otherwise now is stale; so is the one behind them, which could not be read,
 * and which is left out from now on: it kept those behind it from being read. */
void module_identity_check(struct module_identities *marks, size_t n);
bool module_identity_is_confirmed(const struct module_identities *marks, const struct module *mod);

#endif
