/*
 * An entry of debug info -> its name: the linkage name, from which all can be read, or the plain name with the scopes
 * around it.
 */
#ifndef ELF_DIE_NAME_H
#define ELF_DIE_NAME_H

#include <elfutils/libdw.h>

/* What is known already. */
struct die_names;

struct die_names *die_names_new(void); /* NULL when out of memory */
struct die_names *die_names_free(struct die_names *names);

/* NULL when it has none. Lives as long as `names` and the debug info do. */
const char *die_names_get(struct die_names *names, Dwarf_Die *unit_die, Dwarf_Die *die);

#endif
