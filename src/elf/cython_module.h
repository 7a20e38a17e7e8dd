/*
 * Cython names and lines of one module, from its symbols and from the generated C files, if they still exist.
 */
#ifndef ELF_CYTHON_MODULE_H
#define ELF_CYTHON_MODULE_H

#include "elf/cython.h"
#include "elf/symbol_table.h"

struct cython_module;

/* `path` and `table` (which may be NULL) must outlive the result. NULL if out of memory. */
struct cython_module *cython_module_new(int root_fd, const char *path, struct symbol_table *table);
struct cython_module *cython_module_free(struct cython_module *c);

/* See cython_name. `ret` may be `name`. */
enum cython_layer cython_module_name(struct cython_module *c, const char *name, char ret[DEMANGLE_ROOM]);

/* Replaces a position in the C file by the one in the .pyx, if it is known. */
void cython_module_line(struct cython_module *c, const char **file, int *line);

#endif
