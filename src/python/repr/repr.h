/*
 * Converts objects of a target to the text that repr() would give, bounded in length and depth.
 *
 * Each kind of object has a writer in numbers.c, str.c, containers.c, datetime.c, arrays.c, callable.c or
 * instances.c. The table in repr.c maps type names to writers: ADD A KIND OF VALUE THERE.
 */
#ifndef PYTHON_REPR_REPR_H
#define PYTHON_REPR_REPR_H

#include "base/hash_table.h"
#include "python/python.h"
#include "target/mem_cached.h"

#define REPR_DEPTH_MAX 16
#define REPR_NAME_MAX  192  /* bytes of a type name */
#define REPR_KEY_MAX   1024 /* bytes of a key or attribute name */

struct repr_limits {
    size_t chars;      /* bytes after which a value is cut */
    size_t depth;      /* nesting of containers, at most REPR_DEPTH_MAX */
    bool attributes;   /* show the attributes of plain objects */
    bool show_secrets; /* do not mask values by their name (secrets.h) */
};

struct repr;
struct repr_type;

/* Writes one object. On failure repr.c discards what was written and shows `<Class at 0x…>`. */
typedef int (*repr_writer)(struct repr *v, addr_t object, const struct repr_type *t);

struct repr_row {
    const char *name; /* tp_name; a name without a dot matches static types only */
    repr_writer write;
    bool wraps; /* show a subclass as `Class(…)` */
};

struct repr_type {
    addr_t addr, meta, base, dict, members;
    uint64_t flags;
    char name[REPR_NAME_MAX]; /* tp_name as UTF-8; lacks the module if a class statement made the type */
    const struct repr_row *row;
    bool exact; /* it is the type in the row, not a subclass */
};

struct repr {
    struct python py; /* its memory is `mem` */
    struct mem_cached *mem;
    struct repr_limits limits;
    char *text; /* all values, each terminated by NUL */
    size_t len, cap;
    size_t stop;                 /* where the current value must end */
    addr_t path[REPR_DEPTH_MAX]; /* the containers around the current value */
    size_t depth, nesting;
    struct repr_type **types; /* valid while the thread is paused */
    size_t n_types, cap_types;
    struct hash_table types_by_addr; /* index of `types` */
    uint64_t work;                   /* remaining steps of long arithmetic */
    uint64_t max_unicode;            /* 2.7: sys.maxunicode, 0xffff or 0x10ffff; 0: not read yet */
    bool no_memory;
};

struct repr *repr_new(void); /* NULL if out of memory */
struct repr *repr_free(struct repr *v);

/* Starts over: discards all texts and the type cache. */
void repr_begin(struct repr *v, const struct python *py, const struct repr_limits *limits);

/* Appends the text of an object, or `<masked>` if `name` looks like a secret. Returns its offset, for repr_text().
 * Sets `no_memory` if out of memory. */
size_t repr_add(struct repr *v, addr_t object, const char *name);
const char *repr_text(const struct repr *v, size_t at); /* valid until the next repr_add() */

/* ---- for the writers ---- */

void repr_put(struct repr *v, const char *text);
void repr_put_bytes(struct repr *v, const char *bytes, size_t len);
__attribute__((format(printf, 2, 3))) void repr_printf(struct repr *v, const char *format, ...);

/* Bytes left for the current value; 0: stop. */
size_t repr_room(const struct repr *v);

/* Writes a nested object. */
void repr_write(struct repr *v, addr_t object);
/* The same, masked if `name` looks like a secret. */
void repr_write_named(struct repr *v, const char *name, addr_t object);

/* Bracket the items of a container. repr_enter() returns false if the container contains itself or is nested too
 * deeply; then do not write its items. */
bool repr_enter(struct repr *v, addr_t object);
void repr_leave(struct repr *v);
/* Call before each item. Writes a comma except before the first; writes "..." and returns false if there is no room
 * left. */
bool repr_next(struct repr *v, bool *first);

int repr_read(struct repr *v, addr_t addr, void *buf, size_t len);
int repr_word(struct repr *v, addr_t addr, addr_t *ret);
/* Reads a C string as UTF-8, cut to `size`. */
int repr_c_string(struct repr *v, addr_t addr, char *buf, size_t size);

/* The type of an object, or the type at an address; NULL if it is unreadable. Valid until repr_begin(). */
const struct repr_type *repr_type_of(struct repr *v, addr_t object);
const struct repr_type *repr_type(struct repr *v, addr_t type);
bool repr_is_heap_type(const struct repr_type *t);
/* True if the type or one of its bases is called `name`. */
bool repr_derives(struct repr *v, const struct repr_type *t, const char *name);
/* The part after the last dot. */
const char *repr_short_name(const struct repr_type *t);

#endif
