/*
 * Finding a runtime without symbols: by what the data of an image looks like.
 */
#ifndef PYTHON_SEARCH_H
#define PYTHON_SEARCH_H

#include "python/debug_offsets.h"
#include "target/image.h"

/* The text "3.9.18 (main, …" that Py_GetVersion keeps in the interpreter's data. ERR_READ when there is none. */
int search_version(struct mem *m, const struct image *img, struct debug_version *ret);

/* The place of the pointer to the first interpreter, for a known layout. */
int search_interp_head(struct mem *m, const struct image *img, const struct layout *l, addr_t *ret);

/* Everything: version, and the runtime (3.7+) or the place of the pointer to the first interpreter. */
int search_runtime(struct mem *m, const struct image *img, struct debug_version *ret_version, addr_t *ret_runtime,
                   addr_t *ret_head);

/* "3.9.18 (", "3.8.0rc1 (" at `text` -> version. */
bool search_parse_version(const char *text, size_t len, struct debug_version *ret);

#endif
