/*
 * Reads the local variables of frames, while the thread is paused.
 *
 * Up to 3.10 a frame has slots for co_varnames, then for co_cellvars, then for co_freevars; the latter
 * two hold cells. An argument that is also a cell variable has a slot in both, and only the cell is
 * current (ceval.c). From 3.11 on there is one list of names with one slot and one kind byte each
 * (pycore_code.h).
 */
#include "python/repr/locals.h"

#include "base/deadline.h"
#include "base/err.h"
#include "base/grow.h"
#include "python/repr/containers.h"
#include "python/strings.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS_MAX 4096
#define VARS_MAX  65536
#define TEXT_MAX  ((size_t)4 * 1024 * 1024) /* bytes of text per stack */

#define CO_VARARGS     4
#define CO_VARKEYWORDS 8
#define KIND_CELL      0x40
#define KIND_FREE      0x80

/* The limits for one value at each level of -l. */
static struct repr_limits limits_for(const struct locals_options *o)
{
    static const struct repr_limits levels[] = {
        {.chars = 256, .depth = 6}, {.chars = 2048, .depth = 8}, {.chars = 16384, .depth = 12}};
    size_t level = o->level > 3 ? 2 : o->level > 0 ? o->level - 1 : 0;
    struct repr_limits limits = levels[level];

    limits.attributes = level > 0;
    limits.show_secrets = o->show_secrets;
    return limits;
}

static int read_int(struct repr *v, addr_t code, int at, int *ret)
{
    int value = 0, r = at == NO ? 0 : repr_read(v, code + (addr_t)at, &value, sizeof(value));

    if (r == 0)
        *ret = value;
    return r;
}

/* Number of leading names that are arguments: positional, keyword-only, *args, **kwargs. */
static int count_args(struct repr *v, addr_t code, size_t *ret)
{
    const struct layout *l = &v->py.layout;
    int positional = 0, keyword = 0, flags = 0;

    if (read_int(v, code, l->co_argcount, &positional) < 0 || read_int(v, code, l->co_kwonly, &keyword) < 0 ||
        read_int(v, code, l->co_flags, &flags) < 0)
        return ERR_READ;
    if (positional < 0 || positional > SLOTS_MAX || keyword < 0 || keyword > SLOTS_MAX)
        return ERR_BOUNDS;
    *ret = (size_t)positional + (size_t)keyword + !!(flags & CO_VARARGS) + !!(flags & CO_VARKEYWORDS);
    return 0;
}

/* The object a slot refers to, or 0. Tag 3 is an int without an object; local variables do not hold those. */
static addr_t untag_slot(const struct layout *l, addr_t slot)
{
    if (!(l->repr_flags & REPR_TAGGED_LOCALS))
        return slot;
    return (slot & 3) > 1 ? 0 : slot & ~3ull;
}

/* Dereferences a cell. Before MAKE_CELL has run (3.11+) the slot holds the value itself. */
static addr_t cell_content(struct repr *v, addr_t object)
{
    const struct repr_type *t = object ? repr_type_of(v, object) : NULL;
    addr_t content;

    if (!t || strcmp(t->name, "cell") != 0 || repr_is_heap_type(t))
        return object;
    return repr_word(v, object + 16, &content) < 0 ? 0 : content;
}

/* Adds slots for the names in the tuple at `code` + `names_at`; their values start at `values`. */
static int add_slots(struct locals *l, addr_t code, int names_at, addr_t values, size_t *ret_n)
{
    struct repr *v = l->repr;
    addr_t tuple, names;
    uint64_t n;
    int r = repr_word(v, code + (addr_t)names_at, &tuple);

    if (r == 0)
        r = containers_tuple(v, tuple, &n, &names);
    if (r < 0 || n > SLOTS_MAX)
        return r < 0 ? r : ERR_BOUNDS;
    if (grow_array((void **)&l->slots, &l->cap_slots, l->n_slots + n, sizeof(*l->slots)) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        struct local_slot *slot = &l->slots[l->n_slots];

        *slot = (struct local_slot){0};
        if (repr_word(v, names + i * 8, &slot->name) < 0 || repr_word(v, values + i * 8, &slot->value) < 0)
            return ERR_READ;
        slot->value = untag_slot(&v->py.layout, slot->value);
        r = slot->value ? strings_read(&v->py, slot->name, &slot->text) : 0;
        if (r < 0)
            return r;
        l->n_slots++;
    }
    *ret_n = n;
    return 0;
}

/* 3.11+: the kind byte says which slots hold cells. */
static int deref_cells(struct locals *l, addr_t code)
{
    struct repr *v = l->repr;
    unsigned char kinds[SLOTS_MAX];
    addr_t bytes;
    int r = repr_word(v, code + (addr_t)v->py.layout.co_kinds, &bytes);

    if (r == 0)
        r = repr_read(v, bytes + (addr_t)v->py.layout.by_data, kinds, l->n_slots);
    for (size_t i = 0; r == 0 && i < l->n_slots; i++)
        if (kinds[i] & (KIND_CELL | KIND_FREE))
            l->slots[i].value = cell_content(v, l->slots[i].value);
    return r;
}

/* Up to 3.10: the slots from `first` on hold cells. A cell with the name of an argument replaces that argument. */
static int merge_cells(struct locals *l, size_t first, size_t n_args)
{
    for (size_t i = first; i < l->n_slots; i++) {
        struct local_slot *cell = &l->slots[i];

        cell->value = cell_content(l->repr, cell->value);
        for (size_t k = 0; k < n_args && k < first; k++) {
            struct local_slot *arg = &l->slots[k];

            if (arg->name != cell->name)
                continue;
            arg->value = cell->value;
            arg->text = cell->text;
            cell->value = 0;
        }
    }
    return 0;
}

static int read_slots(struct locals *l, const struct py_frame *frame)
{
    const struct layout *layout = &l->repr->py.layout;
    addr_t at = frame->addr + (addr_t)layout->fr_slots;
    size_t n_args, n, n_cells;
    int r = count_args(l->repr, frame->code, &n_args);

    l->n_slots = 0;
    if (r == 0)
        r = add_slots(l, frame->code, layout->co_varnames, at, &n);
    for (size_t i = 0; r == 0 && i < n_args && i < n; i++)
        l->slots[i].is_arg = true;
    if (r < 0)
        return r;
    if (layout->co_kinds != NO)
        return deref_cells(l, frame->code);
    r = add_slots(l, frame->code, layout->co_cellvars, at + n * 8, &n_cells);
    if (r == 0)
        r = add_slots(l, frame->code, layout->co_freevars, at + (n + n_cells) * 8, &n_cells);
    return r < 0 ? r : merge_cells(l, n, n_args);
}

/* The value of the variable in the tuple of names at `code` + `names_at`, whose slots start at `*values`; moves `*values` past them. */
static int find_slot(struct repr *v, addr_t code, int names_at, const char *name, addr_t *values, addr_t *ret)
{
    addr_t tuple, names, item;
    uint64_t n;
    int r = repr_word(v, code + (addr_t)names_at, &tuple);

    if (r == 0)
        r = containers_tuple(v, tuple, &n, &names);
    if (r < 0 || n > SLOTS_MAX)
        return r < 0 ? r : ERR_BOUNDS;
    r = ERR_READ;
    for (size_t i = 0; i < n && r < 0; i++) {
        if (repr_word(v, names + i * 8, &item) < 0 || !strings_equal(&v->py, item, name) ||
            repr_word(v, *values + i * 8, ret) < 0)
            continue;
        *ret = cell_content(v, untag_slot(&v->py.layout, *ret));
        r = *ret ? 0 : ERR_READ; /* up to 3.10, the slot of an argument that is also a cell variable is empty */
    }
    *values += n * 8;
    return r;
}

int locals_find(struct repr *v, const struct py_frame *frame, const char *name, addr_t *ret)
{
    const struct layout *l = &v->py.layout;
    int tuples[] = {l->co_varnames, l->co_cellvars, l->co_freevars};
    addr_t values = frame->addr + (addr_t)l->fr_slots;
    int r = ERR_READ;

    for (size_t i = 0; r < 0 && i < sizeof(tuples) / sizeof(tuples[0]) && tuples[i] != NO; i++)
        r = find_slot(v, frame->code, tuples[i], name, &values, ret);
    return r;
}

const char *locals_find_value(struct repr *v, const struct py_frame *frame, addr_t object)
{
    const struct layout *l = &v->py.layout;
    int tuples[] = {l->co_varnames, l->co_cellvars, l->co_freevars};
    addr_t at = frame->addr + (addr_t)l->fr_slots, tuple, names, item, value;
    const char *name;
    uint64_t n;

    for (size_t t = 0; t < sizeof(tuples) / sizeof(tuples[0]) && tuples[t] != NO; t++) {
        if (repr_word(v, frame->code + (addr_t)tuples[t], &tuple) < 0 || containers_tuple(v, tuple, &n, &names) < 0 ||
            n > SLOTS_MAX)
            return NULL;
        for (size_t i = 0; i < n; i++, at += 8)
            if (repr_word(v, at, &value) == 0 && (value = untag_slot(l, value)) != 0 &&
                (value == object || cell_content(v, value) == object) && repr_word(v, names + i * 8, &item) == 0 &&
                strings_read(&v->py, item, &name) == 0)
                return name;
    }
    return NULL;
}

static int add_vars(struct locals *l, bool args)
{
    for (size_t i = 0; i < l->n_slots; i++) {
        const struct local_slot *slot = &l->slots[i];

        if (!slot->value || slot->is_arg != args)
            continue;
        if (l->n == VARS_MAX || l->repr->len > TEXT_MAX || mem_cached_spent(l->repr->mem)) {
            l->cut = true;
            return 0;
        }
        if (grow_array((void **)&l->items, &l->cap, l->n + 1, sizeof(*l->items)) < 0)
            return ERR_NOMEM;
        l->items[l->n++] = (struct local_var){.name = slot->text,
                                              .value_at = repr_add(l->repr, slot->value, slot->text),
                                              .addr = slot->value,
                                              .is_arg = slot->is_arg};
        if (l->repr->no_memory)
            return ERR_NOMEM;
    }
    return 0;
}

int locals_read(struct locals *l, const struct python *py, const struct py_frame *frames, size_t n,
                const struct locals_options *options)
{
    struct repr_limits limits = limits_for(options);
    int r = 0;

    l->n = l->n_frames = 0;
    l->cut = false;
    if (!l->repr && !(l->repr = repr_new()))
        return ERR_NOMEM;
    if (grow_array((void **)&l->first, &l->cap_first, n + 1, sizeof(*l->first)) < 0)
        return ERR_NOMEM;
    repr_begin(l->repr, py, &limits);
    for (size_t i = 0; r == 0 && i < n; i++) {
        l->first[i] = l->n;
        if (deadline_passed()) {
            l->cut = true;
            continue;
        }
        r = read_slots(l, &frames[i]);
        if (r < 0 && r != ERR_NOMEM) { /* unreadable: leave this frame without variables */
            r = 0;
            continue;
        }
        if (r == 0)
            r = add_vars(l, true);
        if (r == 0)
            r = add_vars(l, false);
    }
    if (r < 0)
        return r;
    l->first[n] = l->n;
    l->n_frames = n;
    l->cut |= mem_cached_spent(l->repr->mem);
    return 0;
}

const char *locals_text(const struct locals *l, const struct local_var *var)
{
    return repr_text(l->repr, var->value_at);
}

void locals_drop(struct locals *l, size_t frame)
{
    size_t from = l->first[frame], n = l->first[frame + 1] - from;

    memmove(l->items + from, l->items + from + n, (l->n - from - n) * sizeof(*l->items));
    l->n -= n;
    for (size_t i = frame + 1; i <= l->n_frames; i++)
        l->first[i] -= n;
}

void locals_free(struct locals *l)
{
    repr_free(l->repr);
    free(l->items);
    free(l->first);
    free(l->slots);
    *l = (struct locals){0};
}
