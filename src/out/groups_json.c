/*
 * Prints groups as JSON: the processes once, and the sections with the stacks and the positions of their processes.
 */
#include "base/err.h"
#include "out/groups_private.h"
#include "out/json.h"

#include <inttypes.h>
#include <stdlib.h>

struct json_printer {
    struct groups *g;
    const struct groups_output *o;
    FILE *out;
};

static const char *const kinds[] = {[GROUP_RANK] = "rank",
                                    [GROUP_CHILD] = "child of a rank",
                                    [GROUP_RAY] = "Ray worker",
                                    [GROUP_DASK] = "Dask worker",
                                    [GROUP_PROCESS] = "process"};

static const char *const states[GROUP_STATES] = {[GROUP_IDLE] = "idle",
                                                 [GROUP_WAITS_FOR_GIL] = "waiting for the GIL",
                                                 [GROUP_ACTIVE] = "active",
                                                 [GROUP_ACTIVE_GIL] = "active+gil"};

static const char *const moves[GROUP_MOVES] = {[GROUP_MOVED] = "moved",
                                               [GROUP_SAME_STACK] = "same stack",
                                               [GROUP_DID_NOT_RUN] = "did not run",
                                               [GROUP_MISSED] = "not seen in each round"};

static void put_member(const struct json_printer *p, const struct group_member *m)
{
    fprintf(p->out, "    {\"pid\": %d, \"hostname\": ", (int)m->pid);
    json_string(p->out, m->host);
    fputs(", \"file\": ", p->out);
    json_string(p->out, m->source);
    fprintf(p->out, ", \"kind\": \"%s\", \"name\": ", kinds[m->kind]);
    json_string(p->out, m->kind == GROUP_RAY || m->kind == GROUP_DASK ? m->name : NULL);
    fputs(", \"rank\": ", p->out);
    if (m->rank_variable)
        fprintf(p->out, "%" PRId64 ", \"rank_from\": ", m->rank);
    else
        fputs("null, \"rank_from\": ", p->out);
    json_string(p->out, m->rank_variable);
    fputs(", \"command_line\": ", p->out);
    json_string(p->out, m->command);
    putc('}', p->out);
}

static void put_frame(const struct json_printer *p, const struct group_frame *f)
{
    if (!f) {
        fputs("null", p->out);
        return;
    }
    fputs("{\"name\": ", p->out);
    json_string(p->out, f->func.name);
    fputs(", \"filename\": ", p->out);
    json_string(p->out, f->func.filename);
    fputs(", \"module\": ", p->out);
    json_string(p->out, f->func.module);
    fputs(", \"short_filename\": ", p->out);
    json_string(p->out, f->func.short_filename);
    fprintf(p->out, ", \"line\": %d}", f->line > 0 ? f->line : 0);
}

/* The threads of a group, each by the position of its process. */
static void put_threads(const struct json_printer *p, const struct group_thread *const *threads, size_t n)
{
    putc('[', p->out);
    for (size_t i = 0; i < n; i++)
        fprintf(p->out, "%s{\"process\": %" PRIu32 ", \"thread\": %" PRIu64 ", \"state\": \"%s\"}", i ? ", " : "",
                threads[i]->member, threads[i]->id, states[threads[i]->state]);
    putc(']', p->out);
}

/* Innermost frame first, as in `dump --json`. */
static void put_stack(const struct json_printer *p, uint32_t node)
{
    putc('[', p->out);
    for (bool first = true; node != 0; node = p->g->nodes[node].parent, first = false) {
        fputs(first ? "\n            " : ",\n            ", p->out);
        put_frame(p, &p->g->frames[p->g->nodes[node].frame]);
    }
    putc(']', p->out);
}

/* Largest first. The order of the steps is that of a tree. */
static int compare_groups(const void *a, const void *b)
{
    const struct group_step *x = *(const struct group_step *const *)a, *y = *(const struct group_step *const *)b;

    if (x->self != y->self)
        return x->self < y->self ? 1 : -1;
    return (x > y) - (x < y);
}

static int put_groups(const struct json_printer *p, const struct group_view *view, uint32_t common)
{
    const struct group_step **order = calloc(view->n_steps + 1, sizeof(*order)), *most = &view->steps[common];
    size_t n = 0;

    if (!order)
        return ERR_NOMEM;
    for (size_t i = 0; i < view->n_steps; i++)
        if (view->steps[i].self)
            order[n++] = &view->steps[i];
    qsort((void *)order, n, sizeof(*order), compare_groups);
    for (size_t i = 0; i < n; i++) {
        const struct group_step *s = order[i];
        bool inside = s->first >= most->first && s->first < most->first + most->n;

        fprintf(p->out,
                "%s\n        {\n          \"count\": %" PRIu32
                ",\n          \"elsewhere\": %s,\n          \"threads\": ",
                i ? "," : "", s->self, common && !inside ? "true" : "false");
        put_threads(p, view->threads + s->first, s->self);
        fputs(",\n          \"frames\": ", p->out);
        put_stack(p, s->node);
        fputs("\n        }", p->out);
    }
    free((void *)order);
    return 0;
}

static int put_history(const struct json_printer *p, size_t section)
{
    struct group_history *all;
    size_t n;
    int r = groups_history(p->g, section, &all, &n);

    if (r < 0)
        return r;
    fputs(",\n      \"history\": [", p->out);
    for (size_t i = 0; i < n; i++)
        fprintf(p->out,
                "%s\n        {\"process\": %" PRIu32 ", \"thread\": %" PRIu64
                ", \"result\": \"%s\", \"rounds_elsewhere\": %" PRIu32 "}",
                i ? "," : "", all[i].thread->member, all[i].thread->id, moves[all[i].move], all[i].n_elsewhere);
    fputs("\n      ]", p->out);
    free(all);
    return 0;
}

static int put_section(const struct json_printer *p, size_t at, bool first)
{
    const struct group_section *s = &p->g->sections[at];
    struct group_view view;
    uint32_t common;
    int r = groups_view(p->g, at, p->g->rounds, &view);

    if (r < 0)
        return r;
    common = groups_is_comparable(s) ? group_view_common(&view) : 0;
    fprintf(p->out, "%s\n    {\n      \"role\": ", first ? "" : ",");
    json_string(p->out, s->role);
    fprintf(p->out, ",\n      \"kind\": \"%s\",\n      \"name\": ", kinds[s->kind]);
    json_string(p->out, s->name);
    fprintf(p->out, ",\n      \"threads\": %" PRIu32 ",\n      \"processes\": %" PRIu32, s->n_threads, s->n_members);
    fputs(",\n      \"common_frame\": ", p->out);
    put_frame(p, common ? &p->g->frames[p->g->nodes[view.steps[common].node].frame] : NULL);
    fputs(",\n      \"groups\": [", p->out);
    r = put_groups(p, &view, common);
    fputs("\n      ]", p->out);
    group_view_free(&view);
    if (r == 0 && p->g->rounds > 1)
        r = put_history(p, at);
    fputs("\n    }", p->out);
    return r;
}

int groups_write_json(struct groups *g, const struct groups_output *output, FILE *out)
{
    struct json_printer p = {.g = g, .o = output, .out = out};
    bool first = true;
    int r = 0;

    fputs("{\n  \"processes\": [\n", out);
    for (size_t i = 0; i < g->n_members; i++) {
        fputs(i ? ",\n" : "", out);
        put_member(&p, &g->members[i]);
    }
    fprintf(out, "\n  ],\n  \"rounds\": %" PRIu32 ",\n  \"unread\": {\"count\": %zu, \"first\": [", g->rounds,
            output->all_unread);
    for (size_t i = 0; i < output->n_unread; i++) {
        fprintf(out, "%s{\"pid\": %d, \"reason\": ", i ? ", " : "", (int)output->unread[i].pid);
        json_string(out, output->unread[i].why);
        putc('}', out);
    }
    fprintf(out, "]},\n  \"cut\": %zu,\n  \"sections\": [", g->cut);
    for (size_t i = 0; i < g->n_sections && r == 0; i++)
        if (g->sections[i].n_threads) {
            r = put_section(&p, i, first);
            first = false;
        }
    fputs("\n  ]\n}\n", out);
    return r;
}
