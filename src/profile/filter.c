/*
 * Judges frames, threads and single stacks. filter_profile.c applies the same rules to a whole profile.
 */
#include "profile/filter.h"

#include "base/err.h"
#include "profile/filter_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int list_init(struct filter_list *list, const struct filter_patterns *patterns)
{
    for (; list->n < patterns->n; list->n++)
        if (pattern_init(&list->items[list->n], patterns->items[list->n]) < 0)
            return ERR_NOMEM;
    return 0;
}

static void list_free(struct filter_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        pattern_free(&list->items[i]);
}

struct filter *filter_new(const struct filter_options *options)
{
    struct filter *f = calloc(1, sizeof(*f));

    if (f == NULL)
        return NULL;
    f->only_mine = options->only_mine;
    f->min_percent = options->min_percent;
    if (list_init(&f->include, &options->include) < 0 || list_init(&f->exclude, &options->exclude) < 0 ||
        list_init(&f->thread, &options->thread) < 0)
        return filter_free(f);
    return f;
}

struct filter *filter_free(struct filter *f)
{
    if (f == NULL)
        return NULL;
    list_free(&f->include);
    list_free(&f->exclude);
    list_free(&f->thread);
    pattern_texts_free(&f->texts);
    free(f);
    return NULL;
}

bool filter_is_empty(const struct filter_options *o)
{
    return !o->include.n && !o->exclude.n && !o->thread.n && !o->only_mine && !(o->min_percent > 0);
}

/* Tries all patterns, so that those without a match are known. */
static bool list_has_func(struct filter_list *list, const struct pattern_texts *texts)
{
    bool found = false;

    for (size_t i = 0; i < list->n; i++)
        if (pattern_matches_func(&list->items[i], texts))
            found = list->used[i] = true;
    return found;
}

int filter_judge(struct filter *f, const struct func *func, struct filter_verdict *ret)
{
    *ret = (struct filter_verdict){0};
    if (f->include.n + f->exclude.n > 0) {
        if (pattern_texts_set(&f->texts, func) < 0)
            return ERR_NOMEM;
        ret->included = list_has_func(&f->include, &f->texts);
        ret->excluded = list_has_func(&f->exclude, &f->texts);
    }
    ret->owner = f->only_mine && !ret->included ? library_owner(func) : LIBRARY_NOT;
    return 0;
}

bool filter_has_thread(struct filter *f, const char *name, const char *id)
{
    bool found = false;

    for (size_t i = 0; i < f->thread.n; i++) {
        const struct pattern *pattern = &f->thread.items[i];

        if ((name != NULL && pattern_matches(pattern, name)) || (id != NULL && pattern_matches(pattern, id)))
            found = f->thread.used[i] = true;
    }
    return found;
}

enum filter_step filter_extend(struct filter_path *path, enum library_owner owner)
{
    if (owner == LIBRARY_STATE || (owner == LIBRARY_CALLER && path->in_mine))
        return FILTER_SHOW;
    path->in_mine = owner == LIBRARY_NOT;
    if (path->in_mine) {
        path->has_mine = true;
        return FILTER_SHOW;
    }
    if (path->has_mine || (path->has_name && !path->starts))
        return FILTER_HIDE;
    path->has_name = true;
    path->starts = owner == LIBRARY_STARTS;
    return FILTER_NAME;
}

/* Keeps the program's frames, or the one that stands for the stack. */
static size_t keep_mine(const struct filter_verdict *verdicts, struct frame *frames, size_t n)
{
    struct filter_path path = {0};
    size_t to = n, name = n;

    for (size_t i = n; i-- > 0;) {
        enum filter_step step = filter_extend(&path, verdicts[i].owner);

        if (step == FILTER_NAME)
            name = i;
        else if (step == FILTER_SHOW)
            frames[--to] = frames[i];
    }
    if (to == n && name < n)
        frames[--to] = frames[name];
    memmove(frames, frames + to, (n - to) * sizeof(*frames));
    return n - to;
}

int filter_frames(struct filter *f, const struct trace *trace, struct frame *frames, size_t *ret_n)
{
    struct filter_verdict *verdicts = calloc(trace->n_frames + 1, sizeof(*verdicts));
    bool included = f->include.n == 0, excluded = false;
    char id[24];
    int r = verdicts == NULL ? ERR_NOMEM : 0;

    for (size_t i = 0; i < trace->n_frames && r == 0; i++) {
        r = filter_judge(f, frames[i].func, &verdicts[i]);
        included |= verdicts[i].included;
        excluded |= verdicts[i].excluded;
    }
    snprintf(id, sizeof(id), "%d", (int)trace->os_thread_id);
    if (r == 0)
        r = included && !excluded && (!f->thread.n || filter_has_thread(f, trace->thread_name, id));
    if (r > 0)
        *ret_n = f->only_mine ? keep_mine(verdicts, frames, trace->n_frames) : trace->n_frames;
    free(verdicts);
    return r;
}

const char *filter_unused(const struct filter *f, const char **ret_flag)
{
    static const char *const names[] = {"include", "exclude", "thread"};
    const struct filter_list *lists[] = {&f->include, &f->exclude, &f->thread};

    for (size_t k = 0; k < sizeof(lists) / sizeof(lists[0]); k++)
        for (size_t i = 0; i < lists[k]->n; i++)
            if (!lists[k]->used[i]) {
                *ret_flag = names[k];
                return lists[k]->items[i].text;
            }
    return NULL;
}
