/*
 * Merges threads and their roots. Allocates everything before changing anything, so that running out of memory leaves
 * the profile as it was.
 */
#include "profile/fold.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/hash.h"
#include "profile/profile_private.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

static const char other_threads[] = "[other threads]", other_processes[] = "[other processes]";

/* The process of the thread "[other processes]". */
static const struct proc_info nobody = {.command = other_processes, .executable = "", .version_suffix = ""};

struct process_set {
    const struct proc_info **items;
    size_t n, cap;
    struct hash_table index;
};

enum fate { FATE_STAYS, FATE_THREAD, FATE_PROCESS }; /* of a frame: what it becomes, if it is a root */

struct fold {
    struct profile *p;
    struct process_set homes; /* processes of the threads that are kept, */
    struct process_set paths; /* and their ancestors as well */
    enum fate *fates;         /* of each frame */
    uint32_t thread_frame, process_frame;
    struct profile next; /* has the new nodes */
    uint32_t *map;       /* from the old nodes to them */
    uint32_t *targets;   /* of each thread: the thread that it is merged into; NONE: it is kept */
    uint32_t *numbers;   /* of each frame: its new position */
};

/* ---- sets of processes ---- */

/* As the profile compares them: a process has the root of an earlier one with the same PID and command line. */
static bool is_same(const struct proc_info *a, const struct proc_info *b)
{
    return a->pid == b->pid && a->command == b->command;
}

static uint64_t set_hash(const struct proc_info *process)
{
    return profile_frame_hash(&(struct profile_frame){.process = process});
}

/* The item of the set that is the same; NULL if there is none. */
static const struct proc_info *set_find(const struct process_set *s, const struct proc_info *process)
{
    uint64_t hash = set_hash(process);
    size_t step = 0;
    uint32_t at;

    while ((at = hash_table_next(&s->index, hash, &step)) != HASH_TABLE_NONE)
        if (is_same(s->items[at], process))
            return s->items[at];
    return NULL;
}

static int set_add(struct process_set *s, const struct proc_info *process)
{
    if (set_find(s, process) != NULL)
        return 0;
    if (hash_table_reserve_item(&s->index, (void **)&s->items, &s->cap, s->n, sizeof(struct proc_info *)) < 0)
        return ERR_NOMEM;
    s->items[s->n] = process;
    hash_table_add(&s->index, set_hash(process), (uint32_t)s->n++);
    return 0;
}

static void set_free(struct process_set *s)
{
    free(s->items);
    hash_table_free(&s->index);
}

/* ---- what to keep ---- */

/* More samples first, then newer ones: they may still run. */
static int compare_threads(const void *a, const void *b, void *arg)
{
    const struct profile *p = arg;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    uint64_t m = p->threads[x].total, n = p->threads[y].total;

    return m != n ? (m < n) - (m > n) : (x < y) - (x > y);
}

static int keep_process(struct fold *f, const struct proc_info *process)
{
    int r = set_add(&f->homes, process);

    for (size_t n = 0; r == 0 && process != NULL && n < PROFILE_MAX_ANCESTORS; process = process->parent_info, n++)
        r = set_add(&f->paths, process);
    return r;
}

/* Threads that are not kept get the target 0 for now. */
static int choose_kept(struct fold *f, size_t keep)
{
    struct profile *p = f->p;
    uint32_t *order = calloc(p->n_threads, sizeof(*order));
    size_t n = 0;
    int r = order == NULL ? ERR_NOMEM : 0;

    for (size_t i = 0; i < p->n_threads && r == 0; i++)
        if (!p->threads[i].is_other)
            order[n++] = (uint32_t)i;
    if (r == 0)
        qsort_r(order, n, sizeof(*order), compare_threads, p);
    for (size_t i = 0; i < n && i < keep && r == 0; i++) {
        f->targets[order[i]] = NONE;
        r = keep_process(f, p->threads[order[i]].process);
    }
    for (size_t i = 0; i < p->n_threads && r == 0; i++)
        if (p->threads[i].is_other &&
            (p->threads[i].process == &nobody || set_find(&f->homes, p->threads[i].process) != NULL))
            f->targets[i] = NONE;
    free(order);
    return r;
}

/* ---- the call tree ---- */

/* The frame of a root with this label; a new one if there is none. */
static int special_frame(struct profile *p, const char *label, uint32_t *ret)
{
    struct profile_frame frame = {0};
    int r;

    for (size_t i = 0; i < p->n_frames; i++)
        if (p->frames[i].label != NULL && p->frames[i].is_other && strcmp(p->frames[i].label, label) == 0) {
            *ret = (uint32_t)i;
            return 0;
        }
    frame = (struct profile_frame){.label = strdup(label), .is_other = true};
    if (frame.label == NULL)
        return ERR_NOMEM;
    r = profile_frame_append(p, &frame, 0, false, ret);
    if (r < 0)
        free(frame.label);
    return r;
}

static int choose_fates(struct fold *f)
{
    struct profile *p = f->p;
    int r = special_frame(p, other_threads, &f->thread_frame);

    if (r == 0)
        r = special_frame(p, other_processes, &f->process_frame);
    f->fates = calloc(p->n_frames, sizeof(*f->fates));
    f->numbers = calloc(p->n_frames, sizeof(*f->numbers));
    if (r < 0 || f->fates == NULL || f->numbers == NULL)
        return ERR_NOMEM;
    for (size_t i = 0; i < p->n_frames; i++)
        if (p->frames[i].process != NULL && set_find(&f->paths, p->frames[i].process) == NULL)
            f->fates[i] = FATE_PROCESS;
    for (size_t i = 0; i < p->n_threads && p->options.threads; i++)
        if (!p->threads[i].is_other && f->targets[i] != NONE)
            f->fates[p->threads[i].frame] = FATE_THREAD;
    return 0;
}

/* Roots below "[other processes]" disappear. */
static int map_node(struct fold *f, const struct profile_node *node, uint32_t *ret)
{
    uint32_t parent = f->map[node->parent], frame = node->frame;

    if (f->p->frames[frame].label != NULL && parent != 0 && f->next.nodes[parent].frame == f->process_frame) {
        *ret = parent;
        return 0;
    }
    if (f->fates[frame] != FATE_STAYS)
        frame = f->fates[frame] == FATE_THREAD ? f->thread_frame : f->process_frame;
    return profile_child(&f->next, parent, frame, ret);
}

static int build_nodes(struct fold *f)
{
    const struct profile *p = f->p;
    int r = grow_array((void **)&f->next.nodes, &f->next.index->cap_nodes, 1, sizeof(*p->nodes));

    f->map = calloc(p->n_nodes, sizeof(*f->map));
    if (r < 0 || f->map == NULL)
        return ERR_NOMEM;
    f->next.nodes[0] = p->nodes[0];
    f->next.n_nodes = 1;
    for (size_t i = 1; i < p->n_nodes && r == 0; i++) {
        r = map_node(f, &p->nodes[i], &f->map[i]);
        if (r < 0)
            break;
        f->next.nodes[f->map[i]].self += p->nodes[i].self;
        f->next.nodes[f->map[i]].samples += p->nodes[i].samples;
    }
    return r;
}

static void put_nodes(struct fold *f)
{
    struct profile *p = f->p;

    free(p->nodes);
    hash_table_free(&p->index->nodes);
    p->nodes = f->next.nodes;
    p->n_nodes = f->next.n_nodes;
    p->index->nodes = f->next.index->nodes;
    p->index->cap_nodes = f->next.index->cap_nodes;
    f->next.nodes = NULL;
    f->next.index->nodes = (struct hash_table){0};
    memset(&p->index->keys, 0, sizeof(p->index->keys));
}

/* Drops the frames that no node uses any more, with their labels. */
static void put_frames(struct fold *f)
{
    struct profile *p = f->p;
    size_t n = 0;

    for (size_t i = 0; i < p->n_frames; i++)
        f->numbers[i] = NONE;
    for (size_t i = 1; i < p->n_nodes; i++)
        f->numbers[p->nodes[i].frame] = 0;
    hash_table_clear(&p->index->frames);
    for (size_t i = 0; i < p->n_frames; i++) {
        struct profile_frame frame = p->frames[i];

        if (f->numbers[i] == NONE) {
            free(frame.label);
            continue;
        }
        if (frame.process != NULL) /* the one it had may be gone soon */
            frame.process = set_find(&f->paths, frame.process);
        f->numbers[i] = (uint32_t)n;
        p->frames[n] = frame;
        if (frame.func != NULL || frame.process != NULL)
            hash_table_add(&p->index->frames, profile_frame_hash(&frame), (uint32_t)n);
        n++;
    }
    p->n_frames = n;
    hash_table_clear(&p->index->nodes);
    for (size_t i = 1; i < p->n_nodes; i++) {
        p->nodes[i].frame = f->numbers[p->nodes[i].frame];
        hash_table_add(&p->index->nodes, hash_mix(p->nodes[i].parent, p->nodes[i].frame), (uint32_t)i);
    }
}

/* ---- the threads ---- */

/* The "[other threads]" thread of a process; adds one, for which there is room, if there is none. */
static uint32_t find_other(struct fold *f, const struct proc_info *process)
{
    struct profile *p = f->p;
    struct profile_thread other = {
        .process = process, .name = process == &nobody ? other_processes : other_threads, .is_other = true};
    uint64_t hash = profile_thread_hash(&other);
    size_t step = 0;
    uint32_t at;

    while ((at = hash_table_next(&p->index->threads, hash, &step)) != HASH_TABLE_NONE)
        if (p->threads[at].is_other && is_same(p->threads[at].process, process))
            return at;
    p->threads[p->n_threads] = other;
    hash_table_add(&p->index->threads, hash, (uint32_t)p->n_threads);
    return (uint32_t)p->n_threads++;
}

/* Sets the targets, and makes room for the spans. */
static int choose_targets(struct fold *f)
{
    struct profile *p = f->p;
    size_t n = p->n_threads, *spans;
    int r = grow_array((void **)&p->threads, &p->index->cap_threads, 2 * n + 1, sizeof(*p->threads));

    if (r == 0)
        r = hash_table_reserve(&p->index->threads, n + 1);
    spans = calloc(2 * n + 1, sizeof(*spans));
    if (r < 0 || spans == NULL) {
        free(spans);
        return ERR_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        const struct proc_info *process = p->threads[i].process;

        if (f->targets[i] == NONE)
            continue;
        process = set_find(&f->homes, process);
        f->targets[i] = find_other(f, process != NULL ? process : &nobody);
        spans[f->targets[i]] += p->threads[i].n_spans;
    }
    for (size_t i = n; i < p->n_threads; i++)
        f->targets[i] = NONE;
    for (size_t i = 0; i < p->n_threads && r == 0; i++)
        if (spans[i] > 0)
            r = grow_array((void **)&p->threads[i].spans, &p->threads[i].cap_spans, p->threads[i].n_spans + spans[i],
                           sizeof(struct profile_span));
    free(spans);
    return r;
}

static int compare_spans(const void *a, const void *b)
{
    const struct profile_span *x = a, *y = b;

    return (x->time_ns > y->time_ns) - (x->time_ns < y->time_ns);
}

/* The first span that may have to move. Those that were merged before are sorted, and most of them are earlier. */
static size_t find_unsorted(const struct profile_thread *t)
{
    size_t sorted = 1, first;
    uint64_t earliest = UINT64_MAX;

    while (sorted < t->n_spans && t->spans[sorted - 1].time_ns <= t->spans[sorted].time_ns)
        sorted++;
    for (size_t i = sorted; i < t->n_spans; i++)
        earliest = t->spans[i].time_ns < earliest ? t->spans[i].time_ns : earliest;
    for (first = sorted; first > 0 && t->spans[first - 1].time_ns > earliest; first--)
        continue;
    return first;
}

/* The spans of several threads may overlap, but the formats show one stack at a time. */
static void sort_spans(struct profile_thread *t)
{
    size_t first = t->n_spans > 0 ? find_unsorted(t) : 0;

    if (first < t->n_spans)
        qsort(t->spans + first, t->n_spans - first, sizeof(*t->spans), compare_spans);
    for (size_t i = 1; i < t->n_spans; i++)
        if (t->spans[i - 1].end_ns > t->spans[i].time_ns)
            t->spans[i - 1].end_ns = t->spans[i].time_ns;
}

static void merge_spans(struct profile *p, struct profile_thread *from, struct profile_thread *to)
{
    if (from->n_spans > 0)
        memcpy(to->spans + to->n_spans, from->spans, from->n_spans * sizeof(*from->spans));
    to->n_spans += from->n_spans;
    to->total += from->total;
    free(from->spans);
    from->spans = NULL;
    p->folded += !from->is_other;
}

static void put_threads(struct fold *f)
{
    struct profile *p = f->p;
    size_t n = 0;

    for (size_t i = 0; i < p->n_threads; i++)
        for (size_t k = 0; k < p->threads[i].n_spans; k++)
            p->threads[i].spans[k].node = f->map[p->threads[i].spans[k].node];
    for (size_t i = 0; i < p->n_threads; i++)
        if (f->targets[i] != NONE)
            merge_spans(p, &p->threads[i], &p->threads[f->targets[i]]);
    hash_table_clear(&p->index->threads);
    for (size_t i = 0; i < p->n_threads; i++) {
        struct profile_thread t = p->threads[i];

        if (f->targets[i] != NONE)
            continue;
        if (t.is_other && t.process != &nobody)
            t.process = set_find(&f->homes, t.process);
        t.root = f->map[t.root];
        if (p->options.threads && !t.is_other)
            t.frame = f->numbers[t.frame];
        if (t.is_other)
            sort_spans(&t);
        p->threads[n] = t;
        hash_table_add(&p->index->threads, profile_thread_hash(&t), (uint32_t)n++);
    }
    p->n_threads = n;
}

/* ---- all of it ---- */

static void fold_free(struct fold *f)
{
    set_free(&f->homes);
    set_free(&f->paths);
    free(f->fates);
    free(f->numbers);
    free(f->map);
    free(f->targets);
    free(f->next.nodes);
    if (f->next.index != NULL)
        hash_table_free(&f->next.index->nodes);
    free(f->next.index);
}

int fold_threads(struct profile *p, size_t keep)
{
    struct fold f = {.p = p, .next.index = calloc(1, sizeof(*p->index))};
    int r = ERR_NOMEM;

    f.targets = calloc(2 * p->n_threads + 1, sizeof(*f.targets));
    if (f.targets != NULL && f.next.index != NULL)
        r = choose_kept(&f, keep);
    if (r == 0)
        r = choose_fates(&f);
    if (r == 0)
        r = build_nodes(&f);
    if (r == 0)
        r = choose_targets(&f);
    if (r == 0) {
        put_nodes(&f);
        put_frames(&f);
        put_threads(&f);
    }
    fold_free(&f);
    return r;
}
