/*
 * Whether to write colors.
 */
#ifndef CMD_COLOR_H
#define CMD_COLOR_H

#include <stdbool.h>
#include <stdio.h>

/* True on a terminal, unless NO_COLOR is set or TERM is dumb. Elsewhere, FORCE_COLOR or CLICOLOR_FORCE asks for colors. */
bool color_is_wanted(FILE *out);

#endif
