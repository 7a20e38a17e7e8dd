/*
 * Shortens file names to the part below the outermost directory that is not a package.
 */
#ifndef SAMPLE_SHORTEN_H
#define SAMPLE_SHORTEN_H

#include "base/hash_table.h"
#include "base/intern.h"
#include "base/mounts.h"
#include "python/packages.h"
#include "target/files.h"

/* The short names of the files of a process: many functions are in one file. */
struct short_name {
    const char *filename, *result; /* interned */
};

struct short_names {
    struct short_name *items;
    size_t n, cap;
    struct hash_table index; /* of `items` */
    struct packages packages;
    struct mount_list mounts;
    uint64_t mounts_ns; /* when they were listed; 0: never */
};

struct short_names_from {
    struct intern *names;
    const struct files *files;
    const struct python *py; /* NULL: look at files only */
    const struct py_threads *threads;
};

/* "/usr/lib/python3.11/json/decoder.py" -> "json/decoder.py": keeps directories with an __init__.py. Looks in the target's root
 * directory. If the file is on a file system that may stop answering, or if it does not answer, the packages that the target has
 * imported decide. The result is interned; it is the full name when out of memory. */
const char *short_names_get(struct short_names *s, const struct short_names_from *from, const char *filename);
void short_names_free(struct short_names *s);

#endif
