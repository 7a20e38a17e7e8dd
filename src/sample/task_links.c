/*
 * Who awaits whom, who holds the lock that others wait for, and the other ends of sockets.
 */
#include "base/err.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/hash_table.h"
#include "base/utf8.h"
#include "sample/process_private.h"
#include "sample/tasks_private.h"
#include "target/open_file.h"

#include <stdlib.h>
#include <string.h>

#define FILES_MAX 256 /* sockets described per process */

struct task_index {
    struct hash_table by_addr;
    const struct task_set *set;
};

static uint32_t index_find(const struct task_index *x, addr_t addr)
{
    size_t step = 0;
    uint32_t at;

    while ((at = hash_table_next(&x->by_addr, hash_mix(0, addr), &step)) != HASH_TABLE_NONE)
        if (x->set->tasks[at].addr == addr)
            return at;
    return HASH_TABLE_NONE;
}

static int index_make(struct task_index *x, const struct task_set *set)
{
    *x = (struct task_index){.set = set};
    if (hash_table_reserve(&x->by_addr, set->n) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < set->n; i++)
        hash_table_add(&x->by_addr, hash_mix(0, set->tasks[i].addr), (uint32_t)i);
    return 0;
}

/* ---- who awaits whom ---- */

static bool has_link(const uint32_t *links, size_t n, uint32_t to)
{
    for (size_t i = 0; i < n && i < 8; i++) /* duplicates are next to each other, if any */
        if (links[n - 1 - i] == to)
            return true;
    return false;
}

/* `awaited_by` is the inverse of `awaits`. */
static void invert(struct task_set *set, uint32_t *inverse)
{
    for (size_t i = 0; i < set->n; i++) {
        set->tasks[i].awaited_by = inverse;
        inverse += set->tasks[i].n_awaited_by;
        set->tasks[i].n_awaited_by = 0;
    }
    for (size_t i = 0; i < set->n; i++)
        for (size_t k = 0; k < set->tasks[i].n_awaits; k++) {
            struct async_task *to = &set->tasks[set->tasks[i].awaits[k]];

            ((uint32_t *)(uintptr_t)to->awaited_by)[to->n_awaited_by++] = (uint32_t)i;
        }
}

static int link_awaits(const struct task_index *x, const struct read_task *items, size_t n_items, struct task_set *set)
{
    size_t total = 0, n = 0;

    for (size_t i = 0; i < n_items; i++)
        total += items[i].known ? items[i].n_awaits : 0;
    set->links = calloc(2 * total + 1, sizeof(*set->links));
    if (!set->links)
        return ERR_NOMEM;
    for (size_t i = 0; i < n_items; i++) {
        const struct read_task *item = &items[i];
        uint32_t from = item->known ? index_find(x, item->addr) : HASH_TABLE_NONE, to;

        if (from == HASH_TABLE_NONE)
            continue;
        set->tasks[from].awaits = set->links + n;
        for (size_t k = 0; k < item->n_awaits; k++) {
            to = index_find(x, item->awaits[k]);
            if (to == HASH_TABLE_NONE || has_link(set->tasks[from].awaits, set->tasks[from].n_awaits, to))
                continue;
            set->links[n++] = to;
            set->tasks[from].n_awaits++;
            set->tasks[from].n_in_groups += k >= item->n_awaits - item->n_in_groups;
            set->tasks[to].n_awaited_by++;
        }
    }
    invert(set, set->links + total);
    return 0;
}

/* ---- who holds a lock ---- */

struct lock {
    addr_t object;
    uint32_t owner;  /* HASH_TABLE_NONE: it does not say */
    size_t first, n; /* of the holders */
    size_t n_waiting;
};

struct locks {
    struct lock *items;
    size_t n, cap;
    struct hash_table by_object;
};

static struct lock *locks_find(const struct locks *l, addr_t object)
{
    size_t step = 0;
    uint32_t at;

    while ((at = hash_table_next(&l->by_object, hash_mix(0, object), &step)) != HASH_TABLE_NONE)
        if (l->items[at].object == object)
            return &l->items[at];
    return NULL;
}

static bool waits_for_lock(const struct async_task *task)
{
    return task->wait.kind && strcmp(task->wait.kind, "lock") == 0 && task->wait.object;
}

/* The locks that tasks wait for. */
static int locks_make(const struct task_index *x, const struct read_task *items, size_t n, struct locks *l)
{
    if (grow_array((void **)&l->items, &l->cap, x->set->n + 1, sizeof(*l->items)) < 0 ||
        hash_table_reserve(&l->by_object, x->set->n) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        uint32_t at = items[i].known ? index_find(x, items[i].addr) : HASH_TABLE_NONE;
        addr_t object = at == HASH_TABLE_NONE ? 0 : x->set->tasks[at].wait.object;
        struct lock *lock;

        if (!object || !waits_for_lock(&x->set->tasks[at]))
            continue;
        lock = locks_find(l, object);
        if (lock) {
            lock->n_waiting++;
            continue;
        }
        hash_table_add(&l->by_object, hash_mix(0, object), (uint32_t)l->n);
        l->items[l->n++] = (struct lock){.object = object,
                                         .n_waiting = 1,
                                         .owner = items[i].owner ? index_find(x, items[i].owner) : HASH_TABLE_NONE};
    }
    return 0;
}

/* Calls for each task that holds a lock that others wait for; without `to`, only counts. Two frames may hold the same. */
static size_t add_holders(const struct task_index *x, const struct read_task *items, size_t n, const struct locks *l,
                          uint32_t *to)
{
    size_t total = 0;

    for (size_t i = 0; i < n; i++) {
        const struct read_task *item = &items[i];
        uint32_t at = item->known && item->n_holds ? index_find(x, item->addr) : HASH_TABLE_NONE;

        for (size_t k = 0; at != HASH_TABLE_NONE && k < item->n_holds; k++) {
            struct lock *lock = locks_find(l, item->awaits[item->n_awaits + k]);

            if (!lock || lock->owner != HASH_TABLE_NONE)
                continue;
            total++;
            if (!to)
                lock->n++;
            else if (!has_link(to + lock->first, lock->n, at))
                to[lock->first + lock->n++] = at;
        }
    }
    return total;
}

static int link_holders(const struct task_index *x, const struct read_task *items, size_t n, struct task_set *set)
{
    struct locks l = {0};
    int r = locks_make(x, items, n, &l);
    size_t at = 0;

    if (r == 0) {
        set->holders = calloc(add_holders(x, items, n, &l, NULL) + l.n + 1, sizeof(*set->holders));
        r = set->holders ? 0 : ERR_NOMEM;
    }
    for (size_t i = 0; r == 0 && i < l.n; i++) {
        struct lock *lock = &l.items[i];

        lock->first = at;
        at += lock->n + 1;
        lock->n = 0;
        if (lock->owner != HASH_TABLE_NONE)
            set->holders[lock->first + lock->n++] = lock->owner;
    }
    if (r == 0)
        add_holders(x, items, n, &l, set->holders);
    for (size_t i = 0; r == 0 && i < set->n; i++) {
        const struct lock *lock = waits_for_lock(&set->tasks[i]) ? locks_find(&l, set->tasks[i].wait.object) : NULL;

        if (!lock)
            continue;
        set->tasks[i].wait.held_by = set->holders + lock->first;
        set->tasks[i].wait.n_held_by = lock->n;
        set->tasks[i].wait.n_waiting = lock->n_waiting;
        set->tasks[i].wait.is_owner = lock->owner != HASH_TABLE_NONE;
    }
    free(l.items);
    hash_table_free(&l.by_object);
    return r;
}

int task_links_make(const struct read_task *items, size_t n, struct task_set *set)
{
    struct task_index x;
    int r = index_make(&x, set);

    if (r == 0)
        r = link_awaits(&x, items, n, set);
    if (r == 0)
        r = link_holders(&x, items, n, set);
    hash_table_free(&x.by_addr);
    return r;
}

/* ---- sockets ---- */

static const char *keep(struct process *p, const char *text)
{
    char clean[3 * sizeof(((struct open_file *)0)->name)];

    return *text ? intern_bytes(p->sampler->names, clean, utf8_clean(text, strlen(text), clean)) : NULL;
}

void task_sockets_describe(struct process *p, struct task_set *set)
{
    struct open_file *files = NULL;
    size_t n = 0, cap = 0, at = 0;

    for (size_t i = 0; i < set->n && n < FILES_MAX && !p->core; i++) {
        if (!set->tasks[i].wait.has_fd)
            continue;
        if (grow_array((void **)&files, &cap, n + 1, sizeof(*files)) < 0)
            break;
        files[n++] = (struct open_file){.fd = (int)set->tasks[i].wait.number};
    }
    if (n)
        open_files_read(p->pid, files, n);
    for (size_t i = 0; i < set->n && at < n; i++) {
        struct task_wait *w = &set->tasks[i].wait;

        if (!w->has_fd)
            continue;
        if (files[at].kind == OPEN_FILE_SOCKET) {
            w->protocol = files[at].protocol;
            w->local = keep(p, files[at].local);
            w->peer = keep(p, files[at].peer);
        }
        at++;
    }
    free(files);
}
