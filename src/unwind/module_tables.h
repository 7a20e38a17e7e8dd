/*
 * The unwind tables of a module, read when first needed: .eh_frame through .eh_frame_hdr in memory, else through the
 * section headers of the file; .debug_frame for what .eh_frame does not cover.
 */
#ifndef UNWIND_MODULE_TABLES_H
#define UNWIND_MODULE_TABLES_H

#include "unwind/modules.h"

/* Finds the row for `pc`. `*ret_section` holds the expressions of the row. Returns 0 or ERR_READ. */
int module_tables_row(struct modules *ms, struct module *mod, struct mem *m, addr_t pc, struct cfi_row *ret,
                      const struct cfi_section **ret_section);

/* Loads the tables in the image of an object that a JIT compiler registered. */
void module_tables_load_image(struct modules *ms, struct module *mod);

/* Frees the tables of `mod`, and nothing else of it. */
void module_tables_free(struct modules *ms, struct module *mod);

#endif
