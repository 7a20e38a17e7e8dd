/*
 * The files of src/assets, embedded by tools/embed.sh. NUL-terminated; `_len` does not count the NUL.
 */
#ifndef OUT_ASSETS_H
#define OUT_ASSETS_H

#include <stddef.h>

extern const char asset_flamegraph_js[];
extern const size_t asset_flamegraph_js_len;
extern const char asset_flamegraph_css[];
extern const size_t asset_flamegraph_css_len;

#endif
