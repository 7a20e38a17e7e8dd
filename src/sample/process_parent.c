/*
 * A new process -> its parent in the tree. Most often that is the one that the kernel names. A process whose parent had
 * ended before we looked (daemons fork twice, and the one in between ends at once) has been given to init or to a
 * subreaper: it is known by what it inherited. Called by process_tree_refresh.c for each birth on the machine.
 */
#include "sample/process_tree_private.h"

#include <unistd.h>

void process_parent_open(struct process_tree *t)
{
    const struct tree_entry *root = &t->items[0];
    struct proc_stat st;
    pid_t pid = root->pid;

    t->n_ancestors = 0;
    while (t->n_ancestors < PROCESS_TREE_ANCESTORS && proc_stat_read(pid, 0, &st) == 0 && st.parent > 0) {
        if (pid != root->pid && st.image == root->image)
            t->shared_image = true; /* the root was forked by a server of its kind: others may be, too */
        pid = st.parent;
        t->ancestors[t->n_ancestors++] = pid;
    }
    if (!proc_is_randomized(root->pid))
        t->shared_image = true;
}

/* Where the kernel puts those whose parent has ended: init, or the nearest subreaper above. */
static bool takes_orphans(const struct process_tree *t, pid_t pid)
{
    if (pid <= 1 || (t->is_adopter && pid == getpid()))
        return true;
    for (size_t i = 0; i < t->n_ancestors; i++)
        if (t->ancestors[i] == pid)
            return true;
    return false;
}

struct process_node *process_parent_known(const struct process_tree *t, pid_t pid)
{
    const struct tree_entry *e = process_tree_find(t, pid);

    if (e)
        return e->left_out ? NULL : e->node;
    for (size_t i = 0; i < PROCESS_TREE_PAST; i++)
        if (t->past[i].pid == pid)
            return t->past[i].node;
    return NULL;
}

/* Forked by one of ours, and nothing executed since: where its program, heap and stack lie was drawn by lot. */
static struct process_node *by_image(const struct process_tree *t, uint64_t image)
{
    for (size_t i = 0; i < t->n && image && !t->shared_image; i++)
        if (t->items[i].image == image && !t->items[i].left_out)
            return t->items[i].node;
    return NULL;
}

static bool is_elder(const struct process_tree *t, pid_t pid)
{
    for (size_t i = 0; i < t->n_elders; i++)
        if (t->elders[i] == pid)
            return true;
    return false;
}

/* We have no other children than the root, what it has left to us, and those that were there before it. */
static bool is_left_to_us(const struct process_tree *t, pid_t pid, const struct proc_stat *st)
{
    return t->is_adopter && st->parent == getpid() && !is_elder(t, pid);
}

static struct process_node *orphans_parent(const struct process_tree *t, pid_t pid, const struct proc_stat *st)
{
    struct process_node *up = NULL;

    /* A session or a process group goes by the pid of who made it. */
    if (st->session != pid && st->session > 1)
        up = process_parent_known(t, st->session);
    if (!up && st->group != pid && st->group > 1)
        up = process_parent_known(t, st->group);
    if (!up)
        up = by_image(t, st->image);
    if (!up && is_left_to_us(t, pid, st))
        up = t->items[0].node;
    return up;
}

struct process_node *process_parent_find(const struct process_tree *t, pid_t pid, const struct proc_stat *st)
{
    const struct tree_entry *e = process_tree_find(t, st->parent);

    if (e)
        return e->left_out ? NULL : e->node;
    /* Of those that were there before us nobody knows any more. */
    return is_left_to_us(t, pid, st) || (t->settled && takes_orphans(t, st->parent)) ? orphans_parent(t, pid, st)
                                                                                     : NULL;
}
