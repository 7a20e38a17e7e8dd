/*
 * Merges native and Python frames. Python frames that match no native frame are kept, after a marker.
 */
#include "sample/merge_frames.h"

#include "base/grow.h"

#include <stdlib.h>

#define NONE        EVAL_FRAMES_NONE
#define MAX_CFRAMES 64

void merge_frames_free(struct merged_frames *m)
{
    free(m->items);
    free(m->at);
    eval_frames_free(&m->eval_frames);
    *m = (struct merged_frames){0};
}

static int add(struct merged_frames *m, const struct frame *f)
{
    if (grow_array((void **)&m->items, &m->cap, m->n + 1, sizeof(*m->items)) < 0)
        return ERR_NOMEM;
    m->items[m->n++] = *f;
    return 0;
}

/* True for the last frame of a group, which C code entered. Up to 3.10, each frame is a group. */
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

/* 3.12 and later: the entry frame lies on the C stack of the eval function. */
static void entries_by_frame(struct merged_frames *m, const struct frames *f)
{
    size_t g = 0;

    for (size_t i = 0; i < f->n; i++)
        if (ends_group(&f->items[i]) || i + 1 == f->n)
            m->at[g++] = f->items[i].entry;
}

/* The first _PyCFrame from `cframe` outwards whose current frame is `frame`; 0: none of the next MAX_CFRAMES. */
static addr_t find_cframe(const struct native *n, const struct layout *l, addr_t cframe, addr_t frame)
{
    uint64_t current, next;

    for (int i = 0; cframe && i < MAX_CFRAMES && native_word(n, cframe + (addr_t)l->cf_frame, &current); i++) {
        if (current == frame)
            return cframe;
        if (!native_word(n, cframe + (addr_t)l->cf_previous, &next) || next <= cframe)
            return 0;
        cframe = next;
    }
    return 0;
}

/* 3.11: the _PyCFrame chain lies on the C stack. Each points to the innermost frame of its group. A new one has no
 * frame yet, and gen_throw (Objects/genobject.c) puts a generator above the frame that the eval function runs. */
static void entries_by_cframe(struct merged_frames *m, const struct frames *f, const struct native *n,
                              const struct layout *l, addr_t cframe)
{
    size_t g = 0, first = 0;

    for (size_t i = 0; i < f->n; i++) {
        uint64_t next = 0;

        if (!ends_group(&f->items[i]) && i + 1 < f->n)
            continue;
        m->at[g] = find_cframe(n, l, cframe, f->items[first].addr);
        if (m->at[g] && (!native_word(n, m->at[g] + (addr_t)l->cf_previous, &next) || next <= cframe))
            next = 0;
        if (m->at[g])
            cframe = next;
        g++;
        first = i + 1;
    }
}

/* The stacks that the frames are on. A signal handler can run on its own stack (sigaltstack). */
struct extent {
    size_t outer; /* index of the first frame on the outermost stack */
    addr_t end;   /* end of the highest stack */
};

static struct extent extent_of(const struct native *n)
{
    struct extent e = {0};

    for (size_t i = 0; i < n->stack.n; i++) {
        const struct native_frame *f = &n->stack.items[i];

        if (i && f->sp < f[-1].sp)
            e.outer = i;
        if (f->cfa > e.end)
            e.end = f->cfa;
    }
    return e;
}

/* The native frame that contains the address `entry`, from frame `i` outwards, or NONE. */
static size_t find_frame(const struct native *n, size_t i, const struct extent *e, addr_t entry)
{
    for (; entry < e->end && i < n->stack.n; i++) {
        const struct native_frame *f = &n->stack.items[i];

        if (f->sp <= entry && entry < f->cfa)
            return i;
        if (f->sp > entry && i >= e->outer)
            return NONE;
    }
    return NONE;
}

/* Turns addresses on the stack into indices of native frames. Both go outwards. */
static void place_by_address(struct merged_frames *m, size_t n_groups, const struct native *n)
{
    struct extent extent = extent_of(n);
    size_t i = 0;

    for (size_t g = 0; g < n_groups; g++) {
        m->at[g] = m->at[g] ? find_frame(n, i, &extent, m->at[g]) : NONE;
        if (m->at[g] != NONE)
            i = m->at[g] + 1;
    }
}

static int place_groups(struct merged_frames *m, size_t n_groups, const struct native *n, const struct python *py,
                        const struct frames *f, addr_t cframe)
{
    if (grow_array((void **)&m->at, &m->cap_at, n_groups + 1, sizeof(*m->at)) < 0)
        return ERR_NOMEM;
    if (py->layout.fr_owner == NO) /* each frame is a group */
        return eval_frames_match(&m->eval_frames, n, f, m->at);
    if (py->layout.fr_is_entry != NO)
        entries_by_cframe(m, f, n, &py->layout, cframe);
    else
        entries_by_frame(m, f);
    place_by_address(m, n_groups, n);
    return 0;
}

/* A group without a native frame is shown at that of the next group inwards, or of the first placed group outwards.
 * Groups outside of all placed groups stay unplaced. */
static void place_gaps(struct merged_frames *m, size_t n_groups, bool has_shims)
{
    size_t n_placed = n_groups;

    while (n_placed && m->at[n_placed - 1] == NONE)
        n_placed--;
    for (size_t g = 0; g < n_placed; g++) {
        if (m->at[g] != NONE)
            continue;
        for (size_t k = g + 1; k < n_placed && m->at[g] == NONE; k++)
            m->at[g] = m->at[g ? g - 1 : k];
        m->failed |= has_shims; /* from 3.12 on, each group has an entry frame */
    }
}

static int add_group(struct merged_frames *m, const struct frames *f, const struct frame *shown, size_t *next)
{
    while (*next < f->n) {
        size_t i = (*next)++;

        if (add(m, &shown[i]) < 0)
            return ERR_NOMEM;
        if (ends_group(&f->items[i]))
            break;
    }
    return 0;
}

/* Where a native frame is in the stack. */
struct merge_position {
    bool at_root;    /* no Python frame is further out */
    bool calls_eval; /* it called the eval function */
    /* The last native function; NULL after a Python frame. One call of a Cython function takes several C functions. */
    const struct symbols_name *previous;
};

/* Adds the functions at one native frame. */
static int add_native(struct merged_frames *m, const struct native *n, size_t i, struct merge_position *position)
{
    const struct native_chain *c = native_frame_names(n, i);
    bool all = n->sampler->options.native_all;

    for (size_t k = 0; k < c->n; k++) {
        const struct native_func *nf = &c->items[k];
        struct frame f = {.func = nf->func, .line = nf->line};

        if (!all && (nf->hidden || nf->is_eval || (position->at_root && nf->hidden_at_root) ||
                     (position->calls_eval && nf->hidden_if_calls_eval) ||
                     (position->previous && symbols_same_call(&nf->symbols_id, position->previous))))
            continue;
        if (add(m, &f) < 0)
            return ERR_NOMEM;
        position->previous = nf->symbols_id.name ? &nf->symbols_id : NULL;
    }
    position->calls_eval = false;
    return 0;
}

static int add_marker(struct merged_frames *m, struct sampler *s, const char *name)
{
    struct func key = {.name = intern_str(s->names, name),
                       .filename = intern_str(s->names, "native stack"),
                       .short_filename = intern_str(s->names, "native stack")};
    struct frame f = {.func = key.name && key.filename && key.short_filename ? sampler_func(s, &key) : NULL};

    return f.func ? add(m, &f) : ERR_NOMEM;
}

/* True if nothing is known of the stack, or if frames are missing at the root that would be shown: what is outside of the outermost Python frame is mostly the
 * interpreter's own, but generated code has callers. */
static bool misses_shown_frames(const struct native *n)
{
    bool ends_in_generated_code = n->stack.n && !n->stack.items[n->stack.n - 1].pc_entry->module->is_elf;

    return !n->captured || (!n->stack.complete && (n->sampler->options.native_all || ends_in_generated_code));
}

/* Adds the groups without a native frame, after a marker. */
static int add_unplaced_groups(struct merged_frames *m, struct sampler *s, size_t n_groups, size_t g,
                               const struct frames *f, const struct frame *shown, size_t *next)
{
    if (g == n_groups)
        return 0;
    m->failed = true;
    if (add_marker(m, s, "[missing native frames]") < 0)
        return ERR_NOMEM;
    for (; g < n_groups; g++)
        if (add_group(m, f, shown, next) < 0)
            return ERR_NOMEM;
    return 0;
}

/* Adds all groups of native frame `i`. 1 when there was one, 0 when not, or ERR_NOMEM. */
static int add_groups_at(struct merged_frames *m, size_t i, size_t n_groups, size_t *g, const struct frames *f,
                         const struct frame *shown, size_t *next)
{
    size_t before = *g;

    for (; *g < n_groups && m->at[*g] == i; ++*g)
        if (add_group(m, f, shown, next) < 0)
            return ERR_NOMEM;
    return *g > before;
}

int merge_frames(struct merged_frames *m, const struct native *n, const struct python *py, const struct frames *frames,
                 const struct frame *shown, addr_t cframe)
{
    size_t n_groups = count_groups(frames), g = 0, next = 0;
    struct merge_position position = {0};
    int r = place_groups(m, n_groups, n, py, frames, cframe);

    m->n = 0;
    m->failed = false;
    if (r == 0)
        place_gaps(m, n_groups, py->layout.fr_owner != NO && py->layout.fr_is_entry == NO);
    for (size_t i = 0; r >= 0 && i < n->stack.n; i++) {
        r = add_groups_at(m, i, n_groups, &g, frames, shown, &next);
        position.at_root = n_groups && g == n_groups;
        if (r > 0) {
            position.previous = NULL;
            position.calls_eval = true;
        }
        if (r == 0 || (r > 0 && n->sampler->options.native_all))
            r = add_native(m, n, i, &position);
    }
    if (r >= 0 && g == n_groups && misses_shown_frames(n))
        r = add_marker(m, n->sampler, "[missing native frames]");
    return r < 0 ? r : add_unplaced_groups(m, n->sampler, n_groups, g, frames, shown, &next);
}
