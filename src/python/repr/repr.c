/*
 * Converts objects of the target to text while the thread is paused.
 *
 * Whatever the memory of the target holds, the text is valid UTF-8, the number of reads is bounded by the
 * budget of the cached memory, length and depth are bounded by the limits, and an object that makes no
 * sense becomes `<Class at 0x…>` or `<unreadable>`.
 */
#include "python/repr/repr.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "python/repr/arrays.h"
#include "python/repr/callable.h"
#include "python/repr/containers.h"
#include "python/repr/datetime.h"
#include "python/repr/instances.h"
#include "python/repr/numbers.h"
#include "python/repr/secrets.h"
#include "python/repr/str.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READS_MAX    16384 /* pages; about 20 ms */
#define WORK_MAX     20000000
#define TYPES_MAX    2048
#define BASES_MAX    64
#define NESTING_MAX  48
#define TP_HEAP_TYPE (1ull << 9)
#define TEXT_MAX     ((size_t)64 * 1024 * 1024)

/* ADD A KIND OF VALUE HERE. */
static const struct repr_row rows[] = {
    {"NoneType", callable_write_none, false},
    {"bool", numbers_write_bool, false},
    {"int", numbers_write_int, true},
    {"long", numbers_write_long, true},
    {"float", numbers_write_float, true},
    {"complex", numbers_write_complex, true},
    {"decimal.Decimal", numbers_write_decimal, false},
    {"str", str_write, true},
    {"unicode", str_write_unicode, true},
    {"bytes", str_write_bytes, true},
    {"bytearray", str_write_bytearray, false},
    {"tuple", containers_write_tuple, false},
    {"list", containers_write_list, true},
    {"dict", containers_write_dict, true},
    {"frozendict", containers_write_named_dict, false},
    {"collections.OrderedDict", containers_write_ordered, false},
    {"collections.defaultdict", containers_write_defaultdict, false},
    {"set", containers_write_set, false},
    {"frozenset", containers_write_set, false},
    {"collections.deque", containers_write_deque, false},
    {"mappingproxy", containers_write_proxy, false},
    {"range", containers_write_range, false},
    {"xrange", containers_write_xrange, false},
    {"slice", containers_write_slice, false},
    {"ellipsis", callable_write_ellipsis, false},
    {"NotImplementedType", callable_write_not_implemented, false},
    {"function", callable_write_function, false},
    {"builtin_function_or_method", callable_write_builtin, false},
    {"method", callable_write_method, false},
    {"instancemethod", callable_write_method, false},
    {"method_descriptor", callable_write_descriptor, false},
    {"classmethod_descriptor", callable_write_descriptor, false},
    {"wrapper_descriptor", callable_write_descriptor, false},
    {"getset_descriptor", callable_write_descriptor, false},
    {"member_descriptor", callable_write_descriptor, false},
    {"generator", callable_write_generator, false},
    {"coroutine", callable_write_generator, false},
    {"async_generator", callable_write_generator, false},
    {"code", callable_write_code, false},
    {"module", callable_write_module, false},
    {"type", instances_write_class, false},
    {"classobj", instances_write_classobj, false},
    {"instance", instances_write_instance, false},
    {"BaseException", instances_write_exception, false},
    {"exceptions.BaseException", instances_write_exception, false},
    {"types.SimpleNamespace", instances_write_namespace, false},
    {"datetime.date", datetime_write_date, false},
    {"datetime.datetime", datetime_write, false},
    {"datetime.time", datetime_write_time, false},
    {"datetime.timedelta", datetime_write_delta, false},
    {"datetime.timezone", datetime_write_zone, false},
    {"zoneinfo.ZoneInfo", datetime_write_zoneinfo, false},
    {"array.array", arrays_write_array, false},
    {"numpy.ndarray", arrays_write_ndarray, false},
    {"numpy.dtype", arrays_write_dtype, false},
    {"numpy.generic", arrays_write_scalar, false},
    {"numpy.float64", arrays_write_scalar, false},
    {"numpy.complex128", arrays_write_scalar, false},
    {"object", instances_write_object, false},
};

static const struct repr_row *const fallback = &rows[sizeof(rows) / sizeof(rows[0]) - 1];

/* ---- text ---- */

void repr_put_bytes(struct repr *v, const char *bytes, size_t len)
{
    if (v->len + len + 1 > TEXT_MAX || grow_array((void **)&v->text, &v->cap, v->len + len + 1, 1) < 0) {
        v->no_memory = true;
        return;
    }
    memcpy(v->text + v->len, bytes, len);
    v->len += len;
    v->text[v->len] = '\0';
}

void repr_put(struct repr *v, const char *text)
{
    repr_put_bytes(v, text, strlen(text));
}

void repr_printf(struct repr *v, const char *format, ...)
{
    char text[512];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (n > 0)
        repr_put_bytes(v, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

size_t repr_room(const struct repr *v)
{
    return v->no_memory || v->len >= v->stop ? 0 : v->stop - v->len;
}

bool repr_next(struct repr *v, bool *first)
{
    if (!*first)
        repr_put(v, ", ");
    *first = false;
    if (repr_room(v))
        return true;
    repr_put(v, "...");
    return false;
}

bool repr_enter(struct repr *v, addr_t object)
{
    if (v->depth >= v->limits.depth || v->depth >= REPR_DEPTH_MAX)
        return false;
    for (size_t i = 0; i < v->depth; i++)
        if (v->path[i] == object)
            return false;
    v->path[v->depth++] = object;
    return true;
}

void repr_leave(struct repr *v)
{
    v->depth--;
}

/* ---- memory ---- */

int repr_read(struct repr *v, addr_t addr, void *buf, size_t len)
{
    return mem_read(v->py.mem, addr, buf, len);
}

int repr_word(struct repr *v, addr_t addr, addr_t *ret)
{
    return mem_read_addr(v->py.mem, addr, ret);
}

int repr_c_string(struct repr *v, addr_t addr, char *buf, size_t size)
{
    char raw[REPR_NAME_MAX / 3];
    size_t n = 0;

    if (!addr || size < 4)
        return ERR_READ;
    /* Byte by byte, since the bytes after the end may not be mapped. The pages are cached. */
    while (n < sizeof(raw) && (n + 1) * 3 < size) {
        if (repr_read(v, addr + n, raw + n, 1) < 0)
            return ERR_READ;
        if (!raw[n])
            break;
        n++;
    }
    buf[utf8_clean(raw, n, buf)] = '\0';
    return 0;
}

/* ---- types ---- */

bool repr_is_heap_type(const struct repr_type *t)
{
    return t->flags & TP_HEAP_TYPE;
}

const char *repr_short_name(const struct repr_type *t)
{
    const char *dot = strrchr(t->name, '.');

    return dot && dot[1] ? dot + 1 : t->name;
}

/* A class statement makes a heap type whose name lacks the module, so a user's class `int` must not match the row
 * `int`. A name matches if it contains a dot or belongs to a static type. */
static const struct repr_row *find_row(const struct repr_type *t)
{
    if (repr_is_heap_type(t) && !strchr(t->name, '.'))
        return NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].name, t->name) == 0)
            return &rows[i];
    return NULL;
}

/* Reads the fields of a type object and its name. */
static int type_read(struct repr *v, addr_t addr, struct repr_type *ret)
{
    const struct layout *l = &v->py.layout;
    addr_t name;

    *ret = (struct repr_type){.addr = addr};
    if (repr_word(v, addr + 8, &ret->meta) < 0 || repr_word(v, addr + (addr_t)l->ty_name, &name) < 0 ||
        repr_word(v, addr + (addr_t)l->ty_flags, &ret->flags) < 0 ||
        repr_word(v, addr + (addr_t)l->ty_members, &ret->members) < 0 ||
        repr_word(v, addr + (addr_t)l->ty_base, &ret->base) < 0 ||
        repr_word(v, addr + (addr_t)l->ty_dict, &ret->dict) < 0)
        return ERR_READ;
    return repr_c_string(v, name, ret->name, sizeof(ret->name));
}

/* Finds the row of the type, or else of its nearest base. */
static void type_find_row(struct repr *v, struct repr_type *t)
{
    struct repr_type base = *t;

    t->row = fallback;
    for (int i = 0; i < BASES_MAX; i++) {
        const struct repr_row *row = find_row(&base);

        if (row) {
            t->row = row;
            t->exact = i == 0;
            return;
        }
        if (!base.base || base.base == base.addr || type_read(v, base.base, &base) < 0)
            return;
    }
}

const struct repr_type *repr_type(struct repr *v, addr_t addr)
{
    uint64_t hash = hash_mix(0, addr);
    struct repr_type type, *t;
    size_t step = 0;
    uint32_t at;

    while ((at = hash_table_next(&v->types_by_addr, hash, &step)) != HASH_TABLE_NONE)
        if (v->types[at]->addr == addr)
            return v->types[at];
    if (!addr || addr & 7 || v->n_types == TYPES_MAX || type_read(v, addr, &type) < 0)
        return NULL;
    type_find_row(v, &type);
    t = malloc(sizeof(*t));
    if (!t || hash_table_reserve_item(&v->types_by_addr, (void **)&v->types, &v->cap_types, v->n_types,
                                      sizeof(struct repr_type *)) < 0) {
        free(t);
        v->no_memory = true;
        return NULL;
    }
    *t = type;
    v->types[v->n_types] = t;
    hash_table_add(&v->types_by_addr, hash, (uint32_t)v->n_types++);
    return t;
}

const struct repr_type *repr_type_of(struct repr *v, addr_t object)
{
    addr_t type;

    if (!object || object & 7 || repr_word(v, object + 8, &type) < 0)
        return NULL;
    return repr_type(v, type);
}

bool repr_derives(struct repr *v, const struct repr_type *t, const char *name)
{
    for (int i = 0; t && i < BASES_MAX; i++) {
        if (strcmp(t->name, name) == 0)
            return true;
        t = t->base ? repr_type(v, t->base) : NULL;
    }
    return false;
}

/* ---- values ---- */

static int write_by_row(struct repr *v, addr_t object, const struct repr_type *t)
{
    bool wraps = t->row->wraps && !t->exact;
    int r;

    if (instances_is_enum(v, t) && instances_write_enum(v, object, t) == 0)
        return 0;
    if (wraps)
        arrays_put_name(v, t), repr_put(v, "(");
    r = t->row->write(v, object, t);
    if (wraps)
        repr_put(v, ")");
    return r;
}

void repr_write(struct repr *v, addr_t object)
{
    const struct repr_type *t;
    size_t start = v->len, depth = v->depth;
    int r;

    /* Each call writes something, so the length and nesting limits bound the work even for cyclic data. */
    if (!repr_room(v) || v->nesting == NESTING_MAX) {
        repr_put(v, "...");
        return;
    }
    t = repr_type_of(v, object);
    if (!t) {
        repr_put(v, object ? "<unreadable>" : "<NULL>");
        return;
    }
    v->nesting++;
    r = write_by_row(v, object, t);
    v->nesting--;
    if (r == 0)
        return;
    v->depth = depth;
    if (v->len > start) {
        v->len = start;
        v->text[start] = '\0';
    }
    repr_printf(v, "<%s at 0x%" PRIx64 ">", t->name, object);
}

static bool is_none(struct repr *v, addr_t object)
{
    const struct repr_type *t = repr_type_of(v, object);

    return t && t->row->write == callable_write_none;
}

void repr_write_named(struct repr *v, const char *name, addr_t object)
{
    /* Show None: it is not a secret, and a missing secret is often the very problem. */
    if (!v->limits.show_secrets && name && secrets_match(name) && !is_none(v, object))
        repr_put(v, "<masked>");
    else
        repr_write(v, object);
}

size_t repr_add(struct repr *v, addr_t object, const char *name)
{
    size_t at;

    if (v->len) /* after the NUL of the previous text */
        repr_put_bytes(v, "", 1);
    at = v->len;
    v->stop = at + v->limits.chars;
    v->depth = v->nesting = 0;
    repr_put(v, "");
    repr_write_named(v, name, object);
    return at;
}

const char *repr_text(const struct repr *v, size_t at)
{
    return v->text && at <= v->len ? v->text + at : "";
}

/* ---- life cycle ---- */

static void forget_types(struct repr *v)
{
    for (size_t i = 0; i < v->n_types; i++)
        free(v->types[i]);
    hash_table_clear(&v->types_by_addr);
    v->n_types = 0;
}

void repr_begin(struct repr *v, const struct python *py, const struct repr_limits *limits)
{
    forget_types(v);
    v->py = *py;
    mem_cached_begin(v->mem, py->mem, READS_MAX);
    v->py.mem = mem_cached_mem(v->mem);
    v->limits = *limits;
    v->len = v->depth = v->stop = 0;
    v->work = WORK_MAX;
    v->max_unicode = 0;
    v->no_memory = false;
}

struct repr *repr_new(void)
{
    struct repr *v = calloc(1, sizeof(*v));

    if (!v)
        return NULL;
    v->mem = mem_cached_new();
    return v->mem ? v : repr_free(v);
}

struct repr *repr_free(struct repr *v)
{
    if (!v)
        return NULL;
    forget_types(v);
    hash_table_free(&v->types_by_addr);
    free(v->types);
    mem_cached_free(v->mem);
    free(v->text);
    free(v);
    return NULL;
}
