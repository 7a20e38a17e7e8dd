/*
 * Local variables of the frames of a stack: arguments, locals, cell and free variables, with their values
 * as text.
 */
#ifndef PYTHON_REPR_LOCALS_H
#define PYTHON_REPR_LOCALS_H

#include "python/frames.h"
#include "python/repr/repr.h"

struct locals_options {
    unsigned int level; /* how often -l was given; higher levels show longer values, and attributes from 2 on */
    bool show_secrets;
};

struct local_var {
    const char *name; /* interned */
    size_t value_at;
    addr_t addr; /* address of the object */
    bool is_arg;
};

struct local_slot {
    addr_t name, value;
    const char *text; /* the name, interned */
    bool is_arg;
};

/* Zero-initialise; can be reused for the next stack. */
struct locals {
    struct local_var *items; /* innermost frame first; within a frame, arguments first */
    size_t n, cap;
    size_t *first; /* index of the first item of each frame, plus one entry for the end */
    size_t n_frames, cap_first;
    struct local_slot *slots; /* slots of the current frame */
    size_t n_slots, cap_slots;
    struct repr *repr;
    bool cut; /* variables are missing because of a limit per stack */
};

/* Reads the variables of `n` frames of a paused thread. An unreadable frame has no variables. 0 or ERR_NOMEM. */
int locals_read(struct locals *l, const struct python *py, const struct py_frame *frames, size_t n,
                const struct locals_options *options);

/* Looks up one variable of a frame, between repr_begin() and the end of the pause. ERR_READ if it is missing. */
int locals_find(struct repr *v, const struct py_frame *frame, const char *name, addr_t *ret);

/* The name of a variable of the frame that refers to this object, interned; NULL if there is none. */
const char *locals_find_value(struct repr *v, const struct py_frame *frame, addr_t object);

/* Valid until the next locals_read(). */
const char *locals_text(const struct locals *l, const struct local_var *var);

/* Removes the variables of one frame. */
void locals_drop(struct locals *l, size_t frame);

void locals_free(struct locals *l);

#endif
