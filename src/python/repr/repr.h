/*
 * Objects of a target -> text as repr() would show it, bounded in length and depth.
 *
 *     repr_begin(v, py, &(struct repr_limits){.chars = 256, .depth = 5});
 *     at = repr_add(v, object, "x");
 *     puts(repr_text(v, at));                    // [1, 'two', {3.0}]
 *
 * Each kind of object has a writer; they are spread over numbers.c, texts.c, containers.c, times.c, arrays.c,
 * calls.c and instances.c, and values.c has the table that finds the one of a type: ADD A KIND OF VALUE THERE.
 */
#ifndef PYTHON_REPR_REPR_H
#define PYTHON_REPR_REPR_H

#include "base/hash_table.h"
#include "python/python.h"
#include "target/mem_cached.h"

#define REPR_DEPTH_MAX 16
#define REPR_NAME_MAX  192  /* bytes of a type's name */
#define REPR_KEY_MAX   1024 /* bytes of a key or an attribute's name that are looked at */

struct repr_limits {
    size_t chars;      /* bytes after which a value is cut */
    size_t depth;      /* of containers in containers, at most REPR_DEPTH_MAX */
    bool attributes;   /* of plain objects */
    bool show_secrets; /* also where the name tells that it is one (secrets.h) */
};

struct repr;
struct repr_type;

/* Writes the object at `object`; an error makes values.c show it as `<Class at 0x…>` instead. */
typedef int (*repr_writer)(struct repr *v, addr_t object, const struct repr_type *t);

struct repr_row {
    const char *name; /* tp_name; one without a dot is never that of a class statement */
    repr_writer write;
    bool wraps; /* a subclass is shown as `Class(…)` around it */
};

struct repr_type {
    addr_t addr, meta, base, dict, members;
    uint64_t flags;
    char name[REPR_NAME_MAX]; /* tp_name as UTF-8: without its module where a class statement made it */
    const struct repr_row *row;
    bool exact; /* it is the very type of the row, not a subclass */
};

struct repr {
    struct python py; /* reads through `mem` */
    struct mem_cached *mem;
    struct repr_limits limits;
    char *text; /* of all values, each ended by NUL */
    size_t len, cap;
    size_t stop;                 /* where the present value has to end */
    addr_t path[REPR_DEPTH_MAX]; /* the containers around the present value */
    size_t depth, nesting;
    struct repr_type **types; /* good for one moment of the target */
    size_t n_types, cap_types;
    struct hash_table types_by_addr; /* index of `types` */
    uint64_t work;                   /* steps of long arithmetic that may still be done */
    uint64_t max_unicode;            /* of a 2.7: 0xffff or 0x10ffff; 0 when not looked up yet */
    bool no_memory;
};

struct repr *repr_new(void); /* NULL when out of memory */
struct repr *repr_free(struct repr *v);

/* Begins anew: the texts so far and all that is known of types are forgotten. */
void repr_begin(struct repr *v, const struct python *py, const struct repr_limits *limits);

/* Appends the text of an object, or `<masked>` if that is called for. Returns where it begins in repr_text.
 * Out of memory shows in `no_memory`. */
size_t repr_add(struct repr *v, addr_t object, const char *name);
const char *repr_text(const struct repr *v, size_t at); /* good until the next repr_add */

/* ---- for the writers ---- */

void repr_put(struct repr *v, const char *text);
void repr_put_bytes(struct repr *v, const char *bytes, size_t len);
__attribute__((format(printf, 2, 3))) void repr_printf(struct repr *v, const char *format, ...);

/* Bytes that the present value may still take; 0 when it is time to end. */
size_t repr_room(const struct repr *v);

/* An object within another one. */
void repr_write(struct repr *v, addr_t object);
/* The same, masked when `name` calls for that. */
void repr_write_named(struct repr *v, const char *name, addr_t object);

/* Around the items of a container. False when it is within itself, or too deep: it is not to be looked into. */
bool repr_enter(struct repr *v, addr_t object);
void repr_leave(struct repr *v);
/* Before each item: a comma but for the first; or false, and dots, when there is no more room. */
bool repr_next(struct repr *v, bool *first);

int repr_read(struct repr *v, addr_t addr, void *buf, size_t len);
int repr_word(struct repr *v, addr_t addr, addr_t *ret);
/* A C string of the target, cut at `size`, as UTF-8. */
int repr_c_string(struct repr *v, addr_t addr, char *buf, size_t size);

/* The type of an object, or what is known of a type; NULL when it cannot be read. Good until repr_begin. */
const struct repr_type *repr_type_of(struct repr *v, addr_t object);
const struct repr_type *repr_type(struct repr *v, addr_t type);
bool repr_is_heap_type(const struct repr_type *t);
/* True when the type or one it derives from is called `name`. */
bool repr_derives(struct repr *v, const struct repr_type *t, const char *name);
/* The name behind the last dot. */
const char *repr_short_name(const struct repr_type *t);
/* `<Class at 0x…>` */
void repr_write_plain(struct repr *v, addr_t object, const struct repr_type *t);

#endif
