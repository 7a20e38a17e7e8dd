/*
 * Tells the files of the standard library and of installed packages from those of the program, by their paths.
 */
#ifndef PROFILE_LIBRARY_H
#define PROFILE_LIBRARY_H

#include "sample/trace.h"

/* The part of a path below the library: "json/decoder.py" of "/usr/lib/python3.11/json/decoder.py". NULL for a file that is in
 * none: lib/pythonX.Y, pythonXY.zip, site-packages, dist-packages, an egg or a wheel. */
const char *library_part(const char *path);

/* Who a function belongs to. */
enum library_owner {
    LIBRARY_NOT,    /* the program */
    LIBRARY_YES,    /* a library */
    LIBRARY_STARTS, /* the part of the standard library that starts threads and modules */
    LIBRARY_CALLER, /* whoever calls it: a native function, or a marker */
    LIBRARY_STATE,  /* no function: what a thread did, or CPU time without a stack */
};

enum library_owner library_owner(const struct func *func);

#endif
