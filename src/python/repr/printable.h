/*
 * Which characters repr() shows as they are.
 */
#ifndef PYTHON_REPR_PRINTABLE_H
#define PYTHON_REPR_PRINTABLE_H

#include <stdbool.h>
#include <stdint.h>

/* For characters from U+0080 on: false for controls, marks of direction, blanks, surrogates, private and unassigned
 * ones. Older Pythons know fewer characters; those that came later are printable here. */
bool printable_is(uint32_t cp);

#endif
