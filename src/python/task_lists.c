/*
 * Finds the asyncio tasks of an interpreter; trio.c finds those of trio. Up to 3.13 they are in a WeakSet of asyncio.tasks. From
 * 3.14 on they are in a linked list of each thread, and in one of the interpreter for those whose thread has ended. Eager tasks that
 * have not waited yet are in a set of their own.
 */
#include "base/err.h"
#include "base/grow.h"
#include "python/objects.h"
#include "python/repr/containers.h"
#include "python/strings.h"
#include "python/tasks_private.h"

#include <string.h>

#define WEAKREF_OBJECT 16 /* PyWeakReference.wr_object */
#define HOLDER_LOOP    16 /* up to 3.11: PyRunningLoopHolder.rl_loop */
#define SET_FILL       16 /* PySetObject: fill, used, mask, table */
#define SET_ENTRY      16
#define BATCH          64
#define SET_MAX        (4u * TASKS_MAX)
#define STATE_BYTES    2048 /* of PyThreadState, which has the running loop from 3.13 on */

bool tasks_are_listed(const struct python *py)
{
    return py->layout.task_coro != NO;
}

static int add_found(struct tasks *t, addr_t task, addr_t tstate)
{
    if (t->n_found == TASKS_MAX) {
        t->incomplete = true;
        return 0;
    }
    if (grow_array((void **)&t->found, &t->cap_found, t->n_found + 1, sizeof(*t->found)) < 0)
        return ERR_NOMEM;
    t->found[t->n_found++] = (struct found_task){.addr = task, .tstate = tstate};
    return 0;
}

int tasks_add_found(struct tasks *t, addr_t task)
{
    return add_found(t, task, 0);
}

/* ---- containers ---- */

static int array_items(struct tasks *t, addr_t items, size_t n, tasks_visit visit, void *arg)
{
    addr_t batch[BATCH];

    for (size_t i = 0; i < n; i++) {
        size_t len = n - i < BATCH ? n - i : BATCH;

        if (i % BATCH == 0 && repr_read(t->repr, items + i * 8, batch, len * 8) < 0)
            return ERR_READ;
        if (!visit(t, batch[i % BATCH], arg))
            break;
    }
    return 0;
}

/* Empty and deleted entries have a key of NULL, or one that is no task and no reference to one. */
static int set_items(struct tasks *t, addr_t set, size_t max, tasks_visit visit, void *arg)
{
    const struct layout *l = &t->repr->py.layout;
    addr_t head[4], after[4], batch[2 * BATCH];
    size_t n, seen = 0;

    if (repr_read(t->repr, set + SET_FILL, head, sizeof(head)) < 0)
        return ERR_READ;
    if (head[2] >= SET_MAX)
        return ERR_BOUNDS;
    n = head[2] + 1;
    for (size_t i = 0; i < n && seen < max && seen < head[1]; i++) {
        size_t len = n - i < BATCH ? n - i : BATCH;

        if (i % BATCH == 0 && repr_read(t->repr, head[3] + i * SET_ENTRY, batch, len * SET_ENTRY) < 0)
            return ERR_READ;
        if (batch[i % BATCH * 2] && batch[i % BATCH * 2 + 1] + 1) { /* a deleted entry has the hash -1 */
            seen++;
            if (!visit(t, batch[i % BATCH * 2 + (l->se_key == 8)], arg))
                break;
        }
    }
    /* Past the cache: the set may have changed since. */
    return mem_read(t->py->mem, set + SET_FILL, after, sizeof(after)) < 0 || memcmp(head, after, sizeof(head)) != 0
               ? ERR_TORN
               : 0;
}

int tasks_items(struct tasks *t, addr_t object, size_t max, tasks_visit visit, void *arg)
{
    const struct repr_type *type = repr_type_of(t->repr, object);
    uint64_t n;
    addr_t items;

    if (!type)
        return ERR_READ;
    if (repr_derives(t->repr, type, "set") || repr_derives(t->repr, type, "frozenset"))
        return set_items(t, object, max, visit, arg);
    if (repr_derives(t->repr, type, "tuple")) {
        if (containers_tuple(t->repr, object, &n, &items) < 0)
            return ERR_READ;
    } else if (!repr_derives(t->repr, type, "list") || repr_word(t->repr, object + 16, &n) < 0 ||
               repr_word(t->repr, object + (addr_t)t->repr->py.layout.li_items, &items) < 0) {
        return ERR_READ;
    }
    return array_items(t, items, n < max ? n : max, visit, arg);
}

/* ---- lists of tasks ---- */

static bool visit_task(struct tasks *t, addr_t item, void *arg)
{
    int *r = arg;

    if (tasks_is_task(t, item))
        *r = add_found(t, item, 0);
    return *r == 0;
}

static bool visit_reference(struct tasks *t, addr_t item, void *arg)
{
    addr_t task;

    /* Whether it is a task is seen when it is read: this keeps the list short in time. */
    if (repr_word(t->repr, item + WEAKREF_OBJECT, &task) == 0 && task)
        *(int *)arg = add_found(t, task, 0);
    return *(int *)arg == 0;
}

static int list_set(struct tasks *t, addr_t set, tasks_visit visit)
{
    int error = 0, r = tasks_items(t, set, SET_MAX, visit, &error);

    return error < 0 ? error : r;
}

static int list_weak_set(struct tasks *t, addr_t module, const char *name)
{
    addr_t object, data;

    if (objects_dict_get(&t->repr->py, module, name, &object) < 0)
        return 0;
    if (objects_attr_get(&t->repr->py, object, "data", &data) < 0)
        return ERR_READ;
    return list_set(t, data, visit_reference);
}

/* The lists of Python objects; if the module is not loaded, there are no tasks. */
static int list_module(struct tasks *t, addr_t interp)
{
    static const char *const names[] = {"_all_tasks", "_scheduled_tasks"};
    const struct python *py = &t->repr->py;
    addr_t modules, module, dict, object;
    int r = 0;

    if (repr_word(t->repr, interp + (addr_t)py->layout.in_modules, &modules) < 0 || !modules ||
        objects_dict_get(py, modules, "asyncio.tasks", &module) < 0 ||
        repr_word(t->repr, module + MODULE_DICT, &dict) < 0 || !dict)
        return 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && r == 0; i++)
        r = list_weak_set(t, dict, names[i]);
    if (r == 0 && objects_dict_get(py, dict, "_eager_tasks", &object) == 0)
        r = list_set(t, object, visit_task);
    return r;
}

/* 3.14+: a circular list of llist_node, whose head is not part of a task (pycore_llist.h). */
static int list_linked(struct tasks *t, addr_t head, addr_t tstate)
{
    const struct layout *l = &t->repr->py.layout;
    addr_t node, links[2], previous = head;

    if (repr_word(t->repr, head, &node) < 0)
        return ERR_READ;
    for (size_t i = 0; node && node != head; i++) {
        if (i == TASKS_MAX || repr_read(t->repr, node, links, sizeof(links)) < 0 || links[1] != previous)
            return ERR_TORN;
        if (add_found(t, node - (addr_t)l->task_node, tstate) < 0)
            return ERR_NOMEM;
        previous = node;
        node = links[0];
    }
    return 0;
}

int tasks_list(struct tasks *t, addr_t interp, const addr_t *tstates, size_t n)
{
    const struct layout *l = &t->repr->py.layout;
    int r = list_module(t, interp);

    if (r == 0)
        r = trio_list(t, interp);
    if (r < 0 || l->ts_tasks == NO)
        return r;
    for (size_t i = 0; i < n && r == 0; i++)
        r = list_linked(t, tstates[i] + (addr_t)l->ts_tasks, tstates[i]);
    return r == 0 ? list_linked(t, interp + (addr_t)l->in_tasks, 0) : r;
}

/* ---- loops ---- */

/* Up to 3.12: the running loop is in the thread's dict, up to 3.11 within an object that also has the PID. */
static bool dict_has_loop(struct tasks *t, addr_t tstate, addr_t loop)
{
    const struct python *py = &t->repr->py;
    addr_t dict, value, held;

    if (repr_word(t->repr, tstate + (addr_t)py->layout.ts_dict, &dict) < 0 || !dict ||
        objects_dict_get(py, dict, "__asyncio_running_event_loop__", &value) < 0)
        return false;
    return value == loop || (repr_word(t->repr, value + HOLDER_LOOP, &held) == 0 && held == loop);
}

/* From 3.13 on, the thread state points to the loop. The offset differs between patch releases, so search for it. */
static bool state_has_loop(struct tasks *t, addr_t tstate, addr_t loop)
{
    addr_t words[STATE_BYTES / 8];
    size_t n = STATE_BYTES / 8;

    while (n > 8 && repr_read(t->repr, tstate, words, n * 8) < 0)
        n /= 2;
    for (size_t i = 0; n > 8 && i < n; i++)
        if (words[i] == loop)
            return true;
    return false;
}

size_t tasks_loop_thread(struct tasks *t, addr_t loop, const addr_t *tstates, const uint64_t *thread_ids, size_t n)
{
    uint64_t id = 0;
    addr_t object;

    if (trio_is_runner(t, loop))
        return trio_thread(t, loop, tstates, n);
    /* BaseEventLoop has it; uvloop's is not visible from Python. */
    if (objects_attr_get(&t->repr->py, loop, "_thread_id", &object) == 0) {
        objects_int_read(&t->repr->py, object, &id);
        for (size_t i = 0; i < n; i++)
            if (id && thread_ids[i] == id)
                return i;
        return n;
    }
    for (size_t i = 0; i < n; i++)
        if (t->repr->py.layout.ts_dict != NO ? dict_has_loop(t, tstates[i], loop) : state_has_loop(t, tstates[i], loop))
            return i;
    return n;
}
