/*
 * Removes nodes of a call tree. prune_rarest keeps all with at least `threshold` samples, then as many as fit of those with
 * half as many.
 */
#include "profile/prune.h"

#include "base/err.h"
#include "base/hash.h"
#include "profile/profile_private.h"

#include <stdlib.h>
#include <string.h>

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

/*
 * Keeps at most half of the nodes: those with the most samples, counting their callees. The callers of a kept node are
 * kept too. Synthetic roots are always kept, and may exceed the half. map[i] is the new index of node i or, if i is
 * removed, of its nearest caller that is kept. Returns the number of kept nodes, or 0 if out of memory.
 */
static size_t plan_rarest(const struct profile *p, uint32_t *map)
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

/* The same for nodes with fewer than `least` samples, synthetic roots among them. */
static size_t plan_below(const struct profile *p, uint64_t least, uint32_t *map)
{
    uint64_t *totals = calloc(p->n_nodes, sizeof(*totals));
    size_t kept = 0;

    if (totals == NULL)
        return 0;
    sum_totals(p, totals);
    for (size_t i = 0; i < p->n_nodes; i++)
        map[i] = i == 0 || totals[i] >= least ? (uint32_t)kept++ : map[p->nodes[i].parent];
    free(totals);
    return kept;
}

/* Moves the nodes that stay to the front and adds the samples of the others to their callers. */
static void compact(struct profile *p, const uint32_t *map, size_t kept)
{
    for (size_t i = 1; i < p->n_nodes; i++) {
        struct profile_node node = p->nodes[i];
        bool stays = map[i] != map[node.parent];

        if (stays) {
            p->nodes[map[i]] = (struct profile_node){map[node.parent], node.frame, node.self, node.samples};
            continue;
        }
        p->nodes[map[i]].self += node.self;
        p->nodes[map[i]].samples += node.samples;
    }
    for (size_t i = 0; i < p->n_threads; i++) {
        struct profile_thread *t = &p->threads[i];

        t->root = map[t->root];
        for (size_t k = 0; k < t->n_spans; k++)
            t->spans[k].node = map[t->spans[k].node];
    }
    p->n_nodes = kept;
}

static void index_nodes(struct profile *p)
{
    struct profile_index *index = p->index;

    memset(&index->keys, 0, sizeof(index->keys));
    hash_table_clear(&index->nodes);
    for (size_t i = 1; i < p->n_nodes; i++)
        hash_table_add(&index->nodes, hash_mix(p->nodes[i].parent, p->nodes[i].frame), (uint32_t)i);
}

/* Removes the rarest nodes, or those with fewer than `least` samples. */
static int prune(struct profile *p, uint64_t least)
{
    uint32_t *map = calloc(p->n_nodes, sizeof(*map));
    size_t kept = map == NULL ? 0 : least > 0 ? plan_below(p, least, map) : plan_rarest(p, map);

    if (kept > 0) {
        compact(p, map, kept);
        index_nodes(p);
    }
    free(map);
    return kept > 0 ? 0 : ERR_NOMEM;
}

int prune_rarest(struct profile *p)
{
    size_t before = p->n_nodes;
    int r = prune(p, 0);

    p->pruned += before - p->n_nodes;
    return r;
}

int prune_below(struct profile *p, uint64_t least)
{
    return least > 0 ? prune(p, least) : 0;
}
