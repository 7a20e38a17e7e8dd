/*
 * Maps the C names and lines that Cython generated back to the .pyx.
 *
 *     __pyx_pf_3pkg_3mod_6Worker_2run_it              ->  pkg.mod.Worker.run_it
 *     mod.c:3574, below the comment "pkg/mod.pyx":12  ->  pkg/mod.pyx:12
 */
#ifndef ELF_CYTHON_H
#define ELF_CYTHON_H

#include "elf/demangle.h"

#include <stdbool.h>
#include <stddef.h>

/* A call of a Cython function runs up to three C functions. Outermost first: */
enum cython_layer {
    CYTHON_NONE,    /* not a function of the .pyx; also Cython's helpers */
    CYTHON_WRAPPER, /* unpacks the arguments */
    CYTHON_DEF,     /* the body of a `def` or of a generator; for a `cpdef` it calls the next layer */
    CYTHON_CDEF,    /* the body of a `cdef` or `cpdef` */
};

/*
 * Finds a symbol of the module that starts with `prefix` and whose suffix satisfies cython_suffix_matches. Copies the
 * suffix to `rest` unless that is NULL.
 */
struct cython_symbols {
    bool (*find)(void *arg, const char *prefix, bool exact, char rest[DEMANGLE_ROOM]);
    void *arg;
};

/* For implementations of cython_symbols.find. If `exact`, the suffix must be empty or added by the compiler (.cold);
 * else it must be a name that does not start with a digit. */
bool cython_suffix_matches(const char *rest, bool exact);

/*
 * Writes the Python name of a C function. Returns CYTHON_NONE, with `ret` unchanged, if `name` is not a function of
 * the .pyx. `symbols` (may be NULL) resolves ambiguous names: "4load_data" is function number 4, load_data, or data in
 * a scope called load.
 */
enum cython_layer cython_name(const char *name, const struct cython_symbols *symbols, char ret[DEMANGLE_ROOM]);

/* True for the helpers that Cython adds to each module, such as __Pyx_PyObject_Call. */
bool cython_is_helper(const char *name);

/* The line mapping of one generated file. */
struct cython_lines;

/* Parses a generated C file. NULL if Cython did not generate it, or if out of memory. */
struct cython_lines *cython_lines_new(const char *text, size_t len);
struct cython_lines *cython_lines_free(struct cython_lines *l);

/* Finds the .pyx, .pxd, .pxi or .py line that line `line` of the C file comes from. Returns false if there is none. */
bool cython_lines_find(const struct cython_lines *l, int line, const char **ret_file, int *ret_line);

#endif
