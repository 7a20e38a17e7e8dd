/*
 * Shortens file names to the part below the outermost directory that is not a package.
 */
#ifndef SAMPLE_SHORTEN_H
#define SAMPLE_SHORTEN_H

#include "base/intern.h"
#include "target/files.h"

/* "/usr/lib/python3.11/json/decoder.py" -> "json/decoder.py": keeps directories with an __init__.py. Looks in the
 * target's root directory. The result is interned; it is the full name when out of memory. */
const char *shorten_filename(struct intern *names, const struct files *files, const char *filename);

#endif
