/*
 * Which nodes of a tree are worth their memory. Called by profile.c when there are too many.
 */
#include "profile/prune.h"

#include "base/err.h"

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

/* The nodes just below the bound that fit as well. There may be so many of them that next to nothing stays otherwise:
 * threads that all wait in deep stacks. Those that are less deep come first, so that each stack keeps its beginning. */
struct band {
    uint64_t least; /* samples */
    uint32_t depth; /* all that are less deep fit, */
    size_t room;    /* and so many of this depth */
};

static bool in_band(uint64_t total, uint64_t least)
{
    return total < least && total >= least / 2;
}

static uint32_t find_depths(const struct profile *p, uint32_t *depths)
{
    uint32_t most = 0;

    depths[0] = 0;
    for (size_t i = 1; i < p->n_nodes; i++) {
        depths[i] = depths[p->nodes[i].parent] + 1;
        most = depths[i] > most ? depths[i] : most;
    }
    return most;
}

static int choose_band(const struct profile *p, const uint64_t *totals, const uint32_t *depths, uint32_t max_depth,
                       struct band *band)
{
    size_t *counts = calloc((size_t)max_depth + 1, sizeof(*counts)), kept = 0;

    if (counts == NULL)
        return ERR_NOMEM;
    for (size_t i = 0; i < p->n_nodes; i++) {
        kept += totals[i] >= band->least;
        counts[depths[i]] += in_band(totals[i], band->least);
    }
    band->room = p->n_nodes / 2 > kept ? p->n_nodes / 2 - kept : 0;
    for (band->depth = 0; band->depth < max_depth && counts[band->depth] <= band->room; band->depth++)
        band->room -= counts[band->depth];
    free(counts);
    return 0;
}

static bool band_takes(struct band *band, uint64_t total, uint32_t depth)
{
    if (!in_band(total, band->least) || depth > band->depth || (depth == band->depth && band->room == 0))
        return false;
    band->room -= depth == band->depth;
    return true;
}

static size_t fill_map(const struct profile *p, const uint64_t *totals, const uint32_t *depths, struct band *band,
                       uint32_t *map)
{
    size_t kept = 0;

    for (size_t i = 0; i < p->n_nodes; i++) {
        /* A caller has no fewer samples and is less deep, so that it stays, too. */
        if (is_root(p, i) || totals[i] >= band->least || band_takes(band, totals[i], depths[i]))
            map[i] = (uint32_t)kept++;
        else
            map[i] = map[p->nodes[i].parent];
    }
    return kept;
}

size_t prune_plan(const struct profile *p, uint32_t *map)
{
    uint64_t *totals = calloc(p->n_nodes, sizeof(*totals));
    uint32_t *depths = calloc(p->n_nodes, sizeof(*depths));
    struct band band = {0};
    size_t kept = 0;

    if (totals != NULL && depths != NULL) {
        sum_totals(p, totals);
        band.least = choose_least(p, totals);
        if (choose_band(p, totals, depths, find_depths(p, depths), &band) == 0)
            kept = fill_map(p, totals, depths, &band, map);
    }
    free(totals);
    free(depths);
    return kept;
}
