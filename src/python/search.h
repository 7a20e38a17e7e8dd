/*
 * Finds a runtime without symbols, by the contents of an image's data.
 */
#ifndef PYTHON_SEARCH_H
#define PYTHON_SEARCH_H

#include "python/debug_offsets.h"
#include "target/image.h"

/* Finds the text "3.9.18 (main, …" that Py_GetVersion keeps in the data. ERR_READ if it is not there. */
int search_version(struct mem *m, const struct image *img, struct debug_version *ret);

/* Finds the address of the pointer to the first interpreter, for a known layout. */
int search_interp_head(struct mem *m, const struct image *img, const struct layout *l, addr_t *ret);

/* Finds the version, and the runtime (3.7+) or the address of the pointer to the first interpreter. */
int search_runtime(struct mem *m, const struct image *img, struct debug_version *ret_version, addr_t *ret_runtime,
                   addr_t *ret_head);

/* Parses "3.9.18 (", "3.8.0rc1 (". */
bool search_parse_version(const char *text, size_t len, struct debug_version *ret);

#endif
