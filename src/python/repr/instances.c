/*
 * Plain objects, exceptions, enum members and classes. The writer of `object` handles every type that has
 * no row of its own in repr.c.
 */
#include "python/repr/instances.h"

#include "base/err.h"
#include "python/objects.h"
#include "python/repr/containers.h"
#include "python/repr/str.h"

#include <inttypes.h>
#include <string.h>

#define MEMBERS_MAX 64
#define BASES_MAX   16
#define T_OBJECT    6 /* structmember.h; descrobject.h from 3.12 on */
#define T_OBJECT_EX 16

/* ---- attributes ---- */

struct attributes {
    struct repr *v;
    bool first;
    const char *prefix; /* text before the first attribute */
};

static bool put_attribute(struct attributes *a, const char *name, addr_t value)
{
    if (a->first)
        repr_put(a->v, a->prefix);
    if (!repr_next(a->v, &a->first))
        return false;
    repr_put(a->v, name);
    repr_put(a->v, "=");
    repr_write_named(a->v, name, value);
    return true;
}

static bool visit_attribute(const struct python *py, addr_t key, addr_t value, void *arg)
{
    struct attributes *a = arg;
    char name[REPR_KEY_MAX];

    (void)py;
    return !str_read_key(a->v, key, name) || put_attribute(a, name, value);
}

/* PyMemberDef: the __slots__ of a class, or the attributes of a C type. */
struct member {
    addr_t name;
    int32_t type, pad;
    uint64_t offset, flags, doc;
};

static bool put_members(struct attributes *a, addr_t object, const struct repr_type *t)
{
    struct member m;
    char name[REPR_NAME_MAX];
    addr_t value;

    for (size_t i = 0; t->members && i < MEMBERS_MAX; i++) {
        if (repr_read(a->v, t->members + i * sizeof(m), &m, sizeof(m)) < 0 || !m.name)
            return true;
        if ((m.type != T_OBJECT && m.type != T_OBJECT_EX) || m.offset > 1 << 20 ||
            repr_word(a->v, object + m.offset, &value) < 0 || !value ||
            repr_c_string(a->v, m.name, name, sizeof(name)) < 0 || strncmp(name, "__", 2) == 0)
            continue;
        if (!put_attribute(a, name, value))
            return false;
    }
    return true;
}

/* Looks up one of the members that a type defines itself: its offset in the object. */
static bool find_member(struct repr *v, const struct repr_type *t, const char *name, uint64_t *ret)
{
    char text[REPR_NAME_MAX];
    struct member m;

    for (size_t i = 0; t->members && i < MEMBERS_MAX; i++) {
        if (repr_read(v, t->members + i * sizeof(m), &m, sizeof(m)) < 0 || !m.name)
            return false;
        if ((m.type == T_OBJECT || m.type == T_OBJECT_EX) && m.offset <= 1 << 20 &&
            repr_c_string(v, m.name, text, sizeof(text)) == 0 && strcmp(text, name) == 0) {
            *ret = m.offset;
            return true;
        }
    }
    return false;
}

int instances_slot(struct repr *v, const struct repr_type *t, const char *name, uint64_t *ret)
{
    for (size_t i = 0; t && i < BASES_MAX; i++) {
        if (find_member(v, t, name, ret))
            return 0;
        t = t->base ? repr_type(v, t->base) : NULL;
    }
    return ERR_READ;
}

int instances_get(struct repr *v, addr_t object, const char *name, addr_t *ret)
{
    uint64_t offset;

    if (instances_slot(v, repr_type_of(v, object), name, &offset) == 0 && repr_word(v, object + offset, ret) == 0 &&
        *ret)
        return 0;
    return objects_attr_get(&v->py, object, name, ret);
}

static void put_attributes(struct repr *v, addr_t object, const struct repr_type *t, const char *prefix)
{
    struct attributes a = {.v = v, .first = true, .prefix = prefix};
    const struct repr_type *bases[BASES_MAX];
    size_t n = 0;

    if (!repr_enter(v, object))
        return;
    /* Members of the bases come first, since those are usually set first. */
    for (; t && n < BASES_MAX; t = t->base ? repr_type(v, t->base) : NULL)
        bases[n++] = t;
    while (n > 0 && put_members(&a, object, bases[n - 1]))
        n--;
    if (repr_room(v))
        objects_attrs_walk(&v->py, object, visit_attribute, &a);
    repr_leave(v);
}

int instances_write_object(struct repr *v, addr_t object, const struct repr_type *t)
{
    repr_printf(v, "<%s at 0x%" PRIx64, t->name, object);
    if (v->limits.attributes)
        put_attributes(v, object, t, ": ");
    repr_put(v, ">");
    return 0;
}

/* namespace(a=1): tp_dictoffset gives the offset of ns_dict (namespaceobject.c) */
int instances_write_namespace(struct repr *v, addr_t object, const struct repr_type *t)
{
    struct attributes a = {.v = v, .first = true, .prefix = ""};
    int r;

    repr_printf(v, "%s(", t->exact ? "namespace" : t->name);
    if (!repr_enter(v, object)) {
        repr_put(v, "...)");
        return 0;
    }
    r = objects_attrs_walk(&v->py, object, visit_attribute, &a);
    repr_leave(v);
    repr_put(v, ")");
    return r;
}

/* ---- exceptions ---- */

/* args at 24 (pyerrors.h). Up to 3.6 repr() puts a comma after a single argument. */
int instances_write_exception(struct repr *v, addr_t object, const struct repr_type *t)
{
    bool first = true;
    uint64_t n;
    addr_t args, items;
    int r = repr_word(v, object + 24, &args);

    if (r == 0)
        r = containers_tuple(v, args, &n, &items);
    if (r < 0)
        return r;
    repr_printf(v, "%s(", repr_short_name(t));
    if (!repr_enter(v, object)) {
        repr_put(v, "...)");
        return 0;
    }
    r = containers_put_items(v, items, n, &first);
    repr_put(v, n == 1 && v->py.layout.repr_flags & REPR_ARGS_COMMA ? ",)" : ")");
    repr_leave(v);
    return r;
}

/* ---- enum ---- */

bool instances_is_enum(struct repr *v, const struct repr_type *t)
{
    const struct repr_type *meta;

    if (!repr_is_heap_type(t) || !t->meta || !(meta = repr_type(v, t->meta)))
        return false;
    return repr_is_heap_type(meta) && (repr_derives(v, meta, "EnumType") || repr_derives(v, meta, "EnumMeta"));
}

int instances_write_enum(struct repr *v, addr_t object, const struct repr_type *t)
{
    char text[REPR_KEY_MAX];
    addr_t name, value;

    if (objects_attr_get(&v->py, object, "_name_", &name) < 0 ||
        objects_attr_get(&v->py, object, "_value_", &value) < 0 || !repr_enter(v, object))
        return ERR_READ;
    repr_printf(v, "<%s", t->name);
    if (str_read_key(v, name, text)) {
        repr_put(v, ".");
        repr_put(v, text);
    }
    repr_put(v, ": ");
    repr_write(v, value);
    repr_put(v, ">");
    repr_leave(v);
    return 0;
}

/* ---- classes ---- */

/* The name of a heap type: "module.Outer.Inner". ht_qualname precedes ht_cached_keys in all versions. */
static int put_heap_name(struct repr *v, const struct repr_type *t)
{
    const struct layout *l = &v->py.layout;
    char text[REPR_KEY_MAX];
    addr_t name;

    if (strchr(t->name, '.')) { /* made by C code: the name includes the module */
        repr_put(v, t->name);
        return 0;
    }
    if (t->dict && objects_dict_get(&v->py, t->dict, "__module__", &name) == 0 && str_read_key(v, name, text) &&
        strcmp(text, "builtins") != 0) {
        repr_put(v, text);
        repr_put(v, ".");
    }
    if (!l->ty_cached_keys) { /* 2.7 */
        repr_put(v, t->name);
        return 0;
    }
    if (repr_word(v, t->addr + (addr_t)l->ty_cached_keys - 8, &name) < 0)
        return ERR_READ;
    return str_put_name(v, name);
}

int instances_write_class(struct repr *v, addr_t object, const struct repr_type *t)
{
    const struct repr_type *type = repr_type(v, object);
    bool heap;
    int r = 0;

    (void)t;
    if (!type)
        return ERR_READ;
    heap = repr_is_heap_type(type);
    repr_put(v, !heap && v->py.layout.repr_flags & REPR_PY2 ? "<type '" : "<class '");
    if (heap)
        r = put_heap_name(v, type);
    else
        repr_put(v, type->name);
    repr_put(v, "'>");
    return r;
}

/* ---- old-style classes of 2.7 (classobject.h) ---- */

/* cl_dict at 24, cl_name at 32 */
static int put_old_style_name(struct repr *v, addr_t class)
{
    char text[REPR_KEY_MAX];
    addr_t dict, name;
    int r = repr_word(v, class + 24, &dict);

    if (r == 0 && objects_dict_get(&v->py, dict, "__module__", &name) == 0 && str_read_key(v, name, text)) {
        repr_put(v, text);
        repr_put(v, ".");
    }
    if (r == 0)
        r = repr_word(v, class + 32, &name);
    return r < 0 ? r : str_put_name(v, name);
}

int instances_write_classobj(struct repr *v, addr_t object, const struct repr_type *t)
{
    int r;

    (void)t;
    repr_put(v, "<class ");
    r = put_old_style_name(v, object);
    repr_printf(v, " at 0x%" PRIx64 ">", object);
    return r;
}

/* in_class at 16, in_dict at 24 */
int instances_write_instance(struct repr *v, addr_t object, const struct repr_type *t)
{
    struct attributes a = {.v = v, .first = true, .prefix = ": "};
    addr_t class_and_dict[2], name;
    int r = repr_read(v, object + 16, class_and_dict, sizeof(class_and_dict));

    (void)t;
    if (r == 0)
        r = repr_word(v, class_and_dict[0] + 32, &name);
    if (r < 0)
        return r;
    repr_put(v, "<");
    r = str_put_name(v, name);
    repr_printf(v, " at 0x%" PRIx64, object);
    if (r == 0 && v->limits.attributes && repr_enter(v, object)) {
        r = objects_dict_walk(&v->py, class_and_dict[1], visit_attribute, &a);
        repr_leave(v);
    }
    repr_put(v, ">");
    return r;
}
