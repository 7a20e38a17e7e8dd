/*
 * An address in the stubs through which a module calls others -> the function that the stub calls.
 */
#ifndef ELF_PLT_H
#define ELF_PLT_H

#include "elf/elf_module.h"
#include "elf/symbol_table.h"

/* Whether `vaddr` is in a section of stubs: .plt, .plt.sec, .plt.got. */
bool plt_holds(const struct elf_module *m, uint64_t vaddr);

/*
 * The symbol that the stub at `vaddr` jumps to: "malloc" (the caller adds "@plt"). `table` names functions of the module
 * itself that are chosen when it is loaded; may be NULL.
 */
bool plt_find(const struct elf_module *m, struct symbol_table *table, uint64_t vaddr,
              char ret_name[SYMBOL_TABLE_NAME_ROOM]);

#endif
