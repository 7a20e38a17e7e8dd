/*
 * Chooses which nodes of a call tree to keep: all with at least `threshold` samples, then as many as fit of those with
 * half as many.
 */
#include "profile/prune.h"

#include "base/err.h"

#include <stdlib.h>

/* Samples of each node including its callees. A parent's index is lower than its children's. */
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

/* The lowest power of two that at most half of the nodes reach. */
static uint64_t choose_threshold(const struct profile *p, const uint64_t *totals)
{
    uint64_t threshold = 1;
    size_t kept;

    do {
        kept = 0;
        threshold *= 2;
        for (size_t i = 0; i < p->n_nodes; i++)
            kept += totals[i] >= threshold;
    } while (kept > p->n_nodes / 2 && threshold < UINT64_MAX / 2);
    return threshold;
}

/*
 * The band of nodes with at least half of `threshold` samples, but fewer than `threshold`. It can hold most of the
 * tree: many threads that all wait in deep stacks. Shallow nodes are kept first, so that each stack keeps its outer
 * frames.
 */
struct band {
    uint64_t threshold;
    uint32_t depth; /* all nodes of the band above this depth fit */
    size_t room;    /* and this many at this depth */
};

static bool is_in_band(uint64_t total, uint64_t threshold)
{
    return total < threshold && total >= threshold / 2;
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
        kept += totals[i] >= band->threshold;
        counts[depths[i]] += is_in_band(totals[i], band->threshold);
    }
    band->room = p->n_nodes / 2 > kept ? p->n_nodes / 2 - kept : 0;
    for (band->depth = 0; band->depth < max_depth && counts[band->depth] <= band->room; band->depth++)
        band->room -= counts[band->depth];
    free(counts);
    return 0;
}

static size_t fill_map(const struct profile *p, const uint64_t *totals, const uint32_t *depths, struct band *band,
                       uint32_t *map)
{
    size_t kept = 0;

    for (size_t i = 0; i < p->n_nodes; i++) {
        bool keep = is_root(p, i) || totals[i] >= band->threshold;

        if (!keep && is_in_band(totals[i], band->threshold) && depths[i] <= band->depth) {
            keep = depths[i] < band->depth || band->room > 0;
            band->room -= keep && depths[i] == band->depth;
        }
        /* A caller has no fewer samples and is shallower, so it is kept if its callee is. */
        map[i] = keep ? (uint32_t)kept++ : map[p->nodes[i].parent];
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
        band.threshold = choose_threshold(p, totals);
        if (choose_band(p, totals, depths, find_depths(p, depths), &band) == 0)
            kept = fill_map(p, totals, depths, &band, map);
    }
    free(totals);
    free(depths);
    return kept;
}
