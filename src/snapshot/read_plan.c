/*
 * What a reading used -> what the next one fetches in its first call.
 */
#include "base/grow.h"
#include "snapshot/snapshot_private.h"
#include "snapshot/successors.h"

#include <stdlib.h>

#define NEAR  1024 /* a pivot this close behind a block is fetched with it: each piece of a call costs */
#define OLDER 4    /* SNAPSHOT_TWICE: unused views that are kept, since the thread may return to them */

void read_plan_free(struct read_plan *plan)
{
    free(plan->items);
    free(plan->next);
    *plan = (struct read_plan){0};
}

struct budget {
    size_t blocks, views, reads, block_bytes, read_bytes;
};

static void plan_add(struct read_plan *plan, const struct range *r, uint32_t more_flags, struct budget *b)
{
    bool is_block = r->flags & IS_BLOCK, pivot = !is_block && r->used ? r->as_pivot : r->flags & SNAPSHOT_PIVOT;
    uint32_t len = is_block ? r->wanted : r->len;
    uint32_t flags = (r->flags & ~(IS_OLDER | SNAPSHOT_PIVOT)) | (pivot ? SNAPSHOT_PIVOT : 0) | more_flags;

    if (is_block) {
        if (b->blocks == BLOCKS_MAX || len > BLOCK_MAX - b->block_bytes)
            return;
        b->blocks++;
        b->block_bytes += len;
    } else if (r->flags & IS_VIEW) {
        /* A pivot just behind a pivot block is read with it. */
        for (size_t i = 0; pivot && i < b->blocks; i++) {
            struct plan_range *block = &plan->items[i];

            if (block->flags & SNAPSHOT_PIVOT && r->addr >= block->addr && r->addr - block->addr < NEAR) {
                if (block->len < r->addr - block->addr + len)
                    block->len = (uint32_t)(r->addr - block->addr + len);
                return;
            }
        }
        if (b->views == VIEWS_MAX)
            return;
        b->views++;
    } else {
        if (b->reads == READS_MAX || len > READS_LEN - b->read_bytes)
            return;
        b->reads++;
        b->read_bytes += len;
    }
    if (grow_array((void **)&plan->items, &plan->cap, plan->n + 1, sizeof(*plan->items)) == 0)
        plan->items[plan->n++] = (struct plan_range){r->addr, len, flags};
}

/* What another reading may need again: the plan's own first, then what was kept before. */
static void plan_keep_older(struct snapshot *s, struct budget *b)
{
    size_t kept = 0;

    for (int pass = 0; pass < 2; pass++)
        for (size_t i = s->n_planned; i-- > 0 && kept < OLDER;) {
            const struct range *r = &s->ranges[i];

            if (r->used || !(r->flags & IS_VIEW) || r->flags & SNAPSHOT_PIVOT || !!(r->flags & IS_OLDER) != (pass == 1))
                continue;
            plan_add(s->plan, r, IS_OLDER, b);
            kept++;
        }
}

static void note_successors(struct snapshot *s)
{
    addr_t *views = s->stride ? malloc((s->n_used + 1) * sizeof(*views)) : NULL;
    size_t n = 0;

    for (size_t i = 0; views && i < s->n_used; i++)
        if (s->ranges[s->used[i]].flags & IS_VIEW && !(s->ranges[s->used[i]].flags & SNAPSHOT_PIVOT))
            views[n++] = s->ranges[s->used[i]].addr;
    if (views)
        successors_note(&s->plan->next, views, n);
    free(views);
}

static void plan_drop(struct read_plan *plan, uint32_t flags)
{
    size_t kept = 0;

    for (size_t i = 0; i < plan->n; i++)
        if (!(plan->items[i].flags & flags))
            plan->items[kept++] = plan->items[i];
    /* If there were no older ranges to drop, drop the whole plan. */
    plan->n = kept < plan->n ? kept : 0;
}

void snapshot_end(struct snapshot *s, bool complete)
{
    struct read_plan *plan = s->plan;
    struct budget b = {0};

    if (!plan)
        return;
    s->plan = NULL;
    if (s->failed) {
        plan_drop(plan, IS_OLDER);
        return;
    }
    s->plan = plan;
    plan->n = 0;
    for (int pass = 0; pass < 2; pass++) /* blocks come first */
        for (size_t i = 0; i < s->n_used; i++) {
            const struct range *r = &s->ranges[s->used[i]];

            if (!!(r->flags & IS_BLOCK) == (pass == 0) && !(r->flags & IS_ONCE))
                plan_add(plan, r, 0, &b);
        }
    for (size_t i = 0; !complete && i < s->n_planned; i++)
        if (!s->ranges[i].used && s->ranges[i].at != NOT_READ && !(s->ranges[i].flags & (IS_ONCE | IS_BLOCK)))
            plan_add(plan, &s->ranges[i], 0, &b);
    if (complete && s->mode == SNAPSHOT_TWICE)
        plan_keep_older(s, &b);
    note_successors(s);
    s->plan = NULL;
}
