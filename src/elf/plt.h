/*
 * Names PLT stubs, through which a module calls functions of other modules.
 */
#ifndef ELF_PLT_H
#define ELF_PLT_H

#include "elf/elf_module.h"
#include "elf/symbol_table.h"

/* True if `vaddr` is in .plt, .plt.sec or .plt.got. */
bool plt_contains(const struct elf_module *m, uint64_t vaddr);

/*
 * Finds the symbol that the stub at `vaddr` jumps to, without "@plt". `table` (may be NULL) names the module's own
 * functions that an IFUNC resolver selects at load time.
 */
bool plt_find(const struct elf_module *m, struct symbol_table *table, uint64_t vaddr,
              char ret_name[SYMBOL_TABLE_NAME_ROOM]);

#endif
