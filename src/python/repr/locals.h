/*
 * The variables of a stack's frames: arguments, locals, cells and free variables, with their values as text.
 *
 *     struct locals l = {0};
 *     locals_read(&l, py, frames->items, frames->n, &(struct locals_options){.level = 1});
 *     for (size_t i = l.first[0]; i < l.first[1]; i++)        // of the innermost frame
 *         printf("%s: %s\n", l.items[i].name, locals_text(&l, &l.items[i]));
 *     locals_free(&l);
 */
#ifndef PYTHON_REPR_LOCALS_H
#define PYTHON_REPR_LOCALS_H

#include "python/frames.h"
#include "python/repr/repr.h"

struct locals_options {
    unsigned int level; /* how often -l was given: the more, the longer the values; from 2 on with attributes */
    bool show_secrets;
};

struct local_var {
    const char *name; /* interned */
    size_t value_at;
    addr_t addr; /* of the object */
    bool is_arg;
};

struct local_slot {
    addr_t name, value;
    const char *text; /* the name, interned */
    bool is_arg;
};

/* Reused from one stack to the next. Zeroed at first. */
struct locals {
    struct local_var *items; /* of all frames, the innermost frame's first; in each its arguments first */
    size_t n, cap;
    size_t *first; /* where each frame's begin; one more for the end */
    size_t n_frames, cap_first;
    struct local_slot *slots; /* of the present frame */
    size_t n_slots, cap_slots;
    struct repr *values;
    bool cut; /* there was more than is read of one stack */
};

/* Reads the variables of `n` frames, whose thread is kept still. A frame whose variables cannot be read has none.
 * 0 or ERR_NOMEM. */
int locals_read(struct locals *l, const struct python *py, const struct py_frame *frames, size_t n,
                const struct locals_options *options);

/* Good until the next locals_read. */
const char *locals_text(const struct locals *l, const struct local_var *var);

/* Takes the variables of a frame away. */
void locals_drop(struct locals *l, size_t frame);

void locals_free(struct locals *l);

#endif
