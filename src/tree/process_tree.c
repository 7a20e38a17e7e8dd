/*
 * The list of processes in the tree, and questions about it.
 */
#include "tree/process_tree_private.h"

#include "base/hash.h"
#include "base/hash_table.h"
#include "base/log.h"
#include "tree/profilers.h"

#include <stdlib.h>
#include <unistd.h>

#define MAX_PROCESSES 65536

struct tree_entry *process_tree_find(const struct process_tree *t, pid_t pid)
{
    struct tree_entry *found = NULL;
    size_t step = 0;
    uint32_t at;

    /* If the kernel reuses a pid before we drop the dead process, the tree has two entries. Return the newer one. */
    while ((at = hash_table_next(&t->by_pid, hash_mix(0, (uint64_t)pid), &step)) != HASH_TABLE_NONE)
        if (t->items[at].pid == pid && (!found || found < &t->items[at]))
            found = &t->items[at];
    return found;
}

int process_tree_insert(struct process_tree *t, pid_t pid, const struct proc_stat *st, struct process_node *parent)
{
    struct process_node *node;

    if (t->n == MAX_PROCESSES)
        return ERR_BOUNDS;
    if (hash_table_reserve_item(&t->by_pid, (void **)&t->items, &t->cap, t->n, sizeof(*t->items)) < 0)
        return ERR_NOMEM;
    node = process_node_new(parent, pid);
    if (!node)
        return ERR_NOMEM;
    t->items[t->n++] = (struct tree_entry){
        .pid = pid, .start_time = st->start_time, .image = st->image, .node = node, .error = ERR_STARTING};
    hash_table_add(&t->by_pid, hash_mix(0, (uint64_t)pid), (uint32_t)t->n - 1);
    t->items[t->n - 1].is_profiler = parent && profilers_match(pid);
    log_changed(LOG_LEVEL_DEBUG, "tree", pid, st->start_time, "pid %d: found, child of %d%s", (int)pid, (int)st->parent,
                t->items[t->n - 1].is_profiler ? ", a profiler: left out" : "");
    return 0;
}

static void free_process(const struct process_tree *t, struct tree_entry *e)
{
    if (e->process)
        e->process = t->free_process(e->process);
}

void process_tree_remember_ended(struct process_tree *t, pid_t pid, struct process_node *node)
{
    struct past_process *m = &t->past[t->n_past++ % PROCESS_TREE_PAST];

    process_node_release(m->node);
    *m = (struct past_process){pid, node};
}

int process_tree_drop_dead(struct process_tree *t)
{
    size_t kept = 1;

    for (size_t i = 1; i < t->n; i++) {
        struct tree_entry *e = &t->items[i];

        if (!e->dead) {
            t->items[kept++] = *e;
            continue;
        }
        log_changed(LOG_LEVEL_DEBUG, "tree", e->pid, e->start_time, "pid %d: exited", (int)e->pid);
        free_process(t, e);
        if (e->is_profiler)
            process_node_release(e->node);
        else
            process_tree_remember_ended(t, e->pid, e->node);
    }
    if (kept >= t->n)
        return 0;
    t->n = kept;
    hash_table_clear(&t->by_pid);
    for (size_t i = 0; i < t->n; i++)
        hash_table_add(&t->by_pid, hash_mix(0, (uint64_t)t->items[i].pid), (uint32_t)i);
    return 0;
}

static void close_watch(struct process_tree *t)
{
    if (t->watching) {
        new_pids_close(&t->new_pids);
        proc_connector_close(&t->connector);
    }
    t->watching = false;
}

void process_tree_free(struct process_tree *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free_process(t, &t->items[i]);
        process_node_release(t->items[i].node);
    }
    for (size_t i = 0; i < PROCESS_TREE_PAST; i++)
        process_node_release(t->past[i].node);
    process_node_free_all(&t->pinned);
    close_watch(t);
    free(t->prior_children);
    free(t->items);
    hash_table_free(&t->by_pid);
    *t = (struct process_tree){.sampler = t->sampler, .subprocesses = t->subprocesses, .max_depth = t->max_depth};
}

const struct proc_info *process_tree_entry_info(const struct tree_entry *e)
{
    return &e->node->info;
}

bool process_tree_root_alive(const struct process_tree *t)
{
    return t->n && proc_is_alive(t->items[0].pid, t->items[0].start_time);
}

bool process_tree_is_single(const struct process_tree *t)
{
    return !t->subprocesses && t->n == 1 && t->items[0].process && !t->items[0].recheck && !t->items[0].dead;
}

bool process_tree_has_only_root(const struct process_tree *t)
{
    for (size_t i = 1; i < t->n; i++)
        if (!t->items[i].is_profiler && !t->items[i].dead)
            return false;
    return true;
}

bool process_tree_has_python(const struct process_tree *t)
{
    bool any = !t->one_at_a_time || !t->followed.pid || process_tree_root_alive(t);

    for (size_t i = 1; i < t->n; i++) {
        const struct tree_entry *e = &t->items[i];

        if (!e->is_profiler && !e->dead && (e->process || !e->rejected) &&
            (any || e->process || e->image == t->followed.image))
            return true;
    }
    return false;
}

struct tree_entry *process_tree_followed(const struct process_tree *t)
{
    struct tree_entry *e = t->followed.pid ? process_tree_find(t, t->followed.pid) : NULL;

    return e && e->start_time == t->followed.start_time && !e->dead ? e : NULL;
}

int process_tree_keep_root(struct process_tree *t)
{
    for (size_t i = 1; i < t->n; i++)
        t->items[i].dead = true;
    close_watch(t);
    t->subprocesses = false;
    return process_tree_drop_dead(t);
}

bool process_tree_is_our_ancestor(const struct process_tree *t, const struct tree_entry *e)
{
    const struct tree_entry *us = process_tree_find(t, getpid());

    for (const struct process_node *node = us ? us->node : NULL; node && node->up; node = node->up)
        if (node == e->node)
            return !e->process;
    return false;
}

int process_tree_handle_exec(struct process_tree *t, struct tree_entry *e, const struct proc_stat *st)
{
    struct process_node *node = e->node;

    log_info("tree", "pid %d: has executed another program", (int)e->pid);
    free_process(t, e);
    e->image = st->image;
    e->rejected = false;
    e->retry_ns = 0;
    e->error = ERR_STARTING;
    if (node->pinned) { /* traces were emitted with the old command line, which stays */
        node = process_node_new(node->up, e->pid);
        if (!node)
            return ERR_NOMEM;
        process_node_release(e->node);
        e->node = node;
    }
    e->is_profiler = node->up && profilers_match(e->pid);
    return 0;
}
