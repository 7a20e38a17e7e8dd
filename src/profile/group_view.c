/*
 * The prefix tree of one section in one round, who is elsewhere in it, and what changed between rounds.
 */
#include "base/err.h"
#include "base/grow.h"
#include "profile/groups_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- the tree ---- */

struct touched {
    uint32_t *nodes;
    size_t n, cap;
};

static int touch(struct group_work *work, struct touched *t, uint32_t node)
{
    if (work[node].total++ > 0)
        return 0;
    if (grow_array((void **)&t->nodes, &t->cap, t->n + 1, sizeof(*t->nodes)) < 0) {
        work[node].total--;
        return ERR_NOMEM;
    }
    t->nodes[t->n++] = node;
    return 0;
}

static int count_threads(struct groups *g, const struct group_view *view, struct touched *t)
{
    struct group_work *work = g->index->work;
    int r = 0;

    for (size_t i = 0; i < view->n_threads && r == 0; i++) {
        uint32_t node = view->threads[i]->node;

        r = touch(work, t, node);
        work[node].self += r == 0;
        while (node != 0 && r == 0) {
            node = g->nodes[node].parent;
            r = touch(work, t, node);
        }
    }
    return r;
}

static int compare_totals(const void *a, const void *b, void *arg)
{
    const struct group_work *work = arg;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    if (work[x].total != work[y].total)
        return work[x].total < work[y].total ? -1 : 1;
    return (x < y) - (x > y);
}

/* Prepends the smallest first, so that each list begins with the largest. */
static void link_children(struct groups *g, struct touched *t)
{
    struct group_work *work = g->index->work;

    if (t->n)
        qsort_r(t->nodes, t->n, sizeof(*t->nodes), compare_totals, work);
    for (size_t i = 0; i < t->n; i++) {
        uint32_t node = t->nodes[i], parent = g->nodes[node].parent;

        if (node == 0)
            continue;
        work[node].next_sibling = work[parent].first_child;
        work[parent].first_child = node;
    }
}

/* The node after `node` in the order of display, or 0. */
static uint32_t next_node(const struct groups *g, uint32_t node)
{
    const struct group_work *work = g->index->work;

    if (work[node].first_child)
        return work[node].first_child;
    while (node != 0 && !work[node].next_sibling)
        node = g->nodes[node].parent;
    return node ? work[node].next_sibling : 0;
}

static void add_steps(struct groups *g, struct group_view *view)
{
    struct group_work *work = g->index->work;
    uint32_t node = 0, first = 0;

    do {
        uint32_t up = node ? work[g->nodes[node].parent].step : 0;

        work[node].step = (uint32_t)view->n_steps;
        if (node)
            view->steps[up].n_children++;
        view->steps[view->n_steps++] =
            (struct group_step){.node = node, .up = up, .first = first, .n = work[node].total, .self = work[node].self};
        first += work[node].self;
        node = next_node(g, node);
    } while (node);
}

/* Orders the threads by their steps; within a step, they keep their order. */
static void sort_threads(struct groups *g, struct group_view *view, const struct group_thread **sorted)
{
    struct group_work *work = g->index->work;

    for (size_t i = 0; i < view->n_threads; i++) {
        const struct group_thread *t = view->threads[i];
        const struct group_step *step = &view->steps[work[t->node].step];

        sorted[step->first + step->self - work[t->node].self--] = t;
    }
    memcpy((void *)view->threads, (const void *)sorted, view->n_threads * sizeof(*sorted));
}

static int fill_view(struct groups *g, struct group_view *view, struct touched *t)
{
    const struct group_thread **sorted = calloc(view->n_threads + 1, sizeof(*sorted));
    int r = sorted ? count_threads(g, view, t) : ERR_NOMEM;

    if (r == 0 && !(view->steps = calloc(t->n + 1, sizeof(*view->steps))))
        r = ERR_NOMEM;
    if (r == 0) {
        link_children(g, t);
        add_steps(g, view);
        sort_threads(g, view, sorted);
    }
    free(sorted);
    for (size_t i = 0; i < t->n; i++)
        g->index->work[t->nodes[i]] = (struct group_work){0};
    return r;
}

/* The position of the first thread of a section that is in this round or a later one. */
static uint32_t first_of(const struct groups *g, const struct group_section *s, uint32_t round)
{
    uint32_t from = s->first, end = s->first + s->n;

    while (from < end) {
        uint32_t middle = from + (end - from) / 2;

        if (g->threads[middle].round < round)
            from = middle + 1;
        else
            end = middle;
    }
    return from;
}

int groups_view(struct groups *g, size_t section, uint32_t round, struct group_view *ret)
{
    const struct group_section *s = &g->sections[section];
    uint32_t first = first_of(g, s, round), end = first_of(g, s, round + 1);
    struct group_view view = {.threads = calloc((size_t)(end - first) + 1, sizeof(*view.threads))};
    struct touched t = {0};
    int r = view.threads ? 0 : ERR_NOMEM;

    for (uint32_t i = first; i < end && r == 0; i++)
        view.threads[view.n_threads++] = &g->threads[i];
    if (r == 0)
        r = fill_view(g, &view, &t);
    free(t.nodes);
    if (r < 0) {
        group_view_free(&view);
        return r;
    }
    *ret = view;
    return 0;
}

void group_view_free(struct group_view *view)
{
    free(view->steps);
    free((void *)view->threads);
    *view = (struct group_view){0};
}

bool groups_is_comparable(const struct group_section *s)
{
    return s->is_main || s->n_threads == s->n_members;
}

/* The largest callee follows its caller. */
uint32_t group_view_common(const struct group_view *view)
{
    uint64_t n = view->n_threads;
    uint32_t at = 0;

    if (n < 3)
        return 0;
    while (view->steps[at].n_children > 0 && 3 * (uint64_t)view->steps[at + 1].n >= 2 * n)
        at++;
    return view->steps[at].n == n ? 0 : at;
}

/* ---- rounds ---- */

static int compare_times(const void *a, const void *b)
{
    const struct group_thread *x = *(const struct group_thread *const *)a, *y = *(const struct group_thread *const *)b;

    if (x->member != y->member)
        return x->member < y->member ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return (x->round > y->round) - (x->round < y->round);
}

/* What a thread did, from its `n` appearances in the order of the rounds. */
static enum group_move move_of(const struct group_thread *const *times, size_t n, uint32_t rounds)
{
    bool ran = false;

    for (size_t i = 1; i < n; i++) {
        if (times[i]->node != times[i - 1]->node)
            return GROUP_MOVED;
        ran |= !times[i]->has_runs || !times[i - 1]->has_runs || times[i]->runs != times[i - 1]->runs ||
               times[i]->run_ns != times[i - 1]->run_ns;
    }
    if (n != rounds)
        return GROUP_MISSED;
    return ran ? GROUP_SAME_STACK : GROUP_DID_NOT_RUN;
}

/* Counts the rounds in which each thread was elsewhere. `place` has the history of each thread of the section. */
static int count_elsewhere(struct groups *g, size_t section, struct group_history *all, const uint32_t *place)
{
    const struct group_thread *base = &g->threads[g->sections[section].first];
    int r = 0;

    for (uint32_t round = 1; round <= g->rounds && r == 0; round++) {
        struct group_view view;
        uint32_t common;

        r = groups_view(g, section, round, &view);
        if (r < 0)
            break;
        common = group_view_common(&view);
        for (size_t i = 0; common && i < view.n_threads; i++)
            if (i < view.steps[common].first || i >= view.steps[common].first + view.steps[common].n)
                all[place[view.threads[i] - base]].n_elsewhere++;
        group_view_free(&view);
    }
    return r;
}

int groups_history(struct groups *g, size_t section, struct group_history **ret, size_t *ret_n)
{
    const struct group_section *s = &g->sections[section];
    const struct group_thread **times = calloc(s->n + 1, sizeof(*times)), *base = &g->threads[s->first];
    struct group_history *all = calloc(s->n + 1, sizeof(*all));
    uint32_t *place = calloc(s->n + 1, sizeof(*place));
    size_t n = 0;
    int r = times && all && place ? 0 : ERR_NOMEM;

    for (uint32_t i = 0; i < s->n && r == 0; i++)
        times[i] = &base[i];
    if (r == 0)
        qsort((void *)times, s->n, sizeof(*times), compare_times);
    for (uint32_t i = 0, end; i < s->n && r == 0; i = end, n++) {
        for (end = i; end < s->n && times[end]->member == times[i]->member && times[end]->id == times[i]->id; end++)
            place[times[end] - base] = (uint32_t)n;
        all[n] = (struct group_history){.thread = times[end - 1], .move = move_of(times + i, end - i, g->rounds)};
    }
    if (r == 0 && groups_is_comparable(s))
        r = count_elsewhere(g, section, all, place);
    free((void *)times);
    free(place);
    if (r < 0) {
        free(all);
        return r;
    }
    *ret = all;
    *ret_n = n;
    return 0;
}
