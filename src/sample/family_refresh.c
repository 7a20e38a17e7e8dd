/*
 * Keeps the set of processes up to date: who was born, who has become another program, who has ended. Called by the loop
 * every 20 ms and by cmd/dump once. What it costs depends on how many are born and run, not on how many there are.
 */
#include "sample/family_private.h"

#include "base/clock.h"
#include "base/grow.h"

#include <stdlib.h>

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

/* True when there is nothing more to find out about it. */
static int take(struct family *t, const struct newborn *b, bool *ret_done)
{
    struct family_entry *known = family_find(t, b->pid);
    struct kin *up;
    int r;

    *ret_done = true;
    if (known && known->start_time == b->st.start_time)
        return 0;
    if (known && known == &t->items[0])
        return 0; /* the root's pid was used again: that is nobody of ours */
    if (known) {
        known->dead = true;
        r = family_drop_dead(t);
        if (r < 0)
            return r;
    }
    up = lineage_parent(t, b->pid, &b->st);
    *ret_done = up != NULL;
    if (!up || is_thread(b->pid) || (t->max_depth && up->depth >= t->max_depth))
        return 0;
    r = family_join(t, b->pid, &b->st, up);
    return r == ERR_BOUNDS ? 0 : r;
}

/* A child may come before its parent in the list: then it is taken in the next round. */
static int take_all(struct family *t, struct newborns *all)
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

static int take_births(struct family *t)
{
    struct newborns all = {0};
    int r = births_look(&t->births);

    if (r < 0)
        return r == ERR_NOMEM ? r : 0;
    for (size_t i = 0; i < t->births.n && r == 0; i++) {
        struct proc_stat st;

        if (proc_stat_read(t->births.items[i], 0, &st) < 0)
            births_not_yet(&t->births, i);
        else if (st.state != 'Z' && st.state != 'X')
            r = newborns_add(&all, t->births.items[i], &st);
    }
    if (r == 0)
        r = take_all(t, &all);
    free(all.items);
    return r;
}

/* The children that the kernel lists of one process. */
static int take_children(struct family *t, size_t at)
{
    struct newborns all = {0};
    pid_t *pids;
    size_t n;
    int r = 0;

    if (t->items[at].left_out || proc_children_read(t->items[at].pid, &pids, &n) < 0)
        return 0;
    for (size_t i = 0; i < n && r == 0; i++) {
        struct proc_stat st;

        if (proc_stat_read(pids[i], 0, &st) == 0 && st.state != 'Z' && st.state != 'X')
            r = newborns_add(&all, pids[i], &st);
    }
    free(pids);
    if (r == 0)
        r = take_all(t, &all);
    free(all.items);
    return r;
}

/* For kernels without CONFIG_PROC_CHILDREN: everyone's parent is looked at, once. */
static int take_from_all(struct family *t)
{
    struct newborns all = {0};
    pid_t *pids;
    size_t n;
    int r = proc_pids_read(&pids, &n);

    if (r < 0)
        return r == ERR_NOMEM ? r : 0;
    for (size_t i = 0; i < n && r == 0; i++) {
        struct proc_stat st;

        if (proc_stat_read(pids[i], 0, &st) == 0 && st.state != 'Z' && st.state != 'X')
            r = newborns_add(&all, pids[i], &st);
    }
    free(pids);
    if (r == 0)
        r = take_all(t, &all);
    free(all.items);
    return r;
}

/* All there are so far. What is born meanwhile is told at the next look. */
static int take_first(struct family *t)
{
    int r = births_open(&t->births);

    if (r < 0)
        return r == ERR_NOMEM ? r : 0;
    t->has_lists = proc_has_children_file(t->items[0].pid);
    if (!t->has_lists)
        r = take_from_all(t);
    for (size_t i = 0; t->has_lists && i < t->n && r == 0; i++) /* the new ones are looked at in this same loop */
        r = take_children(t, i);
    lineage_open(t);
    t->watching = true;
    return r;
}

/* Has it ended, or executed something else? A process that has not run has done neither. */
static int look_at(struct family_entry *e)
{
    uint64_t cpu_ns = proc_cpu_ns(e->pid);
    struct proc_stat st;

    if (cpu_ns && cpu_ns == e->cpu_ns && !e->suspect)
        return 0;
    e->cpu_ns = cpu_ns;
    e->suspect = false;
    if (proc_stat_read(e->pid, 0, &st) < 0 || st.start_time != e->start_time) {
        e->dead = true;
        return 0;
    }
    if (!e->process && (st.state == 'Z' || st.state == 'X'))
        e->dead = true;
    return st.image && st.image != e->image ? family_renew(e, &st) : 0;
}

/* Some of the entries, in turn; those whose reading failed at once. */
static int look_at_some(struct family *t)
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

static int attach_new(struct family *t)
{
    uint64_t begin = clock_now_ns(), now = begin;
    int r = 0;

    for (size_t i = 0; i < t->n && r != ERR_NOMEM; i++) {
        struct family_entry *e = &t->items[i];

        if (e->process || e->given_up || e->left_out || e->dead || now < e->retry_ns)
            continue;
        r = family_try(t, e, 0, NULL);
        now = clock_now_ns();
        if (t->budget_ns && now - begin >= t->budget_ns)
            break;
    }
    return r == ERR_NOMEM ? r : 0;
}

int family_refresh(struct family *t)
{
    int r = look_at_some(t);

    if (r == 0 && t->subprocesses) {
        bool first = !t->watching;

        r = first ? take_first(t) : take_births(t);
        /* Whoever was missed is found in time: one process's children are looked at each time. */
        if (r == 0 && !first && t->has_lists)
            r = take_children(t, t->turn % t->n);
    }
    if (r == 0)
        r = family_drop_dead(t);
    return r == 0 && !t->lazy ? attach_new(t) : r;
}
