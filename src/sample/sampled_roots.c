/*
 * Attaches to several processes, and makes them the roots of a tree.
 */
#include "sample/sampled_roots.h"

#include <stdlib.h>

#define MAX_STEPS 64 /* from a process to an ancestor among the roots */

/* ---- attaching ---- */

/* The attached root that this one was forked from, if neither has called exec since. */
static const struct process *forked_from(const struct sampled_root *root, const struct sampled_root *others, size_t n)
{
    for (size_t i = n; i-- > 0;)
        if (others[i].pid == root->st.parent)
            return root->st.image && others[i].st.image == root->st.image ? others[i].process : NULL;
    return NULL;
}

int sampled_root_attach(struct sampler *s, struct sampled_root *root, uint64_t patience_ns,
                        const struct sampled_root *others, size_t n, struct err_note *note)
{
    const struct process *like;
    int r = proc_stat_read(root->pid, 0, &root->st);

    if (r < 0)
        return r == ERR_NO_PROCESS
                   ? err_because(note, r, &(struct err_facts){.reason = REASON_NO_PID, .pid = root->pid})
                   : r;
    like = forked_from(root, others, n);
    r = like ? process_attach_fork(s, root->pid, like, &root->process) : ERR_STARTING;
    return r == 0 || r == ERR_NOMEM ? r : process_attach(s, root->pid, patience_ns, &root->process, note);
}

/* ---- adding ---- */

static int compare_pids(const void *a, const void *b)
{
    pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

    return (x > y) - (x < y);
}

/* True if an ancestor of the process is among the sorted pids. */
static bool descends_from(const struct sampled_root *root, const pid_t *pids, size_t n)
{
    struct proc_stat st = root->st;

    for (int step = 0; step < MAX_STEPS && st.parent > 0; step++) {
        if (bsearch(&st.parent, pids, n, sizeof(*pids), compare_pids))
            return true;
        if (proc_stat_read(st.parent, 0, &st) < 0)
            return false;
    }
    return false;
}

/* Hands the process over to its entry. */
static void hand_over(struct process_tree *t, struct sampled_root *root, struct tree_entry *e)
{
    if (!root->process)
        return;
    e->process = root->process;
    root->process = NULL;
    process_move_info(e->process, &e->node->info);
    e->is_profiler = false; /* it was chosen */
    e->was_attached = true;
    e->error = 0;
    t->has_python = true;
}

static int insert(struct process_tree *t, struct sampled_root *root)
{
    int r = process_tree_insert(t, root->pid, &root->st, NULL);

    if (r == 0)
        hand_over(t, root, &t->items[t->n - 1]);
    return r;
}

/* Once the descendants of the other roots have been found. */
static int place_below(struct process_tree *t, struct sampled_root *root)
{
    struct tree_entry *e = process_tree_find(t, root->pid);

    if (!e || e->start_time != root->st.start_time)
        return insert(t, root);
    hand_over(t, root, e);
    return 0;
}

static int add_all(struct process_tree *t, struct sampled_root *roots, bool *below, pid_t *pids, size_t n)
{
    int r = 0;

    for (size_t i = 0; i < n; i++)
        pids[i] = roots[i].pid;
    qsort(pids, n, sizeof(*pids), compare_pids);
    for (size_t i = 0; i < n && r == 0; i++) {
        /* With a limit on the depth, each of them counts its own levels. */
        below[i] = t->subprocesses && !t->max_depth && descends_from(&roots[i], pids, n);
        if (!below[i])
            r = insert(t, &roots[i]);
    }
    if (r == 0 && t->subprocesses && t->n)
        r = process_tree_refresh(t);
    for (size_t i = 0; i < n && r == 0; i++)
        if (below[i])
            r = place_below(t, &roots[i]);
    return r;
}

int sampled_roots_add(struct process_tree *t, struct sampled_root *roots, size_t n)
{
    bool *below = calloc(n + 1, sizeof(*below));
    pid_t *pids = calloc(n + 1, sizeof(*pids));
    int r = below && pids ? 0 : ERR_NOMEM;

    t->free_process = process_free;
    if (r == 0)
        r = add_all(t, roots, below, pids, n);
    free(below);
    free(pids);
    return r;
}
