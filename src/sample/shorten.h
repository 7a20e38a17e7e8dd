/*
 * Shortens file names to the part below the outermost directory that is not a package.
 */
#ifndef SAMPLE_SHORTEN_H
#define SAMPLE_SHORTEN_H

#include "base/hash_table.h"
#include "base/intern.h"
#include "target/files.h"

/* "/usr/lib/python3.11/json/decoder.py" -> "json/decoder.py": keeps directories with an __init__.py. Looks in the
 * target's root directory. The result is interned; it is the full name when out of memory. If the file system does
 * not answer, only the last component is left. */
const char *shorten_filename(struct intern *names, const struct files *files, const char *filename);

/* The same, remembered per file of a process: many functions are in one file. */
struct short_name {
    const char *filename, *result; /* interned */
};

struct short_names {
    struct short_name *items;
    size_t n, cap;
    struct hash_table index; /* of `items` */
};

const char *short_names_get(struct short_names *s, struct intern *names, const struct files *files,
                            const char *filename);
void short_names_free(struct short_names *s);

#endif
