/*
 * _Py_DebugOffsets: the table of field offsets at the start of _PyRuntime, from CPython 3.13 on.
 */
#ifndef PYTHON_DEBUG_OFFSETS_H
#define PYTHON_DEBUG_OFFSETS_H

#include "python/layout.h"

#define DEBUG_OFFSETS_COOKIE "xdebugpy"
#define DEBUG_OFFSETS_BYTES  1024 /* at least sizeof(_Py_DebugOffsets): 584 in 3.13, 760 in 3.14, 888 in 3.15 */

struct debug_version {
    int major, minor, patch;
    char suffix[8];
    bool final; /* not an alpha, beta or release candidate */
    bool free_threaded;
};

/* True if `bytes` start with the cookie and a plausible version. */
bool debug_offsets_version(const unsigned char *bytes, size_t len, struct debug_version *ret);

/* Overrides `l` with the offsets from the table. ERR_BOUNDS if one is implausible. */
int debug_offsets_apply(const unsigned char *bytes, size_t len, struct layout *l);

/* Splits PY_VERSION_HEX: 0x030b07f0 is 3.11.7. */
void debug_offsets_split_version(uint64_t hex, struct debug_version *ret);

#endif
