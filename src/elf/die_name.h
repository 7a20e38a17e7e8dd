/*
 * The name of a DIE (an entry of debug info): its linkage name if it has one, else its name with the scopes around it.
 */
#ifndef ELF_DIE_NAME_H
#define ELF_DIE_NAME_H

#include <elfutils/libdw.h>

/* A cache of names. */
struct die_names;

struct die_names *die_names_new(void); /* NULL if out of memory */
struct die_names *die_names_free(struct die_names *names);

/* NULL if the DIE has no name. Valid as long as `names` and the debug info are. */
const char *die_names_get(struct die_names *names, Dwarf_Die *unit_die, Dwarf_Die *die);

#endif
