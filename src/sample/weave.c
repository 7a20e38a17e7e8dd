/*
 * The merge. Called by process.c for each stack that is delivered. What cannot be placed is kept all the same.
 */
#include "sample/weave.h"

#include "base/grow.h"

#include <stdlib.h>

#define NONE SIZE_MAX

void weave_free(struct weave *w)
{
    free(w->items);
    free(w->at);
    *w = (struct weave){0};
}

static int add(struct weave *w, const struct frame *f)
{
    if (grow_array((void **)&w->items, &w->cap, w->n + 1, sizeof(*w->items)) < 0)
        return ERR_NOMEM;
    w->items[w->n++] = *f;
    return 0;
}

/* The last frame of a group: the one that was entered from C. Up to 3.10 each was. */
static bool ends_group(const struct py_frame *f)
{
    return f->is_entry || f->is_shim_entry;
}

static size_t count_groups(const struct frames *f)
{
    size_t n = 0;

    for (size_t i = 0; i < f->n; i++)
        n += ends_group(&f->items[i]) || i + 1 == f->n;
    return n;
}

/* 3.12 and later: the frame that marks the entry lies in the C stack of the loop. */
static void entries_by_frame(struct weave *w, const struct frames *f)
{
    size_t g = 0;

    for (size_t i = 0; i < f->n; i++)
        if (ends_group(&f->items[i]) || i + 1 == f->n)
            w->at[g++] = f->items[i].entry;
}

/* 3.11: the chain of _PyCFrame lies there. Each has the innermost frame of its group; one that is new has none yet. */
static void entries_by_cframe(struct weave *w, const struct frames *f, const struct native *n, const struct layout *l,
                              addr_t cframe)
{
    size_t g = 0, first = 0;

    for (size_t i = 0; i < f->n; i++) {
        uint64_t frame = 0, next = 0;

        if (!ends_group(&f->items[i]) && i + 1 < f->n)
            continue;
        w->at[g] = 0;
        while (cframe && native_word(n, cframe + (addr_t)l->cf_frame, &frame)) {
            w->at[g] = frame == f->items[first].addr ? cframe : 0;
            if (!native_word(n, cframe + (addr_t)l->cf_previous, &next) || next <= cframe)
                next = 0;
            cframe = next;
            if (w->at[g])
                break;
        }
        g++;
        first = i + 1;
    }
}

/* What the frames are on: a signal handler can have a stack of its own. */
struct extent {
    size_t last; /* where the last of the stacks begins */
    addr_t end;  /* of the highest one */
};

static struct extent extent_of(const struct native *n)
{
    struct extent e = {0};

    for (size_t i = 0; i < n->stack.n; i++) {
        const struct native_frame *f = &n->stack.items[i];

        if (i && f->sp < f[-1].sp)
            e.last = i;
        if (f->cfa > e.end)
            e.end = f->cfa;
    }
    return e;
}

/* The native frame that an address is in, from frame `i` on, or NONE. */
static size_t find_frame(const struct native *n, size_t i, const struct extent *e, addr_t entry)
{
    for (; entry < e->end && i < n->stack.n; i++) {
        const struct native_frame *f = &n->stack.items[i];

        if (f->sp <= entry && entry < f->cfa)
            return i;
        if (f->sp > entry && i >= e->last)
            return NONE;
    }
    return NONE;
}

/* Addresses in the stack -> native frames; both go outwards. */
static void place_by_address(struct weave *w, size_t n_groups, const struct native *n)
{
    struct extent extent = extent_of(n);
    size_t i = 0;

    for (size_t g = 0; g < n_groups; g++) {
        w->at[g] = w->at[g] ? find_frame(n, i, &extent, w->at[g]) : NONE;
        if (w->at[g] != NONE)
            i = w->at[g] + 1;
    }
}

static bool is_eval(const struct native *n, size_t i)
{
    const struct native_chain *c = native_frame_names(n, i);

    for (size_t k = 0; k < c->n; k++)
        if (c->items[k].is_eval)
            return true;
    return false;
}

/* The loop runs one frame at a time: the outermost loop has the outermost frame. An inner loop that has no frame yet is
 * left over; of a stack that is cut off the innermost ones match. */
static void place_by_name(struct weave *w, size_t n_groups, const struct native *n)
{
    size_t g = 0, n_evals = 0;

    for (size_t i = 0; i < n_groups; i++)
        w->at[i] = NONE;
    for (size_t i = 0; i < n->stack.n; i++)
        n_evals += is_eval(n, i);
    if (n->stack.whole && n_evals > n_groups)
        n_evals -= n_groups;
    else
        n_evals = 0;
    for (size_t i = 0; i < n->stack.n && g < n_groups; i++)
        if (is_eval(n, i)) {
            if (n_evals)
                n_evals--;
            else
                w->at[g++] = i;
        }
}

static int place_groups(struct weave *w, size_t n_groups, const struct native *n, const struct python *py,
                        const struct frames *f, addr_t cframe)
{
    if (grow_array((void **)&w->at, &w->cap_at, n_groups + 1, sizeof(*w->at)) < 0)
        return ERR_NOMEM;
    if (py->layout.fr_owner == NO) {
        place_by_name(w, n_groups, n);
        return 0;
    }
    if (py->layout.fr_is_entry != NO)
        entries_by_cframe(w, f, n, &py->layout, cframe);
    else
        entries_by_frame(w, f);
    place_by_address(w, n_groups, n);
    return 0;
}

static int add_group(struct weave *w, const struct frames *f, const struct frame *shown, size_t *next)
{
    while (*next < f->n) {
        size_t i = (*next)++;

        if (add(w, &shown[i]) < 0)
            return ERR_NOMEM;
        if (ends_group(&f->items[i]))
            break;
    }
    return 0;
}

/* The frames of one address; `below` is where those of its callee ended: a call of a Cython function is several. */
static int add_native(struct weave *w, const struct native *n, size_t i, bool at_root, const struct symbols_name **last)
{
    const struct native_chain *c = native_frame_names(n, i);
    bool all = n->sampler->options.native_all;

    for (size_t k = 0; k < c->n; k++) {
        const struct native_func *nf = &c->items[k];
        struct frame f = {.func = nf->func, .line = nf->line};

        if (!all && (nf->hidden || nf->is_eval || (at_root && nf->hidden_at_root) ||
                     (*last && symbols_same_call(&nf->symbols_id, *last))))
            continue;
        if (add(w, &f) < 0)
            return ERR_NOMEM;
        *last = nf->symbols_id.name ? &nf->symbols_id : NULL;
    }
    return 0;
}

static int add_mark(struct weave *w, struct sampler *s, const char *name)
{
    struct func key = {.name = intern_str(s->names, name),
                       .filename = intern_str(s->names, "native stack"),
                       .short_filename = intern_str(s->names, "native stack")};
    struct frame f = {.func = key.name && key.filename && key.short_filename ? sampler_func(s, &key) : NULL};

    return f.func ? add(w, &f) : ERR_NOMEM;
}

/* Groups that have no place: after the native frames that are known, behind a mark. */
static int add_rest(struct weave *w, struct sampler *s, size_t n_groups, size_t g, const struct frames *f,
                    const struct frame *shown, size_t *next)
{
    if (g == n_groups)
        return 0;
    w->failed = true;
    if (add_mark(w, s, "[native frames are missing here]") < 0)
        return ERR_NOMEM;
    for (; g < n_groups; g++)
        if (add_group(w, f, shown, next) < 0)
            return ERR_NOMEM;
    return 0;
}

int weave_stack(struct weave *w, const struct native *n, const struct python *py, const struct frames *frames,
                const struct frame *shown, addr_t cframe)
{
    size_t n_groups = count_groups(frames), g = 0, next = 0;
    const struct symbols_name *last = NULL;
    int r = place_groups(w, n_groups, n, py, frames, cframe);

    w->n = 0;
    w->failed = false;
    for (size_t i = 0; r == 0 && i < n->stack.n; i++) {
        if (g < n_groups && w->at[g] == i) {
            r = add_group(w, frames, shown, &next);
            g++;
            last = NULL;
            if (r < 0 || !n->sampler->options.native_all)
                continue;
        }
        r = add_native(w, n, i, n_groups && g == n_groups, &last);
    }
    if (r == 0 && g == n_groups && !n->stack.whole && n->captured && n->sampler->options.native_all)
        r = add_mark(w, n->sampler, "[native frames are missing here]");
    return r < 0 ? r : add_rest(w, n->sampler, n_groups, g, frames, shown, &next);
}
