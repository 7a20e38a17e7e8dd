/*
 * Which objects a task is within the `async with` of. Until the block ends, its frame keeps __aexit__ on the value stack: up to 3.13 as a bound
 * method, from 3.14 on as a function followed by the object (LOAD_SPECIAL, Python/bytecodes.c).
 *
 * That makes it likely that the task holds the lock, not certain: the block may have released it.
 */
#include "base/err.h"
#include "base/grow.h"
#include "python/objects.h"
#include "python/repr/instances.h"
#include "python/strings.h"
#include "python/tasks_private.h"

#include <string.h>

#define VALUES_MAX   32 /* of a frame */
#define HOLDS_MAX    64 /* of a task */
#define METHOD_FUNC  16 /* PyMethodObject */
#define METHOD_SELF  24
#define MANAGERS_MAX 8 /* @asynccontextmanager inside @asynccontextmanager */

static bool is_type(struct tasks *t, addr_t object, const char *name)
{
    const struct repr_type *type = object && !(object & 7) ? repr_type_of(t->repr, object) : NULL;

    return type && strcmp(type->name, name) == 0;
}

static bool is_aexit(struct tasks *t, addr_t function)
{
    const char *name, *dot;
    addr_t text;

    if (!is_type(t, function, "function") ||
        repr_word(t->repr, function + (addr_t)t->repr->py.layout.fu_name, &text) < 0 ||
        strings_read(&t->repr->py, text, &name) < 0)
        return false;
    dot = strrchr(name, '.');
    return strcmp(dot ? dot + 1 : name, "__aexit__") == 0;
}

/* The object whose __aexit__ is at `values[i]`; 0: it is something else. */
static addr_t exited_object(struct tasks *t, const addr_t *values, size_t n, size_t i)
{
    addr_t function, self;

    if (is_type(t, values[i], "method"))
        return repr_word(t->repr, values[i] + METHOD_FUNC, &function) == 0 && is_aexit(t, function) &&
                       repr_word(t->repr, values[i] + METHOD_SELF, &self) == 0
                   ? self
                   : 0;
    return t->repr->py.layout.repr_flags & REPR_TAGGED_LOCALS && i + 1 < n && is_aexit(t, values[i]) ? values[i + 1]
                                                                                                     : 0;
}

static int add_hold(struct tasks *t, addr_t object)
{
    if (object == t->wait.object || t->n_holds == HOLDS_MAX)
        return 0;
    if (grow_array((void **)&t->holds, &t->cap_holds, t->n_holds + 1, sizeof(*t->holds)) < 0)
        return ERR_NOMEM;
    t->holds[t->n_holds++] = object;
    return 0;
}

static int scan_frame(struct tasks *t, addr_t frame, bool enters, int depth);

static bool visit_member(struct tasks *t, addr_t item, void *arg)
{
    *(int *)arg = tasks_add_awaited(t, item);
    return *(int *)arg == 0;
}

/* The tasks of a TaskGroup of asyncio or anyio. */
static int add_members(struct tasks *t, addr_t group)
{
    size_t before = t->n_awaits;
    addr_t members;
    int r = 0;

    if (instances_get(t->repr, group, "_tasks", &members) == 0)
        tasks_items(t, members, TASKS_MAX, visit_member, &r);
    t->n_in_groups += t->n_awaits - before;
    return r;
}

/* A Condition has a lock; a function with @asynccontextmanager has a generator whose frame may be within another block. */
static int add_object(struct tasks *t, addr_t object, int depth)
{
    const struct repr_type *type = repr_type_of(t->repr, object);
    addr_t inner;
    int r = add_hold(t, object);

    if (r < 0 || !type || object == t->wait.object)
        return r;
    if (strcmp(repr_short_name(type), "TaskGroup") == 0)
        return add_members(t, object);
    if (repr_derives(t->repr, type, "Condition") && instances_get(t->repr, object, "_lock", &inner) == 0)
        return add_hold(t, inner);
    if (repr_derives(t->repr, type, "_AsyncGeneratorContextManager") && depth < MANAGERS_MAX &&
        instances_get(t->repr, object, "gen", &inner) == 0)
        return scan_frame(t, coroutines_suspended_frame(t->repr, inner), false, depth + 1);
    return 0;
}

/* `enters`: the frame waits in __aenter__, so the last one is not held yet. */
static int scan_frame(struct tasks *t, addr_t frame, bool enters, int depth)
{
    addr_t values[VALUES_MAX], found[VALUES_MAX];
    size_t n = frame ? coroutines_values(t->repr, frame, values, VALUES_MAX) : 0, n_found = 0;
    int r = 0;

    for (size_t i = 0; i < n; i++) {
        found[n_found] = exited_object(t, values, n, i);
        n_found += found[n_found] != 0;
    }
    n_found -= enters && n_found;
    for (size_t i = 0; i < n_found && r == 0; i++)
        r = add_object(t, found[i], depth);
    return r;
}

int tasks_find_holds(struct tasks *t)
{
    int r = 0;

    for (size_t i = 0; i < t->coro.n && r == 0 && !t->coro.executing && !t->coro.created; i++) {
        const char *next = i + 1 < t->coro.n ? t->codes[i + 1]->name : "", *dot = strrchr(next, '.');

        r = scan_frame(t, t->coro.frames[i].addr, strcmp(dot ? dot + 1 : next, "__aenter__") == 0, 0);
    }
    return r;
}
