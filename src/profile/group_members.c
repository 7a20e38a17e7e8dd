/*
 * Decides what each member is: a rank of a job, a worker of Ray or Dask, or any other process.
 */
#include "base/err.h"
#include "profile/groups_private.h"

#include <stdlib.h>
#include <string.h>

#define ANCESTORS_MAX 64
#define NAME_MAX_     120

/* A process that multiprocessing starts beside the workers of a program. Its stack always differs from theirs. */
#define TRACKER "resource tracker"

/* ---- Ray and Dask, by their command lines ---- */

/* "ray::Trainer.step" -> "ray::Trainer": the method changes from call to call. */
static size_t ray_name_length(const char *command)
{
    return strncmp(command, "ray::", 5) == 0 ? 5 + strcspn(command + 5, ".( ") : 0;
}

static bool is_dask_worker(const char *command)
{
    return strstr(command, "dask worker ") || strstr(command, "dask-worker ") || strstr(command, "dask_worker ");
}

/* The value of --name in a command line, whose arguments are joined by spaces. */
static const char *dask_name(const char *command, size_t *ret_len)
{
    const char *at = strstr(command, " --name");

    if (!at || (at[7] != ' ' && at[7] != '='))
        return NULL;
    at += 8;
    *ret_len = strcspn(at, " ");
    return *ret_len ? at : NULL;
}

static int set_name(struct groups *g, struct group_member *m, const char *s, size_t len)
{
    m->name = intern_bytes(g->index->texts, s, len < NAME_MAX_ ? len : NAME_MAX_);
    return m->name ? 0 : ERR_NOMEM;
}

static int classify_by_command(struct groups *g, struct group_member *m)
{
    size_t len = ray_name_length(m->command);
    const char *name;

    m->kind = GROUP_PROCESS;
    m->name = NULL;
    if (strstr(m->command, "import main;main(") && strstr(m->command, "_tracker "))
        return set_name(g, m, TRACKER, strlen(TRACKER));
    if (len) {
        m->kind = GROUP_RAY;
        return set_name(g, m, m->command, len);
    }
    if (!is_dask_worker(m->command))
        return 0;
    m->kind = GROUP_DASK;
    name = dask_name(m->command, &len);
    return name ? set_name(g, m, name, len) : 0;
}

/* ---- the tree of processes ---- */

/* The number of its ancestors. The links are those of a file, so they may form a cycle. */
static uint32_t level_of(const struct groups *g, const struct group_member *m)
{
    uint32_t level = 0;

    while (level < ANCESTORS_MAX && (m = groups_parent(g, m)) != NULL)
        level++;
    return level;
}

/* ---- ranks ---- */

static bool same_rank(const struct group_member *a, const struct group_member *b)
{
    return a->rank_variable == b->rank_variable && a->rank == b->rank;
}

/* True if an ancestor among the members has the same rank: the environment is inherited. */
static bool has_inherited_rank(const struct groups *g, const struct group_member *m)
{
    const struct group_member *up = m;

    for (int i = 0; i < ANCESTORS_MAX && (up = groups_parent(g, up)) != NULL; i++)
        if (up->rank_variable && same_rank(up, m))
            return true;
    return false;
}

static int compare_text(const char *a, const char *b)
{
    return !a || !b ? (a != NULL) - (b != NULL) : strcmp(a, b);
}

static int compare_ranks(const void *a, const void *b)
{
    const struct group_member *x = *(struct group_member *const *)a, *y = *(struct group_member *const *)b;
    int r = compare_text(x->host, y->host);

    if (r == 0)
        r = compare_text(x->source, y->source);
    if (r == 0)
        r = strcmp(x->rank_variable, y->rank_variable);
    return r ? r : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Two processes with one number on one machine, where none is the other's ancestor: the number does not tell them apart, as that of
 * a batch job. They count as other processes. */
static int drop_shared_ranks(struct groups *g, struct group_member **ranked, size_t n)
{
    int r = 0;

    qsort(ranked, n, sizeof(struct group_member *), compare_ranks);
    for (size_t i = 0, end; i < n && r == 0; i = end) {
        for (end = i + 1; end < n && compare_ranks(&ranked[i], &ranked[end]) == 0;)
            end++;
        for (size_t k = i; k < end && end - i > 1 && r == 0; k++)
            r = classify_by_command(g, ranked[k]);
    }
    return r;
}

static size_t count_hosts(const struct groups *g)
{
    size_t n = 0;

    for (size_t i = 0; i < g->n_members; i++) {
        const struct group_member *m = &g->members[i];

        n += !i || m->host != m[-1].host || m->source != m[-1].source;
    }
    return n;
}

int groups_classify(struct groups *g)
{
    struct group_member **ranked = calloc(g->n_members + 1, sizeof(struct group_member *));
    size_t n_ranked = 0;
    int r = ranked ? 0 : ERR_NOMEM;

    for (size_t i = 0; i < g->n_members && r == 0; i++) {
        struct group_member *m = &g->members[i];

        r = classify_by_command(g, m);
        if (r < 0 || !m->rank_variable || m->kind != GROUP_PROCESS || m->name)
            continue;
        m->name = m->rank_variable;
        m->kind = has_inherited_rank(g, m) ? GROUP_CHILD : GROUP_RANK;
        if (m->kind == GROUP_RANK)
            ranked[n_ranked++] = m;
    }
    if (r == 0)
        r = drop_shared_ranks(g, ranked, n_ranked);
    for (size_t i = 0; i < g->n_members && r == 0; i++)
        g->members[i].level = g->members[i].kind == GROUP_PROCESS ? level_of(g, &g->members[i]) : 0;
    g->n_hosts = count_hosts(g);
    free(ranked);
    return r;
}
