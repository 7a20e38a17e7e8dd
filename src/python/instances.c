/*
 * Plain objects, exceptions and classes -> text. Called by values.c; the writer of `object` is the one for all types
 * that no other row of values.c knows.
 */
#include "python/instances.h"

#include "base/err.h"
#include "python/containers.h"
#include "python/objects.h"
#include "python/texts.h"

#include <inttypes.h>
#include <string.h>

#define MEMBERS_MAX 64
#define BASES_MAX   16
#define T_OBJECT    6 /* structmember.h, from 3.12 on descrobject.h */
#define T_OBJECT_EX 16

/* ---- attributes ---- */

struct attributes {
    struct values *v;
    bool first;
    const char *lead; /* before the first */
};

static bool put_attribute(struct attributes *a, const char *name, addr_t value)
{
    if (a->first)
        values_put(a->v, a->lead);
    if (!values_next(a->v, &a->first))
        return false;
    values_put(a->v, name);
    values_put(a->v, "=");
    values_write_named(a->v, name, value);
    return true;
}

static bool visit_attribute(const struct python *py, addr_t key, addr_t value, void *arg)
{
    struct attributes *a = arg;
    char name[VALUES_KEY_MAX];

    (void)py;
    return !texts_read_key(a->v, key, name) || put_attribute(a, name, value);
}

/* PyMemberDef: __slots__ of a class, and what types of C offer as attributes. */
struct member {
    addr_t name;
    int32_t type, pad;
    uint64_t offset, flags, doc;
};

static bool put_members(struct attributes *a, addr_t object, const struct value_type *t)
{
    struct member m;
    char name[VALUES_NAME_MAX];
    addr_t value;

    for (size_t i = 0; t->members && i < MEMBERS_MAX; i++) {
        if (values_read(a->v, t->members + i * sizeof(m), &m, sizeof(m)) < 0 || !m.name)
            return true;
        if ((m.type != T_OBJECT && m.type != T_OBJECT_EX) || m.offset > 1 << 20 ||
            values_word(a->v, object + m.offset, &value) < 0 || !value ||
            values_c_string(a->v, m.name, name, sizeof(name)) < 0 || strncmp(name, "__", 2) == 0)
            continue;
        if (!put_attribute(a, name, value))
            return false;
    }
    return true;
}

/* Slots of the bases come first, as they are set first. */
static void put_all_members(struct attributes *a, addr_t object, const struct value_type *t)
{
    const struct value_type *chain[BASES_MAX];
    size_t n = 0;

    for (; t && n < BASES_MAX; t = t->base ? values_type(a->v, t->base) : NULL)
        chain[n++] = t;
    while (n > 0)
        if (!put_members(a, object, chain[--n]))
            return;
}

static void put_attributes(struct values *v, addr_t object, const struct value_type *t, const char *lead)
{
    struct attributes a = {.v = v, .first = true, .lead = lead};

    if (!values_enter(v, object))
        return;
    put_all_members(&a, object, t);
    if (values_room(v))
        objects_attrs_walk(&v->py, object, visit_attribute, &a);
    values_leave(v);
}

int instances_write_object(struct values *v, addr_t object, const struct value_type *t)
{
    values_printf(v, "<%s at 0x%" PRIx64, t->name, object);
    if (v->limits.attributes)
        put_attributes(v, object, t, ": ");
    values_put(v, ">");
    return 0;
}

/* namespace(a=1): ns_dict is where tp_dictoffset says (namespaceobject.c) */
int instances_write_namespace(struct values *v, addr_t object, const struct value_type *t)
{
    struct attributes a = {.v = v, .first = true, .lead = ""};
    int r;

    values_printf(v, "%s(", t->exact ? "namespace" : t->name);
    if (!values_enter(v, object)) {
        values_put(v, "...)");
        return 0;
    }
    r = objects_attrs_walk(&v->py, object, visit_attribute, &a);
    values_leave(v);
    values_put(v, ")");
    return r;
}

/* ---- exceptions ---- */

/* args at 24 (pyerrors.h). One argument was followed by a comma up to 3.6. */
int instances_write_exception(struct values *v, addr_t object, const struct value_type *t)
{
    bool first = true;
    uint64_t n;
    addr_t args, items;
    int r = values_word(v, object + 24, &args);

    if (r == 0)
        r = containers_tuple(v, args, &n, &items);
    if (r < 0)
        return r;
    values_printf(v, "%s(", values_short_name(t));
    if (!values_enter(v, object)) {
        values_put(v, "...)");
        return 0;
    }
    r = containers_put_items(v, items, n, &first);
    values_put(v, n == 1 && v->py.layout.reprs & REPR_ARGS_COMMA ? ",)" : ")");
    values_leave(v);
    return r;
}

/* ---- enum ---- */

bool instances_is_enum(struct values *v, const struct value_type *t)
{
    const struct value_type *meta;

    if (!values_is_heap_type(t) || !t->meta || !(meta = values_type(v, t->meta)))
        return false;
    return values_is_heap_type(meta) && (values_derives(v, meta, "EnumType") || values_derives(v, meta, "EnumMeta"));
}

int instances_write_enum(struct values *v, addr_t object, const struct value_type *t)
{
    char text[VALUES_KEY_MAX];
    addr_t name, value;

    if (objects_attr_get(&v->py, object, "_name_", &name) < 0 ||
        objects_attr_get(&v->py, object, "_value_", &value) < 0 || !values_enter(v, object))
        return ERR_READ;
    values_printf(v, "<%s", t->name);
    if (texts_read_key(v, name, text)) {
        values_put(v, ".");
        values_put(v, text);
    }
    values_put(v, ": ");
    values_write(v, value);
    values_put(v, ">");
    values_leave(v);
    return 0;
}

/* ---- classes ---- */

/* Where a class statement made it: "module.Outer.Inner". ht_qualname lies before ht_cached_keys in all versions. */
static int put_heap_name(struct values *v, const struct value_type *t)
{
    const struct layout *l = &v->py.layout;
    char text[VALUES_KEY_MAX];
    addr_t name;

    if (strchr(t->name, '.')) { /* made from C, with its module */
        values_put(v, t->name);
        return 0;
    }
    if (t->dict && objects_dict_get(&v->py, t->dict, "__module__", &name) == 0 && texts_read_key(v, name, text) &&
        strcmp(text, "builtins") != 0) {
        values_put(v, text);
        values_put(v, ".");
    }
    if (!l->ty_cached_keys) { /* 2.7 */
        values_put(v, t->name);
        return 0;
    }
    if (values_word(v, t->addr + (addr_t)l->ty_cached_keys - 8, &name) < 0)
        return ERR_READ;
    return texts_put_name(v, name);
}

int instances_write_class(struct values *v, addr_t object, const struct value_type *t)
{
    const struct value_type *type = values_type(v, object);
    bool heap;
    int r = 0;

    (void)t;
    if (!type)
        return ERR_READ;
    heap = values_is_heap_type(type);
    values_put(v, !heap && v->py.layout.reprs & REPR_2 ? "<type '" : "<class '");
    if (heap)
        r = put_heap_name(v, type);
    else
        values_put(v, type->name);
    values_put(v, "'>");
    return r;
}

/* ---- classes of 2.7 that do not derive from object (classobject.h) ---- */

/* cl_dict at 24, cl_name at 32 */
static int put_old_name(struct values *v, addr_t class)
{
    char text[VALUES_KEY_MAX];
    addr_t dict, name;
    int r = values_word(v, class + 24, &dict);

    if (r == 0 && objects_dict_get(&v->py, dict, "__module__", &name) == 0 && texts_read_key(v, name, text)) {
        values_put(v, text);
        values_put(v, ".");
    }
    if (r == 0)
        r = values_word(v, class + 32, &name);
    return r < 0 ? r : texts_put_name(v, name);
}

int instances_write_classobj(struct values *v, addr_t object, const struct value_type *t)
{
    int r;

    (void)t;
    values_put(v, "<class ");
    r = put_old_name(v, object);
    values_printf(v, " at 0x%" PRIx64 ">", object);
    return r;
}

/* in_class at 16, in_dict at 24 */
int instances_write_instance(struct values *v, addr_t object, const struct value_type *t)
{
    struct attributes a = {.v = v, .first = true, .lead = ": "};
    addr_t class_and_dict[2], name;
    int r = values_read(v, object + 16, class_and_dict, sizeof(class_and_dict));

    (void)t;
    if (r == 0)
        r = values_word(v, class_and_dict[0] + 32, &name);
    if (r < 0)
        return r;
    values_put(v, "<");
    r = texts_put_name(v, name);
    values_printf(v, " at 0x%" PRIx64, object);
    if (r == 0 && v->limits.attributes && values_enter(v, object)) {
        r = objects_dict_walk(&v->py, class_and_dict[1], visit_attribute, &a);
        values_leave(v);
    }
    values_put(v, ">");
    return r;
}
