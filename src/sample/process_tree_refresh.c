/*
 * Keeps the set of processes up to date: who was born, who has become another program, who has ended. Called by the loop
 * every 20 ms and by cmd/dump once. What it costs depends on how many are born and run, not on how many there are.
 */
#include "sample/process_tree_private.h"

#include "base/clock.h"
#include "base/grow.h"
#include "base/log.h"

#include <stdlib.h>
#include <unistd.h>

#define FEW       16 /* so many are looked at each time, of more a fifth */
#define PART      5
#define MAX_ROUND 64 /* passes over what was born in one go: a chain that long in 20 ms is not seen whole */

struct newborn {
    pid_t pid;
    struct proc_stat st;
};

struct newborns {
    struct newborn *items;
    size_t n, cap;
};

static int newborns_add(struct newborns *all, pid_t pid, const struct proc_stat *st)
{
    if (grow_array((void **)&all->items, &all->cap, all->n + 1, sizeof(*all->items)) < 0)
        return ERR_NOMEM;
    all->items[all->n++] = (struct newborn){pid, *st};
    return 0;
}

static bool is_thread(pid_t pid)
{
    struct proc_status st;

    return proc_status_read(pid, 0, &st) < 0 || st.process != pid;
}

/* It takes its place, unless it has it already; who had its pid before it has gone. */
static int join(struct process_tree *t, const struct newborn *b, struct process_node *up)
{
    struct tree_entry *known = process_tree_find(t, b->pid);
    int r = 0;

    if (known && (known->start_time == b->st.start_time || known == &t->items[0]))
        return 0;
    if (t->max_depth && up->depth >= t->max_depth)
        return 0;
    if (known) {
        known->dead = true;
        process_node_retain(up);
        r = process_tree_drop_dead(t);
        process_node_release(up);
    }
    if (r == 0)
        r = process_tree_join(t, b->pid, &b->st, up);
    return r == ERR_BOUNDS ? 0 : r;
}

/* Is it one of ours? If its parent is yet to be found, it may be asked again. */
static int take(struct process_tree *t, const struct newborn *b, bool *ret_done)
{
    struct process_node *up = process_parent_find(t, b->pid, &b->st);

    *ret_done = up != NULL;
    return up && !is_thread(b->pid) ? join(t, b, up) : 0;
}

/* A child may come before its parent in the list: then it is taken in the next round. */
static int take_all(struct process_tree *t, struct newborns *all)
{
    int r = 0;

    for (int round = 0; round < MAX_ROUND && r == 0; round++) {
        size_t kept = 0, n = all->n;

        for (size_t i = 0; i < n && r == 0; i++) {
            struct newborn b = all->items[i];
            bool done;

            r = take(t, &b, &done);
            if (!done)
                all->items[kept++] = b;
        }
        all->n = kept;
        if (kept == n)
            break;
    }
    return r;
}

static int take_births(struct process_tree *t)
{
    struct newborns all = {0};
    int r = new_pids_read(&t->births);

    if (r < 0)
        return r == ERR_NOMEM ? r : 0;
    for (size_t i = 0; i < t->births.n && r == 0; i++) {
        struct proc_stat st;

        if (proc_stat_read(t->births.items[i], 0, &st) < 0)
            new_pids_retry(&t->births, i);
        else if (st.state != 'Z' && st.state != 'X')
            r = newborns_add(&all, t->births.items[i], &st);
    }
    if (r == 0)
        r = take_all(t, &all);
    free(all.items);
    return r;
}

/* A fork by one of ours. One that has ended already stands for its parent: its own children come next. */
static int take_fork(struct process_tree *t, const struct process_event *event)
{
    struct process_node *up = process_parent_known(t, event->parent);
    struct newborn b = {.pid = event->pid};

    if (!up)
        return 0;
    if (proc_stat_read(b.pid, 0, &b.st) < 0 || b.st.state == 'Z' || b.st.state == 'X') {
        process_tree_remember(t, b.pid, process_node_retain(up));
        return 0;
    }
    return join(t, &b, up);
}

/* What the kernel has told since the last time. ERR_BOUNDS: not all. */
static int take_events(struct process_tree *t)
{
    struct process_event event;
    int r, told;

    while ((told = proc_connector_next(&t->forks, &event)) > 0) {
        struct tree_entry *e = event.parent ? NULL : process_tree_find(t, event.pid);

        if (e)
            e->suspect = true; /* an exec */
        r = event.parent ? take_fork(t, &event) : 0;
        if (r < 0)
            return r;
    }
    return told;
}

/* Those of the pids that belong to us and live. */
static int take_pids(struct process_tree *t, const pid_t *pids, size_t n, size_t *ret_ended)
{
    struct newborns all = {0};
    size_t ended = 0;
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        struct proc_stat st;

        if (proc_stat_read(pids[i], 0, &st) == 0 && st.state != 'Z' && st.state != 'X')
            r = newborns_add(&all, pids[i], &st);
        else
            ended++;
    }
    if (r == 0)
        r = take_all(t, &all);
    free(all.items);
    *ret_ended = ended;
    return r;
}

/* The children that the kernel lists of one process. */
static int take_children_of(struct process_tree *t, pid_t pid, size_t *ret_ended)
{
    pid_t *pids;
    size_t n;
    int r;

    *ret_ended = 0;
    if (proc_children_read(pid, &pids, &n) < 0)
        return 0;
    r = take_pids(t, pids, n, ret_ended);
    free(pids);
    return r;
}

static int take_children(struct process_tree *t, size_t at)
{
    size_t ended;

    return t->items[at].left_out ? 0 : take_children_of(t, t->items[at].pid, &ended);
}

/* The orphans that have come to us, whatever was told of their birth. One that ended behind the reading of the list has
 * left us its own after it: the list is read until it has no more of these than the time before. */
static int take_orphans(struct process_tree *t)
{
    size_t ended = 0, before;
    int r = 0;

    for (int round = 0; round < MAX_ROUND && r == 0; round++) {
        before = ended;
        r = take_children_of(t, getpid(), &ended);
        if (ended == before)
            break;
    }
    return r;
}

/* Nobody is left, as far as we know: before that is believed, it is worth a look at the whole machine. */
static bool seems_over(const struct process_tree *t)
{
    return process_tree_is_alone(t) && !process_tree_root_alive(t);
}

/* For kernels without CONFIG_PROC_CHILDREN: everyone's parent is looked at, once. */
static int take_from_all(struct process_tree *t)
{
    pid_t *pids;
    size_t n, ended;
    int r = proc_pids_read(&pids, &n);

    if (r < 0)
        return r == ERR_NOMEM ? r : 0;
    r = take_pids(t, pids, n, &ended);
    free(pids);
    return r;
}

int process_tree_watch(struct process_tree *t)
{
    int r;

    t->forks.fd = -1;
    if (!t->lazy)
        proc_connector_open(&t->forks);
    r = new_pids_open(&t->births);
    if (r < 0) {
        proc_connector_close(&t->forks);
        return r == ERR_NOMEM ? r : 0;
    }
    log_debug("tree", "children are found by %s", t->forks.fd >= 0 ? "the process connector" : "new PIDs");
    t->watching = true;
    if (t->is_adopter && !t->n && proc_children_read(getpid(), &t->elders, &t->n_elders) < 0)
        t->n_elders = 0;
    return 0;
}

/* All there are so far. What has been born meanwhile is told by the next look. */
static int take_first(struct process_tree *t)
{
    int r = 0;

    /* A root that was launched may have ended. */
    t->has_lists = proc_has_children_file(t->items[0].pid) || proc_has_children_file(getpid());
    if (!t->has_lists)
        r = take_from_all(t);
    for (size_t i = 0; t->has_lists && i < t->n && r == 0; i++) /* the new ones are looked at in this same loop */
        r = take_children(t, i);
    process_parent_open(t);
    t->settled = true;
    return r;
}

static int take_new(struct process_tree *t)
{
    int r = t->forks.fd >= 0 ? take_events(t) : ERR_BOUNDS;

    return r == ERR_BOUNDS ? take_births(t) : r;
}

/* Has it ended, or executed something else? A process that has not run has done neither. */
static int look_at(struct tree_entry *e)
{
    uint64_t cpu_ns = proc_cpu_ns(e->pid);
    struct proc_stat st;
    int r;

    if (cpu_ns && cpu_ns == e->cpu_ns && !e->suspect)
        return 0;
    e->cpu_ns = cpu_ns;
    e->suspect = false;
    r = proc_stat_read(e->pid, 0, &st);
    e->dead |= r == ERR_NO_PROCESS || (r == 0 && st.start_time != e->start_time);
    if (r < 0 || e->dead)
        return r == ERR_NOMEM ? r : 0;
    if (!e->process && (st.state == 'Z' || st.state == 'X'))
        e->dead = true;
    return st.image && st.image != e->image ? process_tree_renew(e, &st) : 0;
}

/* Some of the entries, in turn; those whose reading failed at once. */
static int look_at_some(struct process_tree *t)
{
    size_t n = t->n <= FEW ? t->n : t->n / PART + 1, from = t->turn;
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++)
        r = look_at(&t->items[(from + i) % t->n]);
    for (size_t i = 0; i < t->n && r == 0; i++)
        if (t->items[i].suspect)
            r = look_at(&t->items[i]);
    t->turn = (from + n) % t->n;
    return r;
}

/* From where the last time ended: those that are tried again and again, and are no Python, must not use up the time of
 * all others. */
static int attach_new(struct process_tree *t)
{
    uint64_t begin = clock_now_ns(), now = begin;
    size_t from = t->attach_turn % t->n;
    int r = 0;

    for (size_t i = 0; i < t->n && r != ERR_NOMEM; i++) {
        struct tree_entry *e = &t->items[(from + i) % t->n];

        if (e->process || e->given_up || e->left_out || e->dead || now < e->retry_ns)
            continue;
        r = process_tree_try(t, e, 0, NULL);
        t->attach_turn = from + i + 1;
        now = clock_now_ns();
        if (t->budget_ns && now - begin >= t->budget_ns)
            break;
    }
    return r == ERR_NOMEM ? r : 0;
}

/* Who has come since the last time. */
static int take_all_new(struct process_tree *t)
{
    bool first = !t->settled;
    int r = t->watching ? 0 : process_tree_watch(t);

    if (r < 0 || !t->watching)
        return r;
    if (first)
        r = take_first(t);
    if (r == 0)
        r = take_new(t);
    if (r == 0 && t->is_adopter && (t->has_lists || seems_over(t)))
        r = take_orphans(t);
    /* Whoever was missed is found in time: one process's children are looked at each time. */
    if (r == 0 && !first && t->has_lists)
        r = take_children(t, t->turn % t->n);
    return r;
}

int process_tree_refresh(struct process_tree *t)
{
    int r = t->subprocesses ? take_all_new(t) : 0;

    if (r == 0)
        r = look_at_some(t);
    if (r == 0)
        r = process_tree_drop_dead(t);
    return r == 0 && !t->lazy ? attach_new(t) : r;
}
