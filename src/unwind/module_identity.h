/*
 * Confirms that a module is still the one whose symbols and unwind tables we have, by its build ID in memory, or by
 * its first page if it has no build ID. The bytes must be read together with the stack: as soon as the thread runs
 * again, it can load another library at the same address.
 *
 *     n = module_identity_spans(&ids, spans);
 *     module_identity_check(&ids, mem_readv(mem, spans, n));
 *     unwind_stack(u, mem, &regs, &copy, &stack);
 *     if (!module_identity_is_confirmed(&ids, stack.items[0].pc_entry->module))
 *         return ERR_TORN;
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
    struct module *items[MODULE_IDENTITY_MAX]; /* the modules seen most recently, the latest one last */
    size_t n;
    uint64_t round; /* counts calls of module_identity_spans */
    unsigned char bytes[MODULE_IDENTITY_MAX][MODULE_IDENTITY_BYTES];
};

/* Adds a module, or makes it the latest one. Ignores a module without a first_page. */
void module_identity_add(struct module_identities *ids, struct module *mod);
/* Call it after modules came or went: drops modules that are not in `mods` and adds those with a reused address. */
void module_identity_update(struct module_identities *ids, struct module *const *mods, size_t n);

/* Returns the number of spans to read, at most MODULE_IDENTITY_MAX. No module is confirmed until the next
 * module_identity_check. */
size_t module_identity_spans(struct module_identities *ids, struct mem_span *spans);
/* Compares the first `n` spans, which were read. A module whose bytes differ is stale. So is the module of the first
 * span that could not be read; it is dropped, because it kept the spans after it from being read. */
void module_identity_check(struct module_identities *ids, size_t n);
bool module_identity_is_confirmed(const struct module_identities *ids, const struct module *mod);

#endif
