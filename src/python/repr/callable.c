/*
 * Functions, methods, generators, code objects, modules and the singletons: `<function f at 0x7f…>`.
 * Literal offsets are the same in 2.7 and 3.6 to 3.15; the others come from the layout.
 */
#include "python/repr/callable.h"

#include "base/err.h"
#include "python/objects.h"
#include "python/repr/str.h"

#include <inttypes.h>
#include <string.h>

int callable_write_none(struct repr *v, addr_t object, const struct repr_type *t)
{
    (void)object, (void)t;
    repr_put(v, "None");
    return 0;
}

int callable_write_ellipsis(struct repr *v, addr_t object, const struct repr_type *t)
{
    (void)object, (void)t;
    repr_put(v, "Ellipsis");
    return 0;
}

int callable_write_not_implemented(struct repr *v, addr_t object, const struct repr_type *t)
{
    (void)object, (void)t;
    repr_put(v, "NotImplemented");
    return 0;
}

/* Writes the str that the pointer at `object` + `at` refers to. */
static int put_name_at(struct repr *v, addr_t object, int at)
{
    addr_t name;
    int r = repr_word(v, object + (addr_t)at, &name);

    return r < 0 ? r : str_put_name(v, name);
}

int callable_write_function(struct repr *v, addr_t object, const struct repr_type *t)
{
    int r;

    (void)t;
    repr_put(v, "<function ");
    r = put_name_at(v, object, v->py.layout.fu_name);
    repr_printf(v, " at 0x%" PRIx64 ">", object);
    return r;
}

/* m_ml at 16, whose first member is the name; m_self at 24 (methodobject.h) */
int callable_write_builtin(struct repr *v, addr_t object, const struct repr_type *t)
{
    char name[REPR_NAME_MAX];
    addr_t def_and_self[2], text;
    const struct repr_type *of;
    int r = repr_read(v, object + 16, def_and_self, sizeof(def_and_self));

    (void)t;
    if (r == 0)
        r = repr_word(v, def_and_self[0], &text);
    if (r == 0)
        r = repr_c_string(v, text, name, sizeof(name));
    if (r < 0)
        return r;
    of = def_and_self[1] ? repr_type_of(v, def_and_self[1]) : NULL;
    if (!of || of->row->write == callable_write_module)
        repr_printf(v, "<built-in function %s>", name);
    else
        repr_printf(v, "<built-in method %s of %s object at 0x%" PRIx64 ">", name, of->name, def_and_self[1]);
    return 0;
}

/* im_func at 16, im_self at 24 (classobject.h) */
int callable_write_method(struct repr *v, addr_t object, const struct repr_type *t)
{
    addr_t func_and_self[2];
    const struct repr_type *func;
    int r = repr_read(v, object + 16, func_and_self, sizeof(func_and_self));

    (void)t;
    if (r < 0)
        return r;
    func = repr_type_of(v, func_and_self[0]);
    repr_put(v, func_and_self[1] ? "<bound method " : "<unbound method ");
    if (!func || func->row->write != callable_write_function)
        repr_put(v, "?");
    else if ((r = put_name_at(v, func_and_self[0], v->py.layout.fu_name)) < 0)
        return r;
    if (func_and_self[1]) {
        repr_put(v, " of ");
        repr_write(v, func_and_self[1]);
    }
    repr_put(v, ">");
    return 0;
}

/* d_type at 16, d_name at 24 (descrobject.h) */
int callable_write_descriptor(struct repr *v, addr_t object, const struct repr_type *t)
{
    static const char *const words[][2] = {
        {"wrapper_descriptor", "slot wrapper"}, {"getset_descriptor", "attribute"}, {"member_descriptor", "member"}};
    const char *word = "method";
    const struct repr_type *of;
    addr_t type;
    int r = repr_word(v, object + 16, &type);

    if (r < 0 || !(of = repr_type(v, type)))
        return ERR_READ;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(t->name, words[i][0]) == 0)
            word = words[i][1];
    repr_printf(v, "<%s '", word);
    r = put_name_at(v, object, 24);
    repr_printf(v, "' of '%s' objects>", of->name);
    return r;
}

int callable_write_generator(struct repr *v, addr_t object, const struct repr_type *t)
{
    const struct layout *l = &v->py.layout;
    addr_t code;
    int r;

    repr_printf(v, "<%s object ", t->name);
    if (l->ge_name != NO) {
        r = put_name_at(v, object, l->ge_name);
    } else { /* 2.7: no name, but the code object at 32 (genobject.h) */
        r = repr_word(v, object + 32, &code);
        if (r == 0)
            r = put_name_at(v, code, l->co_name);
    }
    repr_printf(v, " at 0x%" PRIx64 ">", object);
    return r;
}

int callable_write_code(struct repr *v, addr_t object, const struct repr_type *t)
{
    const struct layout *l = &v->py.layout;
    int line, r = repr_read(v, object + (addr_t)l->co_firstline, &line, sizeof(line));

    (void)t;
    if (r < 0)
        return r;
    repr_put(v, "<code object ");
    r = put_name_at(v, object, l->co_name);
    if (r < 0)
        return r;
    repr_printf(v, " at 0x%" PRIx64 ", file \"", object);
    r = put_name_at(v, object, l->co_filename);
    repr_printf(v, "\", line %d>", line);
    return r;
}

/* md_dict at 16 (moduleobject.c) */
int callable_write_module(struct repr *v, addr_t object, const struct repr_type *t)
{
    addr_t dict, name;
    int r = repr_word(v, object + 16, &dict);

    (void)t;
    if (r == 0)
        r = objects_dict_get(&v->py, dict, "__name__", &name);
    if (r < 0)
        return r;
    repr_put(v, "<module ");
    repr_write(v, name);
    repr_put(v, ">");
    return 0;
}
