/*
 * Prints groups for a terminal: first who is elsewhere and what changed between the rounds, then the prefix tree of each section,
 * outermost frame first.
 */
#include "base/err.h"
#include "base/text.h"
#include "out/dump_private.h"
#include "out/groups_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LEVELS_MAX    12 /* of indentation */
#define ELSEWHERE_MAX 12 /* lines about those that are elsewhere, of one section */

struct printer {
    struct groups *g;
    const struct groups_output *o;
    const struct group_section *section;
    struct group_view view;
    FILE *out;
    int error;
};

static void put_frame(struct printer *p, const struct group_frame *f)
{
    const char *file = p->o->options->full_filenames ? f->func.filename : f->func.short_filename;

    dump_style(p->o->options, STYLE_FUNCTION, p->out);
    text_print_safe(p->out, f->func.name);
    dump_style(p->o->options, STYLE_NONE, p->out);
    if (!*file)
        return;
    fputs(" (", p->out);
    dump_style(p->o->options, STYLE_PLACE, p->out);
    text_print_safe(p->out, file);
    if (f->line > 0)
        fprintf(p->out, ":%d", f->line);
    dump_style(p->o->options, STYLE_NONE, p->out);
    putc(')', p->out);
}

static void put_names(struct printer *p, const struct group_thread *const *threads, size_t n)
{
    if (groups_put_names(p->g, threads, n, GROUP_NAMES_SHOWN, p->out) < 0)
        p->error = ERR_NOMEM;
}

static size_t count_members(struct printer *p, const struct group_thread *const *threads, size_t n)
{
    size_t members = 0;

    if (groups_count_members(threads, n, &members) < 0)
        p->error = ERR_NOMEM;
    return members;
}

/* ---- who is elsewhere ---- */

static void put_place(struct printer *p, uint32_t node, uint32_t other)
{
    struct group_place place = groups_place(p->g, node, other);

    if (!place.frame) {
        fputs("without a frame", p->out);
        return;
    }
    fputs("in ", p->out);
    put_frame(p, place.frame);
    if (place.own && place.own != place.frame) {
        fputs(", called in ", p->out);
        put_frame(p, place.own);
    }
}

/* Only main threads stand for their processes. */
static void put_role(struct printer *p)
{
    if (p->section->is_main)
        return;
    text_print_safe(p->out, p->section->role);
    fputs(" of ", p->out);
}

/* A line for each distinct stack that is not in the step `common`, the smallest group last. */
static void put_elsewhere(struct printer *p, uint32_t common)
{
    const struct group_step *most = &p->view.steps[common];
    size_t lines = 0, rest = 0, members;
    uint32_t elsewhere = 0;

    for (uint32_t i = 0; i < p->view.n_steps; i++) {
        const struct group_step *s = &p->view.steps[i];

        if (!s->self || (s->first >= most->first && s->first < most->first + most->n))
            continue;
        members = count_members(p, p->view.threads + s->first, s->self);
        if (lines++ >= ELSEWHERE_MAX) {
            rest += members;
            continue;
        }
        put_role(p);
        put_names(p, p->view.threads + s->first, s->self);
        fputs(members == 1 ? " is elsewhere: " : " are elsewhere: ", p->out);
        put_place(p, s->node, most->node);
        elsewhere = s->node;
        putc('\n', p->out);
    }
    if (rest)
        fprintf(p->out, "%zu more %s elsewhere: see below\n", rest, rest == 1 ? "is" : "are");
    members = count_members(p, p->view.threads + most->first, most->n);
    fprintf(p->out, "%zu other%s ", members, members == 1 ? " is" : "s are");
    put_place(p, most->node, elsewhere);
    putc('\n', p->out);
}

/* ---- what changed between the rounds ---- */

#define ALWAYS_ELSEWHERE GROUP_MOVES /* a row of put_history after those of enum group_move */

/* The threads that belong into a row. */
static void put_row(struct printer *p, const struct group_history *all, size_t n, int row, const char *what)
{
    const struct group_thread **threads = calloc(n + 1, sizeof(*threads));
    size_t count = 0;

    if (!threads) {
        p->error = ERR_NOMEM;
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (row == ALWAYS_ELSEWHERE ? all[i].n_elsewhere == p->g->rounds : (int)all[i].move == row)
            threads[count++] = all[i].thread;
    if (count) {
        fprintf(p->out, "    %zu %s: ", count, what);
        put_names(p, threads, count);
        putc('\n', p->out);
    }
    free((void *)threads);
}

static void put_history(struct printer *p, size_t section)
{
    static const char *const words[] = {[GROUP_MOVED] = "moved",
                                        [GROUP_SAME_STACK] = "ran, and had the same stack in each round",
                                        [GROUP_DID_NOT_RUN] = "did not run between the rounds",
                                        [GROUP_MISSED] = "not seen in each round",
                                        [ALWAYS_ELSEWHERE] = "elsewhere in each round"};
    struct group_history *all;
    size_t n;

    if (groups_history(p->g, section, &all, &n) < 0) {
        p->error = ERR_NOMEM;
        return;
    }
    fprintf(p->out, "%" PRIu32 " rounds, %g s apart, ", p->g->rounds, p->o->every);
    groups_put_section(p->section, p->out);
    fputs(":\n", p->out);
    for (int i = 0; i <= ALWAYS_ELSEWHERE; i++)
        put_row(p, all, n, i, words[i]);
    free(all);
}

/* ---- the tree ---- */

/* "idle", or "3 active, 60 idle" */
static void put_states(struct printer *p, const struct group_thread *const *threads, size_t n)
{
    static const struct {
        enum dump_style style;
        const char *text;
    } words[GROUP_STATES] = {[GROUP_IDLE] = {STYLE_IDLE, "idle"},
                             [GROUP_WAITS_FOR_GIL] = {STYLE_WAITING, "waiting for the GIL"},
                             [GROUP_ACTIVE] = {STYLE_ACTIVE, "active"},
                             [GROUP_ACTIVE_GIL] = {STYLE_HAS_GIL, "active+gil"}};
    size_t counts[GROUP_STATES] = {0};
    bool first = true;

    for (size_t i = 0; i < n; i++)
        counts[threads[i]->state]++;
    fputs(" (", p->out);
    for (int i = GROUP_STATES; i-- > 0;) {
        if (!counts[i])
            continue;
        fputs(first ? "" : ", ", p->out);
        if (counts[i] != n)
            fprintf(p->out, "%zu ", counts[i]);
        dump_style(p->o->options, words[i].style, p->out);
        fputs(words[i].text, p->out);
        dump_style(p->o->options, STYLE_NONE, p->out);
        first = false;
    }
    putc(')', p->out);
}

static void put_group(struct printer *p, const struct group_thread *const *threads, size_t n, unsigned level)
{
    size_t members = count_members(p, threads, n);

    fprintf(p->out, "%*s", (int)(4 * level), "");
    if (members != n)
        fprintf(p->out, "%zu threads of ", n);
    fprintf(p->out, "%zu: ", members);
    put_names(p, threads, n);
    put_states(p, threads, n);
    putc('\n', p->out);
}

static bool forks(const struct group_step *s)
{
    return s->n_children + (s->self > 0) > 1;
}

/* The level of each step: how many of the steps above it fork. */
static void put_tree(struct printer *p)
{
    uint32_t *levels = calloc(p->view.n_steps + 1, sizeof(*levels));

    if (!levels) {
        p->error = ERR_NOMEM;
        return;
    }
    for (uint32_t i = 0; i < p->view.n_steps && !p->error; i++) {
        const struct group_step *s = &p->view.steps[i], *up = &p->view.steps[s->up];
        unsigned shown;

        levels[i] = i ? levels[s->up] + forks(up) : 0;
        shown = levels[i] < LEVELS_MAX ? levels[i] : LEVELS_MAX;
        if (i && forks(up))
            put_group(p, p->view.threads + s->first, s->n, shown);
        if (i) {
            fprintf(p->out, "%*s", (int)(4 * shown + 4), "");
            put_frame(p, &p->g->frames[p->g->nodes[s->node].frame]);
            putc('\n', p->out);
        }
        if (s->self && forks(s)) {
            put_group(p, p->view.threads + s->first, s->self, shown + 1 < LEVELS_MAX ? shown + 1 : LEVELS_MAX);
            fprintf(p->out, "%*s[no further frame]\n", (int)(4 * (shown + 1) + 4), "");
        }
    }
    free(levels);
}

static void put_section(struct printer *p)
{
    putc('\n', p->out);
    groups_put_section(p->section, p->out);
    fputs(": ", p->out);
    put_names(p, p->view.threads, p->view.n_threads);
    put_states(p, p->view.threads, p->view.n_threads);
    putc('\n', p->out);
    put_tree(p);
}

/* ---- all of it ---- */

void groups_put_unread(const struct groups_output *o, FILE *out)
{
    fprintf(out, "%zu could not be read: ", o->all_unread);
    for (size_t i = 0; i < o->n_unread; i++) {
        fprintf(out, "%spid %d (", i ? ", " : "", (int)o->unread[i].pid);
        text_print_safe(out, o->unread[i].why);
        putc(')', out);
    }
    if (o->all_unread > o->n_unread)
        fprintf(out, " and %zu more", o->all_unread - o->n_unread);
}

static void put_sections(struct printer *p, bool findings)
{
    for (size_t i = 0; i < p->g->n_sections && !p->error; i++) {
        uint32_t common;

        p->section = &p->g->sections[i];
        if (!p->section->n_threads || (findings && !groups_is_comparable(p->section)))
            continue;
        if (groups_view(p->g, i, p->g->rounds, &p->view) < 0) {
            p->error = ERR_NOMEM;
            return;
        }
        common = findings ? group_view_common(&p->view) : 0;
        if (common)
            put_elsewhere(p, common);
        if (findings && p->g->rounds > 1 && p->section->is_main)
            put_history(p, i);
        if (!findings)
            put_section(p);
        group_view_free(&p->view);
    }
}

int groups_write_text(struct groups *g, const struct groups_output *output, FILE *out)
{
    struct printer p = {.g = g, .o = output, .out = out};

    fprintf(out, "%zu process%s\n", g->n_present, g->n_present == 1 ? "" : "es");
    if (output->all_unread) {
        groups_put_unread(output, out);
        putc('\n', out);
    }
    put_sections(&p, true);
    put_sections(&p, false);
    return p.error;
}
