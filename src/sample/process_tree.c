/*
 * A process and its descendants: the list of processes, attaching to each, and sampling all of them.
 */
#include "sample/process_tree_private.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/hash_table.h"
#include "base/log.h"
#include "target/access.h"
#include "tree/profilers.h"

#include <stdlib.h>
#include <unistd.h>

#define MAX_PROCESSES 65536
#define RETRY_NS      (20 * NS_PER_MS)
#define POLL_NS       (2 * NS_PER_MS)

/* ---- the list ---- */

struct tree_entry *process_tree_find(const struct process_tree *t, pid_t pid)
{
    struct tree_entry *found = NULL;
    size_t step = 0;
    uint32_t at;

    /* A pid can be there twice, when it is in use again before the dead process is dropped: the newer one counts. */
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
        process_free(e->process);
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

void process_tree_free(struct process_tree *t)
{
    for (size_t i = 0; i < t->n; i++) {
        process_free(t->items[i].process);
        process_node_release(t->items[i].node);
    }
    for (size_t i = 0; i < PROCESS_TREE_PAST; i++)
        process_node_release(t->past[i].node);
    process_node_free_all(&t->pinned);
    if (t->watching) {
        new_pids_close(&t->new_pids);
        proc_connector_close(&t->connector);
    }
    free(t->prior_children);
    free(t->items);
    hash_table_free(&t->by_pid);
    *t = (struct process_tree){.sampler = t->sampler, .subprocesses = t->subprocesses, .max_depth = t->max_depth};
}

const struct proc_info *process_tree_entry_info(const struct tree_entry *e)
{
    return &e->node->info;
}

static bool entry_alive(const struct tree_entry *e)
{
    return e->process ? process_alive(e->process) : proc_is_alive(e->pid, e->start_time);
}

bool process_tree_root_alive(const struct process_tree *t)
{
    return t->n && entry_alive(&t->items[0]);
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
    for (size_t i = 1; i < t->n; i++)
        if (!t->items[i].is_profiler && !t->items[i].dead && (t->items[i].process || !t->items[i].rejected))
            return true;
    return false;
}

bool process_tree_is_our_ancestor(const struct process_tree *t, const struct tree_entry *e)
{
    const struct tree_entry *us = process_tree_find(t, getpid());

    for (const struct process_node *node = us ? us->node : NULL; node && node != t->items[0].node; node = node->up)
        if (node == e->node)
            return !e->process;
    return false;
}

/* ---- attaching ---- */

/* True when the process may still become a Python process that can be read. */
static bool may_change(const struct tree_entry *e, int r)
{
    if (r == ERR_STARTING || r == ERR_READ || r == ERR_TORN)
        return true;
    return r == ERR_NOT_PYTHON && access_is_starting(e->pid);
}

/* The attached process that `e` was forked from, if neither has called exec since. */
static const struct process *forked_from(const struct process_tree *t, const struct tree_entry *e)
{
    const struct tree_entry *parent = e->node->up ? process_tree_find(t, e->node->up->info.pid) : NULL;

    return parent && parent->process && e->image && parent->image == e->image ? parent->process : NULL;
}

static int attach(struct process_tree *t, struct tree_entry *e, uint64_t patience_ns, struct err_note *note)
{
    const struct process *like = forked_from(t, e);
    int r = like ? process_attach_fork(t->sampler, e->pid, like, &e->process) : ERR_STARTING;

    if (r < 0 && r != ERR_NOMEM)
        r = process_attach(t->sampler, e->pid, patience_ns, &e->process, note);
    if (r == 0) {
        process_move_info(e->process, &e->node->info);
        t->has_python = true;
    }
    return r;
}

int process_tree_try_attach(struct process_tree *t, struct tree_entry *e, uint64_t patience_ns, struct err_note *note)
{
    struct proc_stat st;
    int r;

    if (e->process || e->is_profiler)
        return 0;
    if (proc_stat_read(e->pid, 0, &st) == 0 && st.start_time == e->start_time)
        e->image = st.image; /* it may have called exec since it was added */
    r = attach(t, e, patience_ns, note);
    e->error = r;
    if (r == 0 || r == ERR_NOMEM)
        return r;
    if (r == ERR_NO_PROCESS || r == ERR_GONE)
        e->dead = true;
    e->rejected = !may_change(e, r);
    if (e->rejected)
        log_changed(LOG_LEVEL_DEBUG, "tree", e->pid, e->start_time, "pid %d: not tried again: %s", (int)e->pid,
                    err_name(r));
    e->retry_ns = clock_now_ns() + RETRY_NS;
    return process_node_read_command(e->node) < 0 ? ERR_NOMEM : r;
}

int process_tree_handle_exec(struct tree_entry *e, const struct proc_stat *st)
{
    struct process_node *node = e->node;

    log_info("tree", "pid %d: has executed another program", (int)e->pid);
    e->process = process_free(e->process);
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

int process_tree_attach(struct process_tree *t, struct tree_entry *e, uint64_t patience_ns)
{
    uint64_t deadline = clock_now_ns() + patience_ns;
    int r = process_tree_try_attach(t, e, 0, NULL);

    while (r == ERR_STARTING && clock_now_ns() < deadline) {
        clock_sleep_ns(POLL_NS);
        r = process_tree_try_attach(t, e, 0, NULL);
    }
    return r;
}

void process_tree_detach(struct tree_entry *e)
{
    e->process = process_free(e->process);
}

int process_tree_add(struct process_tree *t, pid_t pid, uint64_t patience_ns, bool must_be_python,
                     struct err_note *note)
{
    struct proc_stat st;
    int r = proc_stat_read(pid, 0, &st);

    if (r < 0)
        return r == ERR_NO_PROCESS ? err_because(note, r, &(struct err_facts){.reason = REASON_NO_PID, .pid = pid}) : r;
    r = process_tree_insert(t, pid, &st, NULL);
    if (r < 0)
        return r;
    if (must_be_python)
        return process_tree_try_attach(t, &t->items[0], patience_ns, note);
    r = process_tree_try_attach(t, &t->items[0], 0, note);
    if (r == ERR_STARTING)
        r = process_tree_attach(t, &t->items[0], patience_ns);
    return r == ERR_NOT_PYTHON || r == ERR_STARTING ? 0 : r;
}

/* ---- sampling ---- */

/* Samples one process. ERR_GONE when it has ended. */
static int entry_sample(struct process_tree *t, struct tree_entry *e, process_sink sink, void *arg)
{
    uint64_t before = t->sampler->stacks;
    int r = process_sample(e->process, sink, arg);

    if (t->sampler->stacks != before)
        process_node_pin(e->node, &t->pinned);
    if (r == ERR_GONE)
        e->dead = true;
    else if (r < 0 && r != ERR_NOMEM) {
        if (r != ERR_STARTING) /* no stack was missed */
            sampler_count_error(t->sampler, r);
        e->recheck = true;
    }
    return r;
}

int process_tree_sample(struct process_tree *t, process_sink sink, void *arg)
{
    size_t left = 0;
    int r = 0;

    for (size_t i = 0; i < t->n && r == 0; i++) {
        struct tree_entry *e = &t->items[i];

        if (!e->process) {
            left += !e->rejected && !e->is_profiler && !e->dead;
            continue;
        }
        r = entry_sample(t, e, sink, arg);
        left += r != ERR_GONE;
        if (r != ERR_NOMEM && r <= 0)
            r = 0;
    }
    /* A root that is not Python may still start a Python process, or become one by exec. */
    return r ? r : left || process_tree_root_alive(t) ? 0 : ERR_GONE;
}
