/*
 * _Py_DebugOffsets: what a CPython from 3.13 on tells of itself, at the very start of _PyRuntime.
 */
#ifndef PYTHON_DEBUG_OFFSETS_H
#define PYTHON_DEBUG_OFFSETS_H

#include "python/layout.h"

#define DEBUG_OFFSETS_COOKIE "xdebugpy"
#define DEBUG_OFFSETS_BYTES  1024 /* more than any known version has */

struct debug_version {
    int major, minor, patch;
    char suffix[8];
    bool final; /* not an alpha, beta or candidate */
    bool free_threaded;
};

/* True when `bytes` begin with the cookie and a version that can be. */
bool debug_offsets_version(const unsigned char *bytes, size_t len, struct debug_version *ret);

/* Replaces the numbers in `l` by those that are told. ERR_BOUNDS when one cannot be right. */
int debug_offsets_apply(const unsigned char *bytes, size_t len, struct layout *l);

/* PY_VERSION_HEX -> parts: 0x030b07f0 is 3.11.7. */
void debug_offsets_split_version(uint64_t hex, struct debug_version *ret);

#endif
