/*
 * Finds the parent of a new process in the tree. Usually that is its parent pid. If the parent ended before we looked
 * (a daemon forks twice, and the process in between exits at once), the kernel has reparented the orphan to init or to
 * a subreaper. Its parent is then found by what it inherited: session, process group, address space layout.
 */
#include "tree/process_tree_private.h"

#include "base/helper.h"

#include <unistd.h>

static bool is_ancestor(const struct process_tree *t, pid_t pid)
{
    for (size_t i = 0; i < t->n_ancestors; i++)
        if (t->ancestors[i] == pid)
            return true;
    return false;
}

static void add_ancestors(struct process_tree *t, const struct tree_entry *root)
{
    struct proc_stat st;
    pid_t pid = root->pid;

    for (int step = 0; step < PROCESS_TREE_ANCESTORS; step++) {
        if (proc_stat_read(pid, 0, &st) < 0 || st.parent <= 0)
            break;
        /* The root was forked by a server that runs the same program and may fork others. */
        if (pid != root->pid && st.image == root->image)
            t->image_is_shared = true;
        pid = st.parent;
        if (t->n_ancestors < PROCESS_TREE_ANCESTORS && !is_ancestor(t, pid))
            t->ancestors[t->n_ancestors++] = pid;
    }
    if (!proc_is_randomized(root->pid))
        t->image_is_shared = true;
}

void process_parent_init(struct process_tree *t)
{
    t->n_ancestors = 0;
    for (size_t i = 0; i < t->n; i++)
        if (!t->items[i].node->up)
            add_ancestors(t, &t->items[i]);
}

/* The kernel reparents orphans to init or to the nearest subreaper among their ancestors. */
static bool may_adopt_orphans(const struct process_tree *t, pid_t pid)
{
    return pid <= 1 || (t->is_subreaper && pid == getpid()) || is_ancestor(t, pid);
}

struct process_node *process_parent_lookup(const struct process_tree *t, pid_t pid)
{
    const struct tree_entry *e = process_tree_find(t, pid);

    if (e)
        return e->is_profiler ? NULL : e->node;
    for (size_t i = 0; i < PROCESS_TREE_PAST; i++)
        if (t->past[i].pid == pid)
            return t->past[i].node;
    return NULL;
}

/* A process that has not called exec since the fork has the address space layout of its parent, which ASLR makes
 * unique. */
static struct process_node *parent_by_image(const struct process_tree *t, uint64_t image)
{
    for (size_t i = 0; i < t->n && image && !t->image_is_shared; i++)
        if (t->items[i].image == image && !t->items[i].is_profiler)
            return t->items[i].node;
    return NULL;
}

/* As the subreaper, we have no children but the root, its orphans, and the children from before the root. */
static bool is_our_orphan(const struct process_tree *t, pid_t pid, const struct proc_stat *st)
{
    if (!t->is_subreaper || st->parent != getpid())
        return false;
    for (size_t i = 0; i < t->n_prior_children; i++)
        if (t->prior_children[i] == pid)
            return false;
    return true;
}

static struct process_node *guess_orphan_parent(const struct process_tree *t, pid_t pid, const struct proc_stat *st)
{
    struct process_node *parent = NULL;

    /* The id of a session or process group is the pid of the process that created it. */
    if (st->session != pid && st->session > 1)
        parent = process_parent_lookup(t, st->session);
    if (!parent && st->group != pid && st->group > 1)
        parent = process_parent_lookup(t, st->group);
    if (!parent)
        parent = parent_by_image(t, st->image);
    if (!parent && is_our_orphan(t, pid, st))
        parent = t->items[0].node;
    return parent;
}

struct process_node *process_parent_find(const struct process_tree *t, pid_t pid, const struct proc_stat *st)
{
    const struct tree_entry *e = process_tree_find(t, st->parent);

    if (helper_is(pid))
        return NULL;
    if (e)
        return e->is_profiler ? NULL : e->node;
    /* Before the first scan has finished, we cannot tell an orphan of the tree from any other child of init. */
    return is_our_orphan(t, pid, st) || (t->scanned && may_adopt_orphans(t, st->parent))
               ? guess_orphan_parent(t, pid, st)
               : NULL;
}
