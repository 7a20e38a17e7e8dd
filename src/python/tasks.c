/*
 * Reads one task: its state, its coroutine's frames, its name.
 */
#include "python/tasks_private.h"

#include "base/err.h"
#include "base/grow.h"
#include "python/frames_private.h"
#include "python/objects.h"
#include "python/repr/instances.h"
#include "python/strings.h"

#include <stdio.h>
#include <stdlib.h>

#define STATE_BYTES 4

enum future_kind { KIND_OTHER, KIND_C_FUTURE, KIND_C_TASK, KIND_PYTHON_FUTURE, KIND_PYTHON_TASK, KIND_TRIO_TASK };

/* In C, and what derives from it; else the classes of asyncio/tasks.py and asyncio/futures.py. */
static enum future_kind kind_of_type(struct tasks *t, const struct repr_type *type)
{
    if (repr_derives(t->repr, type, "_asyncio.Task"))
        return KIND_C_TASK;
    if (repr_derives(t->repr, type, "_asyncio.Future"))
        return KIND_C_FUTURE;
    if (!repr_is_heap_type(type) || !repr_derives(t->repr, type, "Future"))
        return trio_is_class(t, type, "Task") ? KIND_TRIO_TASK : KIND_OTHER;
    return repr_derives(t->repr, type, "Task") ? KIND_PYTHON_TASK : KIND_PYTHON_FUTURE;
}

static enum future_kind kind_of(struct tasks *t, addr_t object)
{
    const struct repr_type *type;
    addr_t addr;
    size_t slot;

    if (!object || object & 7 || repr_word(t->repr, object + 8, &addr) < 0)
        return KIND_OTHER;
    slot = addr / 16 % TASKS_TYPES;
    if (t->types[slot] != addr) {
        type = repr_type(t->repr, addr);
        if (!type)
            return KIND_OTHER;
        t->types[slot] = addr;
        t->kinds[slot] = (int)kind_of_type(t, type);
    }
    return (enum future_kind)t->kinds[slot];
}

bool tasks_is_future(struct tasks *t, addr_t object)
{
    enum future_kind kind = kind_of(t, object);

    return kind != KIND_OTHER && kind != KIND_TRIO_TASK;
}

bool tasks_is_task(struct tasks *t, addr_t object)
{
    enum future_kind kind = kind_of(t, object);

    return kind == KIND_C_TASK || kind == KIND_PYTHON_TASK;
}

bool tasks_is_none(struct tasks *t, addr_t object)
{
    const struct repr_type *type;

    if (object == t->none)
        return true;
    type = t->none ? NULL : repr_type_of(t->repr, object); /* there is one None */
    if (type && strcmp(type->name, "NoneType") == 0)
        t->none = object;
    return object == t->none;
}

int tasks_field(struct tasks *t, addr_t object, enum future_field field, addr_t *ret)
{
    const struct layout *l = &t->repr->py.layout;
    const struct {
        int at;
        const char *name;
    } fields[] = {
        [FUTURE_LOOP] = {l->fut_loop, "_loop"},
        [FUTURE_CALLBACK0] = {l->fut_callback0, ""},
        [FUTURE_CALLBACKS] = {l->fut_callbacks, "_callbacks"},
        [TASK_WAITER] = {l->task_waiter, "_fut_waiter"},
        [TASK_CORO] = {l->task_coro, "_coro"},
        [TASK_NAME] = {l->task_name, "_name"},
    };
    enum future_kind kind = kind_of(t, object);
    int r = 0;

    *ret = 0;
    if (!tasks_is_future(t, object) || (kind == KIND_C_FUTURE && field >= TASK_WAITER))
        return ERR_READ;
    if (kind == KIND_PYTHON_FUTURE || kind == KIND_PYTHON_TASK) {
        if (objects_attr_get(&t->repr->py, object, fields[field].name, ret) < 0)
            *ret = 0;
    } else if (fields[field].at != NO) {
        r = repr_word(t->repr, object + (addr_t)fields[field].at, ret);
    }
    if (r == 0 && *ret && tasks_is_none(t, *ret))
        *ret = 0;
    return r;
}

bool tasks_is_pending(struct tasks *t, addr_t object)
{
    enum future_kind kind = kind_of(t, object);
    addr_t text;
    int32_t state;

    if (kind == KIND_PYTHON_FUTURE || kind == KIND_PYTHON_TASK)
        return objects_attr_get(&t->repr->py, object, "_state", &text) < 0 || /* the attribute of the class */
               strings_equal(&t->repr->py, text, "PENDING");
    return tasks_is_future(t, object) &&
           repr_read(t->repr, object + (addr_t)t->repr->py.layout.fut_state, &state, sizeof(state)) == 0 && state == 0;
}

const char *tasks_type_name(struct tasks *t, addr_t object)
{
    const struct repr_type *type = repr_type_of(t->repr, object);

    return type ? intern_str(t->py->names, repr_short_name(type)) : NULL;
}

bool tasks_loop_is_trio(struct tasks *t, addr_t loop)
{
    return trio_is_runner(t, loop);
}

addr_t tasks_loop_of(struct tasks *t, addr_t task)
{
    addr_t loop;

    if (kind_of(t, task) == KIND_TRIO_TASK)
        return trio_runner_of(t, task);
    return tasks_is_task(t, task) && tasks_field(t, task, FUTURE_LOOP, &loop) == 0 ? loop : 0;
}

/* A str, or from 3.13 on an int for the names "Task-1", "Task-2" and so on, which are made when they are needed. */
static int read_name(struct tasks *t, addr_t task)
{
    char text[32];
    const struct repr_type *type;
    addr_t object;
    uint64_t number;
    int r = tasks_field(t, task, TASK_NAME, &object);

    t->name = NULL;
    if (r < 0 || !object)
        return 0;
    type = repr_type_of(t->repr, object);
    if (!type || strcmp(type->name, "int") != 0) {
        r = strings_read(&t->repr->py, object, &t->name);
        return r == ERR_NOMEM ? r : 0;
    }
    if (objects_int_read(&t->repr->py, object, &number) < 0)
        return 0;
    snprintf(text, sizeof(text), "Task-%llu", (unsigned long long)number);
    t->name = intern_str(t->py->names, text);
    return t->name ? 0 : ERR_NOMEM;
}

int tasks_read_codes(struct tasks *t)
{
    size_t n = t->coro.n;

    if (grow_array((void **)&t->addrs, &t->cap_addrs, n, sizeof(*t->addrs)) < 0 ||
        grow_array((void **)&t->codes, &t->cap_codes, n, sizeof(*t->codes)) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        t->addrs[i] = t->coro.frames[i].code;
    if (code_cache_get(t->cache, &t->repr->py, t->addrs, n, t->codes) == ERR_NOMEM)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        if (!t->codes[i])
            return ERR_READ;
    return 0;
}

/* The task's own fields, and the innermost frame's instruction. */
static struct task_mark make_mark(struct tasks *t, addr_t task, addr_t frame)
{
    const struct layout *l = &t->repr->py.layout;
    struct task_mark mark = {0};
    int32_t state = 0, lasti = 0;
    bool ok = tasks_field(t, task, TASK_WAITER, &mark.words[0]) == 0 &&
              tasks_field(t, task, TASK_CORO, &mark.words[1]) == 0 &&
              repr_read(t->repr, task + (addr_t)l->fut_state, &state, STATE_BYTES) == 0;

    mark.words[2] = (addr_t)(uint32_t)state;
    mark.words[3] = frame;
    if (!ok || !frame)
        return mark;
    if (l->fr_lasti != NO && repr_read(t->repr, frame + (addr_t)l->fr_lasti, &lasti, sizeof(lasti)) == 0)
        mark.words[4] = (addr_t)(uint32_t)lasti;
    else if (l->fr_lasti == NO)
        repr_word(t->repr, frame + (addr_t)l->fr_instr, &mark.words[4]);
    return mark;
}

bool tasks_is_same(struct tasks *t, addr_t task, const struct task_mark *mark)
{
    bool is_trio = kind_of(t, task) == KIND_TRIO_TASK;
    struct task_mark now = is_trio ? trio_mark(t, task, mark->words[3]) : make_mark(t, task, mark->words[3]);

    return (is_trio || tasks_is_task(t, task)) && memcmp(&now, mark, sizeof(now)) == 0;
}

static enum py_task_state state_of(struct tasks *t, addr_t task, addr_t waiter)
{
    if (!tasks_is_pending(t, task))
        return PY_TASK_DONE;
    if (t->coro.executing || (!waiter && !t->coro.n && !t->coro.leaf)) /* its coroutine runs, or has just ended */
        return PY_TASK_RUNNING;
    /* A future that is done has scheduled its task. An object that is no future of asyncio has its own ways. */
    if (waiter)
        return tasks_is_future(t, waiter) && !tasks_is_pending(t, waiter) ? PY_TASK_READY : PY_TASK_WAITING;
    return t->coro.created ? PY_TASK_NEW : PY_TASK_READY;
}

static int read_asyncio(struct tasks *t, addr_t task)
{
    addr_t coro, waiter;
    int r = tasks_field(t, task, FUTURE_LOOP, &t->loop);

    if (r == 0)
        r = tasks_field(t, task, TASK_CORO, &coro);
    if (r == 0)
        r = tasks_field(t, task, TASK_WAITER, &waiter);
    if (r == 0 && (!t->loop || !tasks_is_pending(t, task))) {
        t->state = PY_TASK_DONE;
        return 0;
    }
    if (r == 0)
        r = read_name(t, task);
    if (r == 0)
        r = coroutines_read(&t->coro, t->repr, coro);
    if (r == 0)
        r = tasks_read_codes(t);
    if (r < 0)
        return r;
    t->mark = make_mark(t, task, t->coro.n ? t->coro.frames[t->coro.n - 1].addr : 0);
    t->state = state_of(t, task, waiter);
    return t->state == PY_TASK_WAITING ? tasks_find_wait(t, waiter) : 0;
}

int tasks_read(struct tasks *t, addr_t task)
{
    int r;

    t->task = task;
    t->wait = (struct py_wait){.seconds = -1, .when = -1, .deadline = -1};
    t->n_awaits = t->n_in_groups = t->n_holds = t->coro.n = 0;
    r = kind_of(t, task) == KIND_TRIO_TASK ? trio_read(t, task) : read_asyncio(t, task);
    return r == 0 && t->state != PY_TASK_DONE ? tasks_find_holds(t) : r;
}

int tasks_read_frames(struct tasks *t, addr_t task)
{
    addr_t coro;
    int r = tasks_field(t, task, TASK_CORO, &coro);

    if (r == 0)
        r = coroutines_read(&t->coro, t->repr, coro);
    return r == 0 ? tasks_read_codes(t) : r;
}

void tasks_begin(struct tasks *t, const struct python *py, struct code_cache *cache)
{
    static const struct repr_limits limits = {.chars = 256, .depth = 1};

    t->py = py;
    t->cache = cache;
    t->none = 0;
    memset(t->types, 0, sizeof(t->types));
    memset(t->slots, 0, sizeof(t->slots));
    repr_begin(t->repr, py, &limits);
}

struct tasks *tasks_new(void)
{
    struct tasks *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->awaits_left = TASKS_AWAITS_MAX;
    t->repr = repr_new();
    return t->repr ? t : tasks_free(t);
}

struct tasks *tasks_free(struct tasks *t)
{
    if (!t)
        return NULL;
    repr_free(t->repr);
    coroutines_free(&t->coro);
    free(t->found);
    free(t->addrs);
    free(t->codes);
    free(t->awaits);
    free(t->holds);
    free(t);
    return NULL;
}
