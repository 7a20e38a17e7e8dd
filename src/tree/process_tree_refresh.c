/*
 * Keeps the process tree up to date: adds new processes, notices execs, drops processes that have ended. The cost
 * depends on how many processes start and run, not on how many there are.
 */
#include "tree/process_tree_private.h"

#include "base/grow.h"
#include "base/log.h"

#include <stdlib.h>
#include <unistd.h>

#define CHECK_ALL_MAX 16 /* check all entries if there are at most this many, else a fifth at each refresh */
#define CHECK_SHARE   5
/* Passes over one batch of new processes. A longer chain of forks within 20 ms is not followed to its end. */
#define MAX_PASSES 64

struct new_process {
    pid_t pid;
    struct proc_stat st;
};

struct new_process_list {
    struct new_process *items;
    size_t n, cap;
};

static int new_process_list_add(struct new_process_list *all, pid_t pid, const struct proc_stat *st)
{
    if (grow_array((void **)&all->items, &all->cap, all->n + 1, sizeof(*all->items)) < 0)
        return ERR_NOMEM;
    all->items[all->n++] = (struct new_process){pid, *st};
    return 0;
}

static bool is_thread(pid_t pid)
{
    struct proc_status st;

    return proc_status_read(pid, 0, &st) < 0 || st.process != pid;
}

/* Adds a process, unless it is in the tree. If the pid was reused, drops the process that had it before. */
static int add_process(struct process_tree *t, const struct new_process *child, struct process_node *parent)
{
    struct tree_entry *known = process_tree_find(t, child->pid);
    int r = 0;

    if (known && (known->start_time == child->st.start_time || known == &t->items[0]))
        return 0;
    if (t->max_depth && parent->depth >= t->max_depth)
        return 0;
    if (known) {
        known->dead = true;
        process_node_retain(parent);
        r = process_tree_drop_dead(t);
        process_node_release(parent);
    }
    if (r == 0)
        r = process_tree_insert(t, child->pid, &child->st, parent);
    return r == ERR_BOUNDS ? 0 : r;
}

/* A child may come before its parent in the list. It is added in the next pass. */
static int add_all(struct process_tree *t, struct new_process_list *all)
{
    int r = 0;

    for (int pass = 0; pass < MAX_PASSES && r == 0; pass++) {
        size_t kept = 0, n = all->n;

        for (size_t i = 0; i < n && r == 0; i++) {
            struct new_process child = all->items[i];
            struct process_node *parent = process_parent_find(t, child.pid, &child.st);

            if (!parent)
                all->items[kept++] = child;
            else if (!is_thread(child.pid))
                r = add_process(t, &child, parent);
        }
        all->n = kept;
        if (kept == n)
            break;
    }
    return r;
}

static int add_new_pids(struct process_tree *t)
{
    struct new_process_list all = {0};
    int r = new_pids_read(&t->new_pids);

    if (r < 0)
        return r == ERR_NOMEM ? r : 0;
    for (size_t i = 0; i < t->new_pids.n && r == 0; i++) {
        struct proc_stat st;

        if (proc_stat_read(t->new_pids.items[i], 0, &st) < 0)
            new_pids_retry(&t->new_pids, i);
        else if (st.state != 'Z' && st.state != 'X')
            r = new_process_list_add(&all, t->new_pids.items[i], &st);
    }
    if (r == 0)
        r = add_all(t, &all);
    free(all.items);
    return r;
}

/* A process of the tree has forked. If the child has ended already, its own children go below the parent. */
static int handle_fork(struct process_tree *t, const struct process_event *event)
{
    struct process_node *parent = process_parent_lookup(t, event->parent);
    struct new_process child = {.pid = event->pid};

    if (!parent)
        return 0;
    if (proc_stat_read(child.pid, 0, &child.st) < 0 || child.st.state == 'Z' || child.st.state == 'X') {
        process_tree_remember_ended(t, child.pid, process_node_retain(parent));
        return 0;
    }
    return add_process(t, &child, parent);
}

/* Handles the events since the last call. ERR_BOUNDS: some were lost. */
static int handle_events(struct process_tree *t)
{
    struct process_event event;
    int r, status;

    while ((status = proc_connector_next(&t->connector, &event)) > 0) {
        struct tree_entry *e = event.parent ? NULL : process_tree_find(t, event.pid);

        if (e)
            e->recheck = true; /* an exec */
        r = event.parent ? handle_fork(t, &event) : 0;
        if (r < 0)
            return r;
    }
    return status;
}

/* Adds those of the pids that are alive and belong to the tree. */
static int add_pids(struct process_tree *t, const pid_t *pids, size_t n, size_t *ret_ended)
{
    struct new_process_list all = {0};
    size_t ended = 0;
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        struct proc_stat st;

        if (proc_stat_read(pids[i], 0, &st) == 0 && st.state != 'Z' && st.state != 'X')
            r = new_process_list_add(&all, pids[i], &st);
        else
            ended++;
    }
    if (r == 0)
        r = add_all(t, &all);
    free(all.items);
    *ret_ended = ended;
    return r;
}

/* Adds the children of one process. */
static int add_children_of(struct process_tree *t, pid_t pid, size_t *ret_ended)
{
    pid_t *pids;
    size_t n;
    int r;

    *ret_ended = 0;
    if (proc_children_read(pid, &pids, &n) < 0)
        return 0;
    r = add_pids(t, pids, n, ret_ended);
    free(pids);
    return r;
}

static int add_entry_children(struct process_tree *t, size_t at)
{
    size_t ended;

    return t->items[at].is_profiler ? 0 : add_children_of(t, t->items[at].pid, &ended);
}

/* Adds the orphans that the kernel has reparented to us. A process that ended after we read the list leaves us its
 * children, too. Read the list again until the number of ended processes stays the same. */
static int add_orphans(struct process_tree *t)
{
    size_t ended = 0, before;
    int r = 0;

    for (int pass = 0; pass < MAX_PASSES && r == 0; pass++) {
        before = ended;
        r = add_children_of(t, getpid(), &ended);
        if (ended == before)
            break;
    }
    return r;
}

/* For kernels without CONFIG_PROC_CHILDREN: reads the parent of every process on the machine, once. */
static int scan_all_processes(struct process_tree *t)
{
    pid_t *pids;
    size_t n, ended;
    int r = proc_pids_read(&pids, &n);

    if (r < 0)
        return r == ERR_NOMEM ? r : 0;
    r = add_pids(t, pids, n, &ended);
    free(pids);
    return r;
}

int process_tree_watch(struct process_tree *t)
{
    int r;

    t->connector.fd = -1;
    if (!t->manual_attach)
        proc_connector_open(&t->connector);
    r = new_pids_open(&t->new_pids);
    if (r < 0) {
        proc_connector_close(&t->connector);
        return r == ERR_NOMEM ? r : 0;
    }
    log_debug("tree", "children are found by %s", t->connector.fd >= 0 ? "the process connector" : "new PIDs");
    t->watching = true;
    if (t->is_subreaper && !t->n && proc_children_read(getpid(), &t->prior_children, &t->n_prior_children) < 0)
        t->n_prior_children = 0;
    return 0;
}

/* Finds all processes that exist so far. Those created in the meantime are found afterwards, by the events or new
 * pids. */
static int scan_tree(struct process_tree *t)
{
    int r = 0;

    /* A root that we launched may have ended. */
    t->has_children_file = proc_has_children_file(t->items[0].pid) || proc_has_children_file(getpid());
    if (!t->has_children_file)
        r = scan_all_processes(t);
    for (size_t i = 0; t->has_children_file && i < t->n && r == 0; i++) /* includes the entries that this loop adds */
        r = add_entry_children(t, i);
    process_parent_init(t);
    t->scanned = true;
    return r;
}

/* Checks for an end or an exec. A process whose CPU time is unchanged has done neither. */
static int check_entry(struct process_tree *t, struct tree_entry *e)
{
    uint64_t cpu_ns = proc_cpu_ns(e->pid);
    struct proc_stat st;
    int r;

    if (cpu_ns && cpu_ns == e->cpu_ns && !e->recheck)
        return 0;
    e->cpu_ns = cpu_ns;
    e->recheck = false;
    r = proc_stat_read(e->pid, 0, &st);
    e->dead |= r == ERR_NO_PROCESS || (r == 0 && st.start_time != e->start_time);
    if (r < 0 || e->dead)
        return r == ERR_NOMEM ? r : 0;
    if (!e->process && (st.state == 'Z' || st.state == 'X'))
        e->dead = true;
    return st.image && st.image != e->image ? process_tree_handle_exec(t, e, &st) : 0;
}

/* Checks some of the entries, in rotation, and all those marked for a recheck. */
static int check_entries(struct process_tree *t)
{
    size_t n = t->n <= CHECK_ALL_MAX ? t->n : t->n / CHECK_SHARE + 1, from = t->next_check;
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++)
        r = check_entry(t, &t->items[(from + i) % t->n]);
    for (size_t i = 0; i < t->n && r == 0; i++)
        if (t->items[i].recheck)
            r = check_entry(t, &t->items[i]);
    t->next_check = (from + n) % t->n;
    return r;
}

/* Adds the processes that were created since the last refresh. */
static int find_new(struct process_tree *t)
{
    bool first = !t->scanned;
    int r = t->watching ? 0 : process_tree_watch(t);

    if (r < 0 || !t->watching)
        return r;
    if (first)
        r = scan_tree(t);
    if (r == 0) {
        r = t->connector.fd >= 0 ? handle_events(t) : ERR_BOUNDS;
        if (r == ERR_BOUNDS)
            r = add_new_pids(t);
    }
    /* Without a children file this reads all of /proc. Do it only if every known process has ended. */
    if (r == 0 && t->is_subreaper &&
        (t->has_children_file || (process_tree_has_only_root(t) && !process_tree_root_alive(t))))
        r = add_orphans(t);
    /* Finds what was missed: list the children of one entry at each refresh. */
    if (r == 0 && !first && t->has_children_file)
        r = add_entry_children(t, t->next_check % t->n);
    return r;
}

int process_tree_refresh(struct process_tree *t)
{
    int r = t->subprocesses ? find_new(t) : 0;

    if (r == 0)
        r = check_entries(t);
    return r == 0 ? process_tree_drop_dead(t) : r;
}
