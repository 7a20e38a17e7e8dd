/*
 * Objects that stand for code -> text such as `<function f at 0x7f…>`. Called by values.c.
 * Offsets that are given as numbers are the same in 2.7 and 3.6 to 3.15; the others are in the layout.
 */
#include "python/calls.h"

#include "base/err.h"
#include "python/objects.h"
#include "python/texts.h"

#include <inttypes.h>
#include <string.h>

int calls_write_none(struct values *v, addr_t object, const struct value_type *t)
{
    (void)object, (void)t;
    values_put(v, "None");
    return 0;
}

int calls_write_ellipsis(struct values *v, addr_t object, const struct value_type *t)
{
    (void)object, (void)t;
    values_put(v, "Ellipsis");
    return 0;
}

int calls_write_not_implemented(struct values *v, addr_t object, const struct value_type *t)
{
    (void)object, (void)t;
    values_put(v, "NotImplemented");
    return 0;
}

/* A str at `at` of the object. */
static int put_name_at(struct values *v, addr_t object, int at)
{
    addr_t name;
    int r = values_word(v, object + (addr_t)at, &name);

    return r < 0 ? r : texts_put_name(v, name);
}

int calls_write_function(struct values *v, addr_t object, const struct value_type *t)
{
    int r;

    (void)t;
    values_put(v, "<function ");
    r = put_name_at(v, object, v->py.layout.fu_name);
    values_printf(v, " at 0x%" PRIx64 ">", object);
    return r;
}

/* m_ml at 16, whose first member is the name; m_self at 24 (methodobject.h) */
int calls_write_builtin(struct values *v, addr_t object, const struct value_type *t)
{
    char name[VALUES_NAME_MAX];
    addr_t def_and_self[2], text;
    const struct value_type *of;
    int r = values_read(v, object + 16, def_and_self, sizeof(def_and_self));

    (void)t;
    if (r == 0)
        r = values_word(v, def_and_self[0], &text);
    if (r == 0)
        r = values_c_string(v, text, name, sizeof(name));
    if (r < 0)
        return r;
    of = def_and_self[1] ? values_type_of(v, def_and_self[1]) : NULL;
    if (!of || of->row->write == calls_write_module)
        values_printf(v, "<built-in function %s>", name);
    else
        values_printf(v, "<built-in method %s of %s object at 0x%" PRIx64 ">", name, of->name, def_and_self[1]);
    return 0;
}

/* im_func at 16, im_self at 24 (classobject.h) */
int calls_write_method(struct values *v, addr_t object, const struct value_type *t)
{
    addr_t func_and_self[2];
    const struct value_type *func;
    int r = values_read(v, object + 16, func_and_self, sizeof(func_and_self));

    (void)t;
    if (r < 0)
        return r;
    func = values_type_of(v, func_and_self[0]);
    values_put(v, func_and_self[1] ? "<bound method " : "<unbound method ");
    if (!func || func->row->write != calls_write_function)
        values_put(v, "?");
    else if ((r = put_name_at(v, func_and_self[0], v->py.layout.fu_name)) < 0)
        return r;
    if (func_and_self[1]) {
        values_put(v, " of ");
        values_write(v, func_and_self[1]);
    }
    values_put(v, ">");
    return 0;
}

/* d_type at 16, d_name at 24 (descrobject.h) */
int calls_write_descriptor(struct values *v, addr_t object, const struct value_type *t)
{
    static const char *const words[][2] = {
        {"wrapper_descriptor", "slot wrapper"}, {"getset_descriptor", "attribute"}, {"member_descriptor", "member"}};
    const char *word = "method";
    const struct value_type *of;
    addr_t type;
    int r = values_word(v, object + 16, &type);

    if (r < 0 || !(of = values_type(v, type)))
        return ERR_READ;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(t->name, words[i][0]) == 0)
            word = words[i][1];
    values_printf(v, "<%s '", word);
    r = put_name_at(v, object, 24);
    values_printf(v, "' of '%s' objects>", of->name);
    return r;
}

/* 2.7: no name; the code object is at 32 (genobject.h). */
static int put_generator_name(struct values *v, addr_t object)
{
    const struct layout *l = &v->py.layout;
    addr_t code;
    int r;

    if (l->ge_name != NO)
        return put_name_at(v, object, l->ge_name);
    r = values_word(v, object + 32, &code);
    return r < 0 ? r : put_name_at(v, code, l->co_name);
}

int calls_write_generator(struct values *v, addr_t object, const struct value_type *t)
{
    int r;

    values_printf(v, "<%s object ", t->name);
    r = put_generator_name(v, object);
    values_printf(v, " at 0x%" PRIx64 ">", object);
    return r;
}

int calls_write_code(struct values *v, addr_t object, const struct value_type *t)
{
    const struct layout *l = &v->py.layout;
    int line, r = values_read(v, object + (addr_t)l->co_firstline, &line, sizeof(line));

    (void)t;
    if (r < 0)
        return r;
    values_put(v, "<code object ");
    r = put_name_at(v, object, l->co_name);
    if (r < 0)
        return r;
    values_printf(v, " at 0x%" PRIx64 ", file \"", object);
    r = put_name_at(v, object, l->co_filename);
    values_printf(v, "\", line %d>", line);
    return r;
}

/* md_dict at 16 (moduleobject.c) */
int calls_write_module(struct values *v, addr_t object, const struct value_type *t)
{
    addr_t dict, name;
    int r = values_word(v, object + 16, &dict);

    (void)t;
    if (r == 0)
        r = objects_dict_get(&v->py, dict, "__name__", &name);
    if (r < 0)
        return r;
    values_put(v, "<module ");
    values_write(v, name);
    values_put(v, ">");
    return 0;
}
