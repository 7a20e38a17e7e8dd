/*
 * Cython's side of one module: its symbols, and the C files it was made from, as far as they are still there.
 */
#ifndef ELF_CYTHON_MODULE_H
#define ELF_CYTHON_MODULE_H

#include "elf/cython.h"
#include "elf/symbol_table.h"

struct cython_module;

/* `path` and `table` (may be NULL) must outlive it. NULL when out of memory. */
struct cython_module *cython_module_new(int root_fd, const char *path, struct symbol_table *table);
struct cython_module *cython_module_free(struct cython_module *c);

/* See cython_name. `ret` may be `name`. */
enum cython_layer cython_module_name(struct cython_module *c, const char *name, char ret[DEMANGLE_ROOM]);

/* Turns a place in the C file into one in the .pyx; leaves it as it is when that cannot be had. */
void cython_module_line(struct cython_module *c, const char **file, int *line);

#endif
