/*
 * The unwind tables of a module, found and read when they are first needed: .eh_frame by its header in memory, else by
 * the module's file; .debug_frame for what that leaves out.
 */
#ifndef UNWIND_MODULE_TABLES_H
#define UNWIND_MODULE_TABLES_H

#include "unwind/modules.h"

/* The row of an instruction; `ret_section` is what its expressions are in. ERR_READ when there is none. */
int module_tables_row(struct modules *ms, struct module *mod, struct mem *m, addr_t pc, struct cfi_row *ret,
                      const struct cfi_section **ret_section);

/* What `mod` holds; the rest of it is left alone. */
void module_tables_free(struct modules *ms, struct module *mod);

#endif
