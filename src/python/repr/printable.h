/*
 * Which characters repr() shows without escaping them.
 */
#ifndef PYTHON_REPR_PRINTABLE_H
#define PYTHON_REPR_PRINTABLE_H

#include <stdbool.h>
#include <stdint.h>

/* For characters from U+0080 on. False for controls, format characters, separators, surrogates, private use and
 * unassigned characters. Older Pythons know fewer characters; newer characters count as printable. */
bool printable_is(uint32_t cp);

#endif
