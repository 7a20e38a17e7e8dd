/*
 * Names sets of processes: ranks as ranges, others by name or PID.
 */
#include "base/err.h"
#include "base/text.h"
#include "out/groups_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int compare_text(const char *a, const char *b)
{
    return !a || !b ? (a != NULL) - (b != NULL) : strcmp(a, b);
}

static const char *place_of(const struct group_member *m)
{
    return m->host ? m->host : m->source;
}

static int compare_members(const void *a, const void *b)
{
    const struct group_member *x = *(const struct group_member *const *)a, *y = *(const struct group_member *const *)b;
    int r = (int)x->kind - (int)y->kind;

    if (r)
        return r;
    if (x->kind == GROUP_RANK || x->kind == GROUP_CHILD) {
        if (x->rank != y->rank)
            return x->rank < y->rank ? -1 : 1;
    } else if (x->kind == GROUP_DASK && (r = compare_text(x->name, y->name)) != 0) {
        return r;
    }
    r = compare_text(place_of(x), place_of(y));
    if (r == 0)
        r = (x->pid > y->pid) - (x->pid < y->pid);
    return r ? r : (x > y) - (x < y);
}

/* The members of these threads, each once, in the order of their names. The caller frees *ret. */
static int list_members(const struct groups *g, const struct group_thread *const *threads, size_t n,
                        const struct group_member ***ret, size_t *ret_n)
{
    const struct group_member **items = calloc(n + 1, sizeof(*items));
    size_t kept = 0;

    if (!items)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        items[i] = &g->members[threads[i]->member];
    qsort((void *)items, n, sizeof(*items), compare_members);
    for (size_t i = 0; i < n; i++)
        if (!kept || items[kept - 1] != items[i])
            items[kept++] = items[i];
    *ret = items;
    *ret_n = kept;
    return 0;
}

/* The same rank may come from several jobs. */
static void put_ranks(const struct group_member *const *items, size_t n, size_t max, FILE *out)
{
    size_t shown = 0, end;

    for (size_t i = 0; i < n; i = end, shown++) {
        for (end = i + 1; end < n && items[end]->rank - items[end - 1]->rank <= 1;)
            end++;
        if (max && shown == max) {
            fprintf(out, " and %zu more", n - i);
            return;
        }
        fprintf(out, "%s%" PRId64, i ? "," : "", items[i]->rank);
        if (items[end - 1]->rank != items[i]->rank)
            fprintf(out, "-%" PRId64, items[end - 1]->rank);
    }
}

static void put_others(const struct groups *g, const struct group_member *const *items, size_t n, size_t max, FILE *out)
{
    for (size_t i = 0; i < n; i++) {
        const char *place = place_of(items[i]);

        if (max && i == max) {
            fprintf(out, " and %zu more", n - i);
            return;
        }
        fputs(i ? ", " : "", out);
        if (items[i]->kind == GROUP_DASK && items[i]->name) {
            text_print_safe(out, items[i]->name);
            continue;
        }
        fprintf(out, "%d", (int)items[i]->pid);
        if (g->n_hosts > 1 && place && (i + 1 == n || (max && i + 1 == max) || place != place_of(items[i + 1]))) {
            fputs(" on ", out);
            text_print_safe(out, place);
        }
    }
}

/* A few processes whose rank does not identify them: those below it by their PIDs, one of several with a number by its machine. */
static void put_rank_details(const struct groups *g, const struct group_member *const *items, size_t n, size_t max,
                             FILE *out)
{
    if (max && n > max)
        return;
    if (items[0]->kind == GROUP_CHILD) {
        fputs(n == 1 ? ", pid " : ", pids ", out);
        put_others(g, items, n, max, out);
    } else if (n == 1 && g->n_hosts > 1 && place_of(items[0])) {
        fputs(" on ", out);
        text_print_safe(out, place_of(items[0]));
    }
}

int groups_put_names(const struct groups *g, const struct group_thread *const *threads, size_t n, size_t max, FILE *out)
{
    const struct group_member **items;
    size_t n_items;
    int r = list_members(g, threads, n, &items, &n_items);

    if (r < 0 || !n_items) {
        if (r == 0)
            free((void *)items);
        return r;
    }
    switch (items[0]->kind) {
    case GROUP_RANK:
    case GROUP_CHILD:
        fputs(items[0]->kind == GROUP_CHILD ? "below " : "", out);
        fputs(items[0]->rank == items[n_items - 1]->rank ? "rank " : "ranks ", out);
        put_ranks(items, n_items, max, out);
        put_rank_details(g, items, n_items, max, out);
        break;
    case GROUP_DASK:
        fputs(items[0]->name ? "" : n_items == 1 ? "pid " : "pids ", out);
        put_others(g, items, n_items, max, out);
        break;
    default:
        fputs(n_items == 1 ? "pid " : "pids ", out);
        put_others(g, items, n_items, max, out);
    }
    free((void *)items);
    return 0;
}

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

int groups_count_members(const struct group_thread *const *threads, size_t n, size_t *ret)
{
    uint32_t *members = calloc(n + 1, sizeof(*members));
    size_t count = 0;

    if (!members)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        members[i] = threads[i]->member;
    qsort(members, n, sizeof(*members), compare_numbers);
    for (size_t i = 0; i < n; i++)
        count += !i || members[i] != members[i - 1];
    free(members);
    *ret = count;
    return 0;
}

void groups_put_section(const struct group_section *s, FILE *out)
{
    const char *many = s->n_members == 1 ? "" : "es", *more = s->n_members == 1 ? "" : "s";

    text_print_safe(out, s->role);
    if (s->n_threads != s->n_members)
        fprintf(out, ": %" PRIu32 " thread%s of", s->n_threads, s->n_threads == 1 ? "" : "s");
    else
        fputs(" of", out);
    switch (s->kind) {
    case GROUP_RANK:
        fprintf(out, " %" PRIu32 " rank%s (", s->n_members, more);
        text_print_safe(out, s->name);
        putc(')', out);
        break;
    case GROUP_CHILD:
        fprintf(out, " %" PRIu32 " process%s below ranks", s->n_members, many);
        break;
    case GROUP_RAY:
        fprintf(out, " %" PRIu32 " worker%s ", s->n_members, more);
        text_print_safe(out, s->name);
        break;
    case GROUP_DASK:
        fprintf(out, " %" PRIu32 " Dask worker%s", s->n_members, more);
        break;
    default:
        fprintf(out, " %" PRIu32 " %sprocess%s", s->n_members, s->level == 1 ? "child " : "", many);
        if (s->name)
            fprintf(out, " (%s)", s->name);
        if (s->level > 1)
            fprintf(out, " %" PRIu32 " levels down", s->level);
    }
}
