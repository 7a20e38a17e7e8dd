/*
 * Applies a filter to a profile: builds a second call tree from the nodes whose stacks stay.
 *
 * A parent's index is lower than its children's, so one loop carries what is known of a stack from its root to each frame, and
 * one backwards loop finds the nodes that have samples left.
 */
#include "base/err.h"
#include "base/grow.h"
#include "profile/filter_private.h"
#include "profile/profile_private.h"
#include "profile/prune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* What is known of the stack that ends at a node of the old tree, and where it ends in the new one. */
struct place {
    bool included, excluded, in_thread;
    bool wanted; /* some stack through it stays */
    struct filter_path path;
    uint32_t root;  /* new node above the outermost frame */
    uint32_t shown; /* new node of the innermost frame that is shown */
    uint32_t name;  /* the frame that stands for it, if none of its frames is the program's; NONE: none */
    uint32_t end;   /* new node of the stack */
};

struct filtering {
    struct filter *f;
    const struct profile *from;
    struct profile *to;
    bool keep_threads;
    struct filter_verdict *verdicts; /* of each frame */
    bool *is_mine;                   /* of each frame: it is shown as the program's */
    struct place *places;            /* of each node */
    struct filter_counts *counts;
};

/* ---- threads ---- */

static bool is_thread_root(const char *label)
{
    return strncmp(label, "thread (", 8) == 0 || strcmp(label, "[other threads]") == 0;
}

/* "thread (12): worker 1" -> "12" and "worker 1" */
static bool matches_thread(struct filter *f, const char *label)
{
    const char *name = NULL, *close;
    char id[24] = "";

    if (strncmp(label, "thread (", 8) != 0)
        return filter_has_thread(f, label, NULL);
    label += 8;
    close = strchr(label, ')');
    if (close != NULL && (size_t)(close - label) < sizeof(id))
        memcpy(id, label, (size_t)(close - label));
    if (close != NULL && strncmp(close, "): ", 3) == 0)
        name = close + 3;
    return filter_has_thread(f, name, id);
}

/* ---- which stacks stay ---- */

static int judge_frames(struct filtering *x)
{
    const struct profile *p = x->from;
    int r = 0;

    for (size_t i = 0; i < p->n_frames && r == 0; i++) {
        const struct profile_frame *frame = &p->frames[i];

        if (frame->label == NULL) {
            r = filter_judge(x->f, frame->func, &x->verdicts[i]);
            x->counts->has_full_paths |= frame->func->filename[0] == '/';
        } else if (is_thread_root(frame->label)) {
            x->counts->has_threads = true;
            x->verdicts[i].included = x->f->thread.n > 0 && matches_thread(x->f, frame->label);
        }
    }
    return r;
}

static bool stays(const struct filtering *x, const struct place *place)
{
    return (x->f->include.n == 0 || place->included) && !place->excluded && (x->f->thread.n == 0 || place->in_thread);
}

static void choose_stacks(struct filtering *x)
{
    const struct profile *p = x->from;
    struct filter_counts *c = x->counts;

    for (size_t i = 0; i < p->n_nodes; i++) {
        const struct profile_node *node = &p->nodes[i];
        struct place *place = &x->places[i];

        if (i > 0) {
            const struct filter_verdict *v = &x->verdicts[node->frame];
            bool is_root = p->frames[node->frame].label != NULL;

            *place = x->places[node->parent];
            place->in_thread |= is_root && v->included;
            place->included |= !is_root && v->included;
            place->excluded |= !is_root && v->excluded;
        }
        place->wanted = stays(x, place) && (node->self > 0 || node->samples > 0);
        c->total += node->self;
        c->samples += node->samples;
        c->threads_total += x->f->thread.n == 0 || place->in_thread ? node->self : 0;
        c->kept_total += place->wanted ? node->self : 0;
        c->kept_samples += place->wanted ? node->samples : 0;
    }
}

/* ---- the new tree ---- */

/* The new node of a stack that ends at this place. */
static int settle(struct filtering *x, struct place *place)
{
    int r;

    if (place->name == NONE || place->path.has_mine)
        return 0;
    r = profile_child(x->to, place->root, place->name, &place->shown);
    place->name = NONE;
    return r;
}

static int place_root(struct filtering *x, struct place *place, uint32_t frame)
{
    int r = 0;

    if (x->f->thread.n == 0 || x->keep_threads || !is_thread_root(x->from->frames[frame].label))
        r = profile_child(x->to, place->root, frame, &place->root);
    place->shown = place->root;
    return r;
}

static int place_frame(struct filtering *x, struct place *place, uint32_t frame)
{
    enum filter_step step = FILTER_SHOW;
    int r = 0;

    if (x->f->only_mine)
        step = filter_extend(&place->path, x->verdicts[frame].owner);
    if (step == FILTER_NAME)
        place->name = frame;
    if (step != FILTER_SHOW)
        return 0;
    if (place->path.has_mine)
        place->name = NONE;
    r = settle(x, place);
    if (r == 0)
        r = profile_child(x->to, place->shown, frame, &place->shown);
    x->is_mine[frame] = x->verdicts[frame].owner == LIBRARY_NOT;
    return r;
}

static int add_end(struct filtering *x, struct place *place, const struct profile_node *node)
{
    struct place end = *place; /* callees of this frame may be the program's, so it stays as it is */
    int r = settle(x, &end);

    if (r < 0)
        return r;
    place->end = end.shown;
    x->to->nodes[end.shown].self += node->self;
    x->to->nodes[end.shown].samples += node->samples;
    x->counts->library_total += place->path.has_name && !place->path.has_mine ? node->self : 0;
    return 0;
}

static int place_node(struct filtering *x, size_t i)
{
    const struct profile_node *node = &x->from->nodes[i];
    struct place *place = &x->places[i];
    const struct place *parent = &x->places[node->parent];
    int r = 0;

    if (i > 0) {
        place->path = parent->path;
        place->root = parent->root;
        place->shown = parent->shown;
        place->name = parent->name;
        r = x->from->frames[node->frame].label != NULL ? place_root(x, place, node->frame)
                                                       : place_frame(x, place, node->frame);
    }
    return r == 0 && stays(x, place) && (node->self > 0 || node->samples > 0) ? add_end(x, place, node) : r;
}

static int build_tree(struct filtering *x)
{
    const struct profile *p = x->from;
    int r = 0;

    for (size_t i = p->n_nodes; i-- > 1;)
        x->places[p->nodes[i].parent].wanted |= x->places[i].wanted;
    x->places[0].name = NONE;
    for (size_t i = 0; i < p->n_nodes && r == 0; i++)
        if (x->places[i].wanted || i == 0)
            r = place_node(x, i);
    return r;
}

/* ---- the rest of the profile ---- */

/* The frames keep their positions. */
static int copy_frames(struct filtering *x)
{
    const struct profile *p = x->from;
    int r = 0;

    for (size_t i = 0; i < p->n_frames && r == 0; i++) {
        struct profile_frame frame = p->frames[i];
        uint32_t at;

        frame.label = frame.label != NULL ? strdup(frame.label) : NULL;
        if (frame.label == NULL && p->frames[i].label != NULL)
            return ERR_NOMEM;
        r = profile_frame_append(x->to, &frame, 0, false, &at);
        if (r < 0)
            free(frame.label);
    }
    return r;
}

static int copy_spans(struct filtering *x, const struct profile_thread *from, struct profile_thread *to)
{
    to->spans = NULL;
    to->n_spans = to->cap_spans = 0;
    for (size_t i = 0; i < from->n_spans; i++) {
        const struct place *place = &x->places[from->spans[i].node];

        if (!stays(x, place))
            continue;
        if (grow_array((void **)&to->spans, &to->cap_spans, to->n_spans + 1, sizeof(*to->spans)) < 0)
            return ERR_NOMEM;
        to->spans[to->n_spans] = from->spans[i];
        to->spans[to->n_spans++].node = place->end;
        x->to->n_spans++;
    }
    return 0;
}

static int copy_threads(struct filtering *x)
{
    const struct profile *p = x->from;
    struct profile *to = x->to;
    int r = 0;

    for (size_t i = 0; i < p->n_threads && r == 0; i++) {
        if (grow_array((void **)&to->threads, &to->index->cap_threads, i + 1, sizeof(*to->threads)) < 0)
            return ERR_NOMEM;
        to->threads[i] = p->threads[i];
        to->threads[i].root = x->places[p->threads[i].root].shown;
        r = copy_spans(x, &p->threads[i], &to->threads[i]);
        to->n_threads = i + 1;
    }
    return r;
}

static void copy_numbers(struct filtering *x)
{
    const struct profile *p = x->from;

    x->to->options.threads = p->options.threads && (x->f->thread.n == 0 || x->keep_threads);
    x->to->total = x->counts->kept_total;
    x->to->samples = x->counts->kept_samples;
    x->to->duration_ns = p->duration_ns;
    x->to->pruned = p->pruned;
    x->to->coarsened = p->coarsened;
    x->to->folded = p->folded;
}

/* Only whether there is one function, or more. */
static void count_mine(struct filtering *x)
{
    const struct func *first = NULL;

    for (size_t i = 0; i < x->from->n_frames && x->counts->n_mine < 2; i++) {
        const struct func *func = x->from->frames[i].func;

        if (!x->is_mine[i])
            continue;
        if (first == NULL)
            first = func;
        if (func == first || strcmp(func->name, first->name) != 0 || strcmp(func->filename, first->filename) != 0)
            x->counts->n_mine++;
    }
}

static int fold_rare(struct filtering *x)
{
    double least = (double)x->to->total * x->f->min_percent / 100;

    return x->f->min_percent > 0 ? prune_below(x->to, (uint64_t)ceil(least)) : 0;
}

int filter_profile(struct filter *f, const struct profile *p, bool keep_threads, struct profile **ret,
                   struct filter_counts *counts)
{
    struct filtering x = {.f = f, .from = p, .keep_threads = keep_threads, .counts = counts};
    int r = ERR_NOMEM;

    *counts = (struct filter_counts){0};
    x.to = profile_new(&p->options);
    x.verdicts = calloc(p->n_frames + 1, sizeof(*x.verdicts));
    x.is_mine = calloc(p->n_frames + 1, sizeof(*x.is_mine));
    x.places = calloc(p->n_nodes, sizeof(*x.places));
    if (x.to != NULL && x.verdicts != NULL && x.is_mine != NULL && x.places != NULL)
        r = judge_frames(&x);
    if (r == 0) {
        choose_stacks(&x);
        r = copy_frames(&x);
    }
    if (r == 0)
        r = build_tree(&x);
    if (r == 0)
        r = copy_threads(&x);
    if (r == 0) {
        copy_numbers(&x);
        count_mine(&x);
        r = fold_rare(&x);
    }
    free(x.verdicts);
    free(x.is_mine);
    free(x.places);
    if (r < 0)
        profile_free(x.to);
    else
        *ret = x.to;
    return r;
}
