/*
 * The list of Python processes, for `list` and for commands that need a process but got none.
 */
#ifndef CMD_LIST_H
#define CMD_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct list_counts {
    size_t shown;
    size_t denied; /* Python processes, by their names, that we have no permission to read */
};

/* Writes a table (nothing if there is no process), or JSON. Returns 0 or an error of base/err.h. */
int list_write(bool json, FILE *out, struct list_counts *ret);

#endif
