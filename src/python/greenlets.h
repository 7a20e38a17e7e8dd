/*
 * Greenlets: finds them in the memory of a process, and reads the stacks of those that are suspended.
 *
 *     r = greenlets_find_types(py, interp, &types);            // n == 0: the process does not use greenlets
 *     r = greenlets_search(py, &types, &ranges, &found);       // addresses of objects that look like greenlets
 *     r = greenlet_read(py, &types, addr, &g);
 *     r = greenlet_frames(reader, &g, &frames);
 *
 * The package keeps no list of its greenlets, so the search looks for pointers to their types. No thread needs to be
 * paused for that: greenlet_read() rejects what is not a greenlet.
 */
#ifndef PYTHON_GREENLETS_H
#define PYTHON_GREENLETS_H

#include "python/frames.h"
#include "python/python.h"
#include "python/tasks.h"
#include "target/resident.h"

#define GREENLET_TYPES_MAX 64
#define GREENLETS_MAX      262144

/* greenlet.greenlet and its subclasses. */
struct greenlet_types {
    addr_t items[GREENLET_TYPES_MAX]; /* the first is greenlet.greenlet */
    size_t sizes[GREENLET_TYPES_MAX]; /* of their instances */
    const char *names[GREENLET_TYPES_MAX];
    size_t n;
    bool has_pimpl; /* greenlet 2.0 and later: the state is in a C++ object */
    bool has_self;  /* 3.1 and later: that object points back */
};

enum greenlet_state {
    GREENLET_SUSPENDED,
    GREENLET_RUNNING, /* its stack is its thread's */
    GREENLET_NEW,     /* not started */
    GREENLET_DEAD,
};

struct greenlet {
    addr_t addr, type;
    addr_t parent; /* 0: it is the main greenlet of its thread, or the parent is unknown */
    enum greenlet_state state;
    bool is_main;
    addr_t frame;  /* of a suspended greenlet: the innermost frame */
    addr_t window; /* greenlet 2.0 and later: words that may point to the parent */
    /* The part of the C stack that is in use by other greenlets was moved to `stack_copy`. */
    addr_t stack_start, stack_stop, stack_copy, stack_saved;
};

struct greenlets_found {
    addr_t *items; /* sorted */
    size_t n, cap;
    uint64_t searched, total; /* bytes; less than all: the search took too long, or found too many */
};

/* Looks up the types in sys.modules of an interpreter. No such module: 0, and `ret->n` is 0. */
int greenlets_find_types(const struct python *py, addr_t interp, struct greenlet_types *ret);

/* Searches ranges of memory. 0 or ERR_NOMEM. */
int greenlets_search(const struct python *py, const struct greenlet_types *types, const struct addr_ranges *ranges,
                     struct greenlets_found *ret);
void greenlets_found_free(struct greenlets_found *found);

/* Finds out from the greenlets how their state is laid out. */
void greenlets_find_layout(const struct python *py, const struct greenlets_found *found, struct greenlet_types *types);

/* ERR_READ or ERR_BOUNDS when there is no greenlet at `addr`. Does not set `parent` if `types->has_pimpl`. */
int greenlet_read(const struct python *py, const struct greenlet_types *types, addr_t addr, struct greenlet *ret);
/* Sets `parent`: one of the greenlets that were found. */
void greenlet_find_parent(const struct python *py, const struct greenlets_found *found, struct greenlet *g);

struct greenlet_reader;

/* Reads through `py->mem`, one page at a time; both are borrowed. NULL if out of memory. */
struct greenlet_reader *greenlet_reader_new(const struct python *py);
struct greenlet_reader *greenlet_reader_free(struct greenlet_reader *r);
/* Forgets the pages that it has read. */
void greenlet_reader_forget(struct greenlet_reader *r);
/* The interpreter, read through the pages. */
const struct python *greenlet_reader_python(const struct greenlet_reader *r);
/* The stack of a suspended greenlet. 0, ERR_TORN, ERR_CYCLE, ERR_TOO_DEEP or ERR_NOMEM. */
int greenlet_frames(struct greenlet_reader *r, const struct greenlet *g, struct frames *ret);

/* True if the type of an object has this name, including the module if C code made the type. */
bool greenlet_type_is(const struct python *py, addr_t object, const char *name);

/* The name of a greenlet: what the program or gevent calls it, else the function that it was started with. NULL: neither is
 * known. 0 or ERR_NOMEM. */
int greenlet_name(const struct python *py, const struct greenlet *g, const char **ret);
/* What a suspended greenlet waits for, from its innermost frames, of which `codes` are the code objects: `ret->kind` is NULL if they do not
 * tell. Between repr_begin() and the next one. 0 or ERR_NOMEM. */
int greenlet_wait(struct repr *v, const struct py_frame *frames, const struct code *const *codes, size_t n,
                  struct py_wait *ret);

/* The name of its class, without the module. */
const char *greenlet_type_name(const struct greenlet_types *types, const struct greenlet *g);

#endif
