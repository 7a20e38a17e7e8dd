/*
 * Which nodes of a tree are worth their memory. Called by profile.c when there are too many.
 */
#include "profile/prune.h"

#include <stdlib.h>

/* Samples in each node and below it. A parent's index is lower than its children's. */
static void sum_totals(const struct profile *p, uint64_t *totals)
{
    for (size_t i = 0; i < p->n_nodes; i++)
        totals[i] = p->nodes[i].self;
    for (size_t i = p->n_nodes; i-- > 1;)
        totals[p->nodes[i].parent] += totals[i];
}

static bool is_root(const struct profile *p, size_t node)
{
    return node == 0 || p->frames[p->nodes[node].frame].label != NULL;
}

/* The least number of samples that leaves at most half of the nodes. */
static uint64_t choose_least(const struct profile *p, const uint64_t *totals)
{
    uint64_t least = 1;
    size_t kept;

    do {
        kept = 0;
        least *= 2;
        for (size_t i = 0; i < p->n_nodes; i++)
            kept += totals[i] >= least;
    } while (kept > p->n_nodes / 2 && least < UINT64_MAX / 2);
    return least;
}

size_t prune_plan(const struct profile *p, uint32_t *map)
{
    uint64_t *totals = calloc(p->n_nodes, sizeof(*totals)), least;
    size_t kept = 0;

    if (totals == NULL)
        return 0;
    sum_totals(p, totals);
    least = choose_least(p, totals);
    for (size_t i = 0; i < p->n_nodes; i++) {
        if (is_root(p, i) || totals[i] >= least)
            map[i] = (uint32_t)kept++;
        else
            map[i] = map[p->nodes[i].parent];
    }
    free(totals);
    return kept;
}
