/*
 * The functions in the symbol tables of one module. Maps an address to the function that contains it, by binary search.
 * Reads names from the file only when needed, and caches the last ones.
 *
 *     symbol_table_add(t, &module, SHT_SYMTAB);
 *     symbol_table_sort(t);
 *     if (symbol_table_find(t, vaddr, &start, name))
 *         puts(name);                               // "memcpy@@GLIBC_2.14"
 */
#ifndef ELF_SYMBOL_TABLE_H
#define ELF_SYMBOL_TABLE_H

#include "elf/elf_module.h"

#define SYMBOL_TABLE_NAME_ROOM 4096 /* bytes of a name with its NUL; longer names are truncated */

struct symbol_table;

struct symbol_table *symbol_table_new(void); /* NULL if out of memory */
struct symbol_table *symbol_table_free(struct symbol_table *t);

/* Adds the functions in a module's SHT_SYMTAB or SHT_DYNSYM and returns their number. `m` must outlive the table. */
size_t symbol_table_add(struct symbol_table *t, const struct elf_module *m, uint32_t type);

/* Call it after the last symbol_table_add and before the first symbol_table_find. Returns 0 or ERR_NOMEM. */
int symbol_table_sort(struct symbol_table *t);

/* Finds the innermost function that contains `vaddr`. If it has several names, prefers the public one. */
bool symbol_table_find(struct symbol_table *t, uint64_t vaddr, uint64_t *ret_start,
                       char ret_name[SYMBOL_TABLE_NAME_ROOM]);

/* Calls `each` for every name that starts with `prefix`. The names live as long as the table. */
void symbol_table_each(struct symbol_table *t, const char *prefix, void (*each)(void *arg, const char *name),
                       void *arg);

#endif
