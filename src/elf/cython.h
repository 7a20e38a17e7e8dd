/*
 * C names and lines that Cython made -> those of the .pyx.
 *
 *     __pyx_pf_3pkg_3mod_6Worker_2run_it              ->  pkg.mod.Worker.run_it
 *     mod.c:3574, below the comment "pkg/mod.pyx":12  ->  pkg/mod.pyx:12
 */
#ifndef ELF_CYTHON_H
#define ELF_CYTHON_H

#include "elf/demangle.h"

#include <stdbool.h>
#include <stddef.h>

/* One call of a Python function is up to three C functions; from the outside in: */
enum cython_layer {
    CYTHON_NONE,    /* not a function of the .pyx: Cython's helpers too */
    CYTHON_WRAPPER, /* unpacks the arguments */
    CYTHON_DEF,     /* the body of a `def`, or of a generator; of a cpdef: calls the next */
    CYTHON_CDEF,    /* the body of a `cdef` or `cpdef` */
};

/*
 * Looks for a symbol of the module that is `prefix` and a rest: nothing or an ending of the compiler's (`whole`), or a
 * name that does not start with a digit. Writes that rest, if `rest` is not NULL.
 */
struct cython_symbols {
    bool (*find)(void *arg, const char *prefix, bool whole, char rest[DEMANGLE_ROOM]);
    void *arg;
};

/* Whether `rest` is of the kind that is asked for: for whoever writes a `find`. */
bool cython_rest_fits(const char *rest, bool whole);

/*
 * Writes the Python name, or leaves `ret` alone and gives CYTHON_NONE. `symbols` (may be NULL) decides what the name
 * alone leaves open: "4load_data" is the fifth function, load_data, or data in a scope called load.
 */
enum cython_layer cython_name(const char *name, const struct cython_symbols *symbols, char ret[DEMANGLE_ROOM]);

/* True for what Cython adds to each module, and nobody wants to see: __Pyx_PyObject_Call. */
bool cython_is_helper(const char *name);

/* The lines of one generated file. */
struct cython_lines;

/* From the text of the C file; NULL when it is not Cython's or memory is out. */
struct cython_lines *cython_lines_new(const char *text, size_t len);
struct cython_lines *cython_lines_free(struct cython_lines *l);

/* The .pyx (or .pxd, .pxi) that line `line` of the C file comes from; false when none does. */
bool cython_lines_find(const struct cython_lines *l, int line, const char **ret_file, int *ret_line);

#endif
