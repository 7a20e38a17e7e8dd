/*
 * The functions in the symbol tables of one module: an address -> the name of the function around it. Sorted once,
 * searched by halves; names are read from the file only when they are asked for, and the last ones kept.
 *
 *     symbol_table_add(t, &module, SHT_SYMTAB);
 *     symbol_table_sort(t);
 *     if (symbol_table_find(t, vaddr, &start, name))      // name: "memcpy@@GLIBC_2.14"
 */
#ifndef ELF_SYMBOL_TABLE_H
#define ELF_SYMBOL_TABLE_H

#include "elf/elf_module.h"

#define SYMBOL_TABLE_NAME_ROOM 4096 /* of a name with its NUL; longer ones are cut */

struct symbol_table;

struct symbol_table *symbol_table_new(void); /* NULL when out of memory */
struct symbol_table *symbol_table_free(struct symbol_table *t);

/* Adds the functions of a module's SHT_SYMTAB or SHT_DYNSYM and gives their number. `m` must outlive the table. */
size_t symbol_table_add(struct symbol_table *t, const struct elf_module *m, uint32_t type);

/* After the last add, before the first find. 0 or ERR_NOMEM. */
int symbol_table_sort(struct symbol_table *t);

/* The innermost function that holds `vaddr`; of its names the public one. */
bool symbol_table_find(struct symbol_table *t, uint64_t vaddr, uint64_t *ret_start,
                       char ret_name[SYMBOL_TABLE_NAME_ROOM]);

/* Calls `each` with every name that starts with `prefix`. The names live as long as the table. */
void symbol_table_each(struct symbol_table *t, const char *prefix, void (*each)(void *arg, const char *name),
                       void *arg);

#endif
