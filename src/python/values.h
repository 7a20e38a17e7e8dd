/*
 * Objects of a target -> text as repr() would show it, bounded in length and depth.
 *
 *     values_begin(v, py, &(struct values_limits){.chars = 256, .depth = 5});
 *     at = values_add(v, object, "x");
 *     puts(values_text(v, at));                    // [1, 'two', {3.0}]
 *
 * Each kind of object has a writer; they are spread over numbers.c, texts.c, containers.c, times.c, arrays.c,
 * calls.c and instances.c, and values.c has the table that finds the one of a type: ADD A KIND OF VALUE THERE.
 */
#ifndef PYTHON_VALUES_H
#define PYTHON_VALUES_H

#include "python/python.h"
#include "target/mem_cached.h"

#define VALUES_DEPTH_MAX 16
#define VALUES_NAME_MAX  192  /* bytes of a type's name */
#define VALUES_KEY_MAX   1024 /* bytes of a key or an attribute's name that are looked at */

struct values_limits {
    size_t chars;      /* bytes after which a value is cut */
    size_t depth;      /* of containers in containers, at most VALUES_DEPTH_MAX */
    bool attributes;   /* of plain objects */
    bool show_secrets; /* also where the name tells that it is one (secrets.h) */
};

struct values;
struct value_type;

/* Writes the object at `object`; an error makes values.c show it as `<Class at 0x…>` instead. */
typedef int (*value_writer)(struct values *v, addr_t object, const struct value_type *t);

struct value_row {
    const char *name; /* tp_name; one without a dot is never that of a class statement */
    value_writer write;
    bool wraps; /* a subclass is shown as `Class(…)` around it */
};

struct value_type {
    addr_t addr, meta, base, dict, members;
    uint64_t flags;
    char name[VALUES_NAME_MAX]; /* tp_name as UTF-8: without its module where a class statement made it */
    const struct value_row *row;
    bool exact; /* it is the very type of the row, not a subclass */
};

struct values {
    struct python py; /* reads through `mem` */
    struct mem_cached *mem;
    struct values_limits limits;
    char *text; /* of all values, each ended by NUL */
    size_t len, cap;
    size_t stop;                   /* where the present value has to end */
    addr_t path[VALUES_DEPTH_MAX]; /* the containers around the present value */
    size_t depth, nesting;
    struct value_type **types; /* hashed by address; good for one moment of the target */
    size_t n_types, cap_types;
    uint64_t work;        /* steps of long arithmetic that may still be done */
    uint64_t max_unicode; /* of a 2.7: 0xffff or 0x10ffff; 0 when not looked up yet */
    bool no_memory;
};

struct values *values_new(void); /* NULL when out of memory */
struct values *values_free(struct values *v);

/* Begins anew: the texts so far and all that is known of types are forgotten. */
void values_begin(struct values *v, const struct python *py, const struct values_limits *limits);

/* Appends the text of an object, or `<masked>` if that is called for. Returns where it begins in values_text.
 * Out of memory shows in `no_memory`. */
size_t values_add(struct values *v, addr_t object, const char *name);
const char *values_text(const struct values *v, size_t at); /* good until the next values_add */

/* ---- for the writers ---- */

void values_put(struct values *v, const char *text);
void values_put_bytes(struct values *v, const char *bytes, size_t len);
__attribute__((format(printf, 2, 3))) void values_printf(struct values *v, const char *format, ...);

/* Bytes that the present value may still take; 0 when it is time to end. */
size_t values_room(const struct values *v);

/* An object within another one. */
void values_write(struct values *v, addr_t object);
/* The same, masked when `name` calls for that. */
void values_write_named(struct values *v, const char *name, addr_t object);

/* Around the items of a container. False when it is within itself, or too deep: it is not to be looked into. */
bool values_enter(struct values *v, addr_t object);
void values_leave(struct values *v);
/* Before each item: a comma but for the first; or false, and dots, when there is no more room. */
bool values_next(struct values *v, bool *first);

int values_read(struct values *v, addr_t addr, void *buf, size_t len);
int values_word(struct values *v, addr_t addr, addr_t *ret);
/* A C string of the target, cut at `size`, as UTF-8. */
int values_c_string(struct values *v, addr_t addr, char *buf, size_t size);

/* The type of an object, or what is known of a type; NULL when it cannot be read. Good until values_begin. */
const struct value_type *values_type_of(struct values *v, addr_t object);
const struct value_type *values_type(struct values *v, addr_t type);
bool values_is_heap_type(const struct value_type *t);
/* True when the type or one it derives from is called `name`. */
bool values_derives(struct values *v, const struct value_type *t, const char *name);
/* The name behind the last dot. */
const char *values_short_name(const struct value_type *t);
/* `<Class at 0x…>` */
void values_write_plain(struct values *v, addr_t object, const struct value_type *t);

#endif
