/*
 * Each thread waits for at most one other thread, so the waits form chains, and each chain ends in a cycle or in a thread that waits
 * for something else.
 */
#include "sample/verdict.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

#define NOBODY ((size_t)-1)
#define ORPHAN ((size_t)-2) /* a thread that has exited */

#define CHAIN_MAX 64

struct graph {
    const struct trace *traces;
    size_t n;
    size_t *next;    /* the thread that each one waits for, NOBODY or ORPHAN */
    size_t *reached; /* the walk that came by last, plus one */
};

/* Positions sorted by thread ID. */
struct by_id {
    uint64_t thread_id;
    size_t at;
};

static int compare_ids(const void *a, const void *b)
{
    const struct by_id *x = a, *y = b;

    if (x->thread_id != y->thread_id)
        return x->thread_id < y->thread_id ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* A lock of multiprocessing may be held by another process: fork() copies what it says of the owner. */
static const struct awaited_thread *owner_of(const struct trace *t)
{
    const struct awaited_object *object = t->wait ? &t->wait->object : NULL;

    return object && object->owner.known && object->kind != AWAITED_SHARED_LOCK ? &object->owner : NULL;
}

static bool is_pipe(const struct awaited_file *f)
{
    return f->kind && strcmp(f->kind, "pipe") == 0;
}

/* NOBODY if interpreters have GILs of their own: which of them a thread waits for is unknown. */
static size_t find_gil_holder(const struct graph *g)
{
    size_t found = NOBODY;

    for (size_t i = 0; i < g->n; i++) {
        if (!g->traces[i].owns_gil)
            continue;
        if (found != NOBODY)
            return NOBODY;
        found = i;
    }
    return found;
}

static void link_threads(struct graph *g, const struct by_id *ids)
{
    size_t holder = find_gil_holder(g);

    for (size_t i = 0; i < g->n; i++) {
        const struct awaited_thread *owner = owner_of(&g->traces[i]);
        struct by_id key = {0};
        size_t low = 0, high = g->n;

        g->next[i] = g->traces[i].waits_for_gil && holder != i ? holder : NOBODY;
        if (!owner)
            continue;
        if (owner->exited) {
            g->next[i] = ORPHAN;
            continue;
        }
        key.thread_id = owner->thread_id;
        while (low < high) { /* the first with this ID */
            size_t mid = low + (high - low) / 2;

            if (ids[mid].thread_id < key.thread_id)
                low = mid + 1;
            else
                high = mid;
        }
        if (low < g->n && ids[low].thread_id == key.thread_id)
            g->next[i] = ids[low].at;
    }
}

/* True if it is proven that the thread waits for the next one. */
static bool is_certain(const struct trace *t)
{
    const struct awaited_thread *owner = owner_of(t);

    return owner && owner->certain && t->wait->object.certain;
}

/* A time limit ends the wait. A thread that has run meanwhile may wait for something else by now, and a thread of a deadlock does not
 * run. Those that wait for the GIL wake up now and then. */
static bool may_end(const struct trace *t)
{
    if (t->waits_for_gil)
        return false;
    return !t->wait || t->wait->has_left || t->wait->has_limit || !t->wait->object.confirmed;
}

/* From `from` on, until the chain ends or comes back to `from`. */
static void collect(const struct graph *g, size_t from, struct verdict *ret)
{
    size_t i = from;

    ret->n = 0;
    ret->certain = true;
    do {
        if (ret->n < VERDICT_THREADS_MAX)
            ret->threads[ret->n] = &g->traces[i];
        ret->n++;
        if (g->next[i] != NOBODY)
            ret->certain &= is_certain(&g->traces[i]);
        i = g->next[i];
    } while (i != NOBODY && i != ORPHAN && i != from && ret->n <= g->n);
}

/* How many threads lead to one of those that `walk` has reached. */
static size_t count_others(struct graph *g, size_t members, size_t walk)
{
    size_t found = 0;

    for (size_t i = 0; i < g->n; i++) {
        size_t at = i;

        for (size_t steps = 0; at < g->n && g->reached[at] != walk && steps <= g->n && steps < CHAIN_MAX; steps++)
            at = g->next[at];
        found += at < g->n && g->reached[at] == walk;
    }
    return found - members;
}

static void mark(struct graph *g, size_t from, size_t walk)
{
    size_t i = from, steps = 0;

    do {
        g->reached[i] = walk;
        i = g->next[i];
    } while (i < g->n && i != from && ++steps <= g->n);
}

/* The first cycle, or the first certain one if there is any. The cycle begins with the thread that is listed first. */
static bool find_cycle(struct graph *g, struct verdict *ret)
{
    bool found = false;

    for (size_t i = 0; i < g->n; i++) {
        size_t at = i, first;
        struct verdict v = {.kind = VERDICT_DEADLOCK};
        bool ends = false;

        while (at < g->n && !g->reached[at]) {
            g->reached[at] = i + 1;
            at = g->next[at];
        }
        if (at >= g->n || g->reached[at] != i + 1)
            continue;
        first = at;
        for (size_t k = g->next[at]; k != at; k = g->next[k])
            first = k < first ? k : first;
        for (size_t k = first;;) {
            ends |= may_end(&g->traces[k]) || g->traces[k].active;
            k = g->next[k];
            if (k == first)
                break;
        }
        collect(g, first, &v);
        if (ends || (found && !v.certain))
            continue;
        *ret = v;
        found = true;
        if (v.certain)
            break;
    }
    return found;
}

static bool find_orphan(const struct graph *g, struct verdict *ret)
{
    for (size_t i = 0; i < g->n; i++) {
        if (g->next[i] != ORPHAN || may_end(&g->traces[i]))
            continue;
        ret->kind = VERDICT_ORPHAN;
        collect(g, i, ret);
        return true;
    }
    return false;
}

/* The only process that can end this wait. */
static const struct awaited_process *awaited_process(const struct wait_reason *w)
{
    if (!w || w->state == TRACE_STOPPED)
        return NULL;
    if (w->n_processes)
        return w->n_processes == 1 ? &w->processes[0] : NULL;
    return w->n_files == 1 && w->files[0].only_other ? &w->files[0].others[0] : NULL;
}

/* That process waits for a pipe of ours, and the thread that waits for it does not use the other end. Another thread may. */
static bool find_child(const struct graph *g, struct verdict *ret)
{
    for (size_t i = 0; i < g->n; i++) {
        const struct wait_reason *w = g->traces[i].wait;
        const struct awaited_process *a = awaited_process(w);

        if (!a || !a->awaits_us || a->is_stopped || may_end(&g->traces[i]))
            continue;
        *ret = (struct verdict){.kind = VERDICT_CHILD,
                                .certain = a->both_single && a->is_pipe && (w->n_processes || is_pipe(&w->files[0])),
                                .threads = {&g->traces[i]},
                                .n = 1};
        return true;
    }
    return false;
}

/* The thread that `from` waits for in the end; NOBODY if there is none, or if the chain is too long. */
static size_t end_of_chain(const struct graph *g, size_t from)
{
    size_t at = from;

    for (size_t steps = 0; steps < CHAIN_MAX && at < g->n; steps++) {
        if (g->next[at] == NOBODY)
            return at;
        at = g->next[at];
    }
    return NOBODY;
}

/* All threads are stopped, or wait in the end for one process that is. The other end of a socket may be that of a call with a time
 * limit, and a file lock may belong to several processes. */
static bool find_stopped(const struct graph *g, struct verdict *ret)
{
    const struct awaited_process *found = NULL;
    bool certain = true;
    size_t n_stopped = 0;

    for (size_t i = 0; i < g->n; i++) {
        size_t end = end_of_chain(g, i);
        const struct wait_reason *w = end == NOBODY ? NULL : g->traces[end].wait;
        const struct awaited_process *a = awaited_process(w);

        if (w && w->state == TRACE_STOPPED) {
            n_stopped += end == i && w->object.confirmed;
            continue;
        }
        if (!a || !a->is_stopped || (found && found->pid != a->pid) || may_end(&g->traces[end]))
            return false;
        certain &= w->state == TRACE_WAITING_FOR_CHILD || (w->n_files == 1 && !w->n_processes && is_pipe(&w->files[0]));
        for (size_t at = i; at != end; at = g->next[at]) {
            if (!g->traces[at].waits_for_gil && may_end(&g->traces[at]))
                return false;
            certain &= is_certain(&g->traces[at]);
        }
        found = a;
    }
    if (!g->n || (found ? n_stopped : n_stopped != g->n))
        return false;
    *ret = (struct verdict){
        .kind = VERDICT_STOPPED, .certain = certain, .threads = {&g->traces[0]}, .n = 1, .process = found};
    return true;
}

static bool is_active(const struct graph *g)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->traces[i].active)
            return true;
    return false;
}

/* Nothing runs but the holder of the GIL. */
static bool find_gil(const struct graph *g, struct verdict *ret)
{
    size_t holder = find_gil_holder(g), n = 0;

    for (size_t i = 0; i < g->n; i++) {
        if (g->traces[i].active && i != holder)
            return false;
        n += g->traces[i].waits_for_gil;
    }
    if (holder == NOBODY || !n)
        return false;
    *ret = (struct verdict){.kind = VERDICT_GIL,
                            .certain = true,
                            .threads = {&g->traces[holder]},
                            .n = 1,
                            .n_others = n,
                            .all_others = n + 1 == g->n};
    return true;
}

/* True if the chain of the main thread does not end. */
static bool ends_in_cycle(const struct graph *g)
{
    size_t at = 0;

    for (size_t i = 0; i <= g->n && at < g->n; i++)
        at = g->next[at];
    return at < g->n;
}

/* Nothing runs: what the main thread waits for, in the end. */
static bool find_rest(const struct graph *g, struct verdict *ret)
{
    if (g->n < 2 || !g->traces[0].wait) /* of a single thread, the line below its name says it all */
        return false;
    ret->kind = VERDICT_WAITS;
    collect(g, 0, ret);
    if (ends_in_cycle(g)) /* which a time limit will end */
        *ret = (struct verdict){0};
    return ret->n > 0;
}

int verdict_find(const struct trace *traces, size_t n, struct verdict *ret)
{
    struct graph g = {.traces = traces, .n = n};
    struct by_id *ids = calloc(n + 1, sizeof(*ids));
    size_t from = 0;

    g.next = calloc(n + 1, sizeof(*g.next));
    g.reached = calloc(n + 1, sizeof(*g.reached));
    *ret = (struct verdict){0};
    if (!ids || !g.next || !g.reached) {
        free(ids);
        free(g.next);
        free(g.reached);
        return ERR_NOMEM;
    }
    for (size_t i = 0; i < n; i++)
        ids[i] = (struct by_id){traces[i].thread_id, i};
    qsort(ids, n, sizeof(*ids), compare_ids);
    link_threads(&g, ids);
    if (!find_cycle(&g, ret) && !find_orphan(&g, ret) && !find_gil(&g, ret) && !is_active(&g) &&
        !find_stopped(&g, ret) && !find_child(&g, ret))
        find_rest(&g, ret);
    if (ret->n && ret->kind != VERDICT_GIL && ret->kind != VERDICT_STOPPED) {
        from = (size_t)(ret->threads[0] - traces);
        mark(&g, from, n + 1);
        ret->n_others = count_others(&g, ret->n, n + 1);
    }
    free(ids);
    free(g.next);
    free(g.reached);
    return 0;
}
