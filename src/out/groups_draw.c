/*
 * Groups -> a profile: the width of a frame is the number of threads that are in it.
 */
#include "base/err.h"
#include "base/grow.h"
#include "base/intern.h"
#include "out/groups_private.h"

#include <stdlib.h>
#include <string.h>

struct groups_picture {
    struct intern *texts;
    struct func **lists; /* arrays of functions that the profile refers to */
    size_t n_lists, cap_lists;
    struct proc_info process;
};

struct drawing {
    struct groups *g;
    struct groups_picture *keep;
    struct profile *p;
    struct frame *frames;
    size_t cap_frames;
    uint64_t key;
};

struct groups_picture *groups_picture_free(struct groups_picture *p)
{
    if (!p)
        return NULL;
    for (size_t i = 0; i < p->n_lists; i++)
        free(p->lists[i]);
    free(p->lists);
    intern_free(p->texts);
    free(p);
    return NULL;
}

/* What `write` prints, interned. NULL: out of memory. */
static const char *printed(struct drawing *d, const struct group_section *s, const struct group_thread *const *threads,
                           size_t n)
{
    char *text = NULL;
    const char *kept = NULL;
    size_t len = 0;
    FILE *mem = open_memstream(&text, &len);
    int r = 0;

    if (!mem)
        return NULL;
    if (s)
        groups_put_section(s, mem);
    else
        r = groups_put_names(d->g, threads, n, GROUP_NAMES_SHOWN, mem);
    if (fclose(mem) == 0 && r == 0)
        kept = intern_bytes(d->keep->texts, text, len);
    free(text);
    return kept;
}

/* `n` functions that live as long as the picture. NULL: out of memory. */
static struct func *new_funcs(struct drawing *d, size_t n)
{
    struct groups_picture *keep = d->keep;
    struct func *funcs;

    if (grow_array((void **)&keep->lists, &keep->cap_lists, keep->n_lists + 1, sizeof(*keep->lists)) < 0)
        return NULL;
    funcs = calloc(n + 1, sizeof(*funcs));
    if (funcs)
        keep->lists[keep->n_lists++] = funcs;
    return funcs;
}

static int add_step(struct drawing *d, const struct group_view *view, const struct group_step *s, struct func *label,
                    const struct func *section)
{
    size_t depth = d->g->nodes[s->node].depth, n = 0;
    struct trace trace = {.process = &d->keep->process, .thread_id = 1, .key = ++d->key, .n_frames = depth + 2};
    int r = grow_array((void **)&d->frames, &d->cap_frames, depth + 2, sizeof(*d->frames));

    label->name = r == 0 ? printed(d, NULL, view->threads + s->first, s->self) : NULL;
    if (!label->name)
        return ERR_NOMEM;
    label->filename = label->short_filename = "";
    d->frames[n++] = (struct frame){.func = label};
    for (uint32_t node = s->node; node != 0; node = d->g->nodes[node].parent) {
        const struct group_frame *f = &d->g->frames[d->g->nodes[node].frame];

        d->frames[n++] = (struct frame){.func = &f->func, .line = f->line};
    }
    d->frames[n] = (struct frame){.func = section};
    trace.frames = d->frames;
    for (uint32_t i = 0; i < s->self && r == 0; i++)
        r = profile_add(d->p, &trace, 0);
    return r;
}

static int add_section(struct drawing *d, size_t at)
{
    struct group_view view;
    struct func *funcs;
    int r = groups_view(d->g, at, d->g->rounds, &view);

    if (r < 0)
        return r;
    funcs = new_funcs(d, view.n_steps + 1);
    if (funcs)
        funcs[0] =
            (struct func){.name = printed(d, &d->g->sections[at], NULL, 0), .filename = "", .short_filename = ""};
    r = funcs && funcs[0].name ? 0 : ERR_NOMEM;
    for (size_t i = 0; i < view.n_steps && r == 0; i++)
        if (view.steps[i].self)
            r = add_step(d, &view, &view.steps[i], &funcs[i + 1], &funcs[0]);
    group_view_free(&view);
    return r;
}

int groups_draw(struct groups *g, bool timeline, struct profile **ret, struct groups_picture **keep)
{
    struct drawing d = {.g = g, .keep = calloc(1, sizeof(*d.keep))};
    int r = ERR_NOMEM;

    if (d.keep) {
        d.keep->process = (struct proc_info){.command = "", .executable = "", .version_suffix = ""};
        d.keep->texts = intern_new();
        d.p = profile_new(&(struct profile_options){.interval_ns = 1000000000, .timeline = timeline});
    }
    if (d.keep && d.keep->texts && d.p)
        r = 0;
    for (size_t i = 0; i < g->n_sections && r == 0; i++)
        if (g->sections[i].n_threads)
            r = add_section(&d, i);
    if (r == 0 && profile_is_full(d.p))
        r = profile_enforce_limits(d.p);
    free(d.frames);
    if (r < 0) {
        profile_free(d.p);
        groups_picture_free(d.keep);
        return r;
    }
    *ret = d.p;
    *keep = d.keep;
    return 0;
}
