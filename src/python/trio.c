/*
 * Reads the tasks of trio, which are plain Python objects (trio/_core/_run.py). The module's GLOBAL_RUN_CONTEXT is a threading.local: for each
 * thread that runs trio, it has a dict with the runner, which has a set of all tasks.
 */
#include "base/err.h"
#include "python/objects.h"
#include "python/repr/instances.h"
#include "python/strings.h"
#include "python/tasks_private.h"

#include <string.h>

#define LOCAL_FIRST                                                                                                    \
    24 /* Modules/_threadmodule.c: among these words of a _thread._local is a dict with the dict of each thread */
#define LOCAL_WORDS    5
#define WEAKREF_OBJECT 16
#define NURSERIES_MAX  256
#define CHILDREN_MAX   TASKS_MAX
#define SCOPES_MAX     256 /* nested cancel scopes */
#define STATE_BYTES    2048
#define NODES_MAX      1024 /* entries of a thread's dict */

/* ---- attributes ---- */

/* Looks up an attribute. `name` is a literal: where the __slots__ of a class are is looked up once. */
static int attr(struct tasks *t, addr_t object, const char *name, addr_t *ret)
{
    const struct repr_type *type;
    struct slot_offset *slot;
    uint64_t offset;
    addr_t addr;

    if (!object || repr_word(t->repr, object + 8, &addr) < 0)
        return ERR_READ;
    slot = &t->slots[(addr / 16 * 31 + (uintptr_t)name) % TASKS_SLOTS];
    if (slot->type != addr || slot->name != name) {
        type = repr_type(t->repr, addr);
        if (!type || instances_slot(t->repr, type, name, &offset) < 0)
            return instances_get(t->repr, object, name, ret);
        *slot = (struct slot_offset){.type = addr, .name = name, .offset = offset};
    }
    return repr_word(t->repr, object + slot->offset, ret) == 0 && *ret ? 0 : ERR_READ;
}

/* The same, without None: 0. */
static addr_t attr_or_none(struct tasks *t, addr_t object, const char *name)
{
    addr_t value;

    return attr(t, object, name, &value) < 0 || tasks_is_none(t, value) ? 0 : value;
}

static bool attr_is_true(struct tasks *t, addr_t object, const char *name)
{
    uint64_t number = 0;
    addr_t value;

    return attr(t, object, name, &value) == 0 && objects_int_read(&t->repr->py, value, &number) == 0 && number == 1;
}

bool trio_is_class(struct tasks *t, const struct repr_type *type, const char *name)
{
    const char *text;
    addr_t module;

    return repr_is_heap_type(type) && strcmp(repr_short_name(type), name) == 0 && type->dict &&
           objects_dict_get(&t->repr->py, type->dict, "__module__", &module) == 0 &&
           strings_read(&t->repr->py, module, &text) == 0 && strncmp(text, "trio.", 5) == 0;
}

bool trio_is_runner(struct tasks *t, addr_t object)
{
    const struct repr_type *type = object ? repr_type_of(t->repr, object) : NULL;

    return type && trio_is_class(t, type, "Runner");
}

/* ---- runners ---- */

/* One thread's part of the threading.local. */
struct run_context {
    struct tasks *t;
    addr_t runner; /* wanted; 0: list the tasks of each */
    addr_t dummy;  /* found */
    int error;
};

static bool visit_task(struct tasks *t, addr_t item, void *arg)
{
    *(int *)arg = tasks_add_found(t, item);
    return *(int *)arg == 0;
}

static int list_runner(struct tasks *t, addr_t runner)
{
    int error = 0, r;
    addr_t set;

    if (!trio_is_runner(t, runner) || attr(t, runner, "tasks", &set) < 0)
        return 0;
    r = tasks_items(t, set, TASKS_MAX, visit_task, &error);
    return error < 0 ? error : r;
}

/* The key is what keeps the dict of a thread alive: an object, up to 3.12 a weak reference to it. */
static bool visit_context(const struct python *py, addr_t key, addr_t value, void *arg)
{
    struct run_context *c = arg;
    const struct repr_type *type = repr_type_of(c->t->repr, value);
    addr_t runner;

    if (!type || !repr_derives(c->t->repr, type, "dict") || objects_dict_get(py, value, "runner", &runner) < 0)
        return true;
    if (!c->runner) {
        c->error = list_runner(c->t, runner);
        return c->error == 0;
    }
    if (runner != c->runner)
        return true;
    type = repr_type_of(c->t->repr, key);
    if (type && strncmp(type->name, "weakref", 7) == 0)
        mem_read_addr(py->mem, key + WEAKREF_OBJECT, &c->dummy);
    else
        c->dummy = key;
    return false;
}

static int walk_contexts(struct run_context *c, addr_t interp)
{
    const struct python *py = &c->t->repr->py;
    addr_t modules, module, dict, local, words[LOCAL_WORDS];

    if (repr_word(c->t->repr, interp + (addr_t)py->layout.in_modules, &modules) < 0 || !modules ||
        objects_dict_get(py, modules, "trio._core._run", &module) < 0 ||
        repr_word(c->t->repr, module + MODULE_DICT, &dict) < 0 || !dict ||
        objects_dict_get(py, dict, "GLOBAL_RUN_CONTEXT", &local) < 0 ||
        repr_read(c->t->repr, local + LOCAL_FIRST, words, sizeof(words)) < 0)
        return 0;
    for (size_t i = 0; i < LOCAL_WORDS && c->error == 0 && !c->dummy; i++) {
        const struct repr_type *type = words[i] ? repr_type_of(c->t->repr, words[i]) : NULL;

        if (type && strcmp(type->name, "dict") == 0)
            objects_dict_walk(py, words[i], visit_context, c);
    }
    return c->error;
}

int trio_list(struct tasks *t, addr_t interp)
{
    struct run_context c = {.t = t};

    return walk_contexts(&c, interp);
}

struct value_search {
    addr_t value;
    size_t n;
    bool found;
};

static bool visit_value(const struct python *py, addr_t key, addr_t value, void *arg)
{
    struct value_search *s = arg;
    addr_t referent = 0;

    (void)key;
    s->found =
        value == s->value || (mem_read_addr(py->mem, value + WEAKREF_OBJECT, &referent) == 0 && referent == s->value);
    return !s->found && ++s->n < NODES_MAX;
}

/* The thread state points to the key of the context from 3.13 on (threading_local_key); up to 3.12 its dict has the key among its values.
 * The offsets differ between versions, so search for them. */
static bool state_has_context(struct tasks *t, addr_t tstate, addr_t dummy)
{
    addr_t words[STATE_BYTES / 8];
    size_t n = STATE_BYTES / 8;

    while (n > 8 && repr_read(t->repr, tstate, words, n * 8) < 0)
        n /= 2;
    for (size_t i = 0; n > 8 && i < n; i++) {
        struct value_search s = {.value = dummy};
        const struct repr_type *type = words[i] && !(words[i] & 7) ? repr_type_of(t->repr, words[i]) : NULL;

        if (type && strcmp(type->name, "dict") == 0)
            objects_dict_walk(&t->repr->py, words[i], visit_value, &s);
        if (s.found || words[i] == dummy)
            return true;
    }
    return false;
}

size_t trio_thread(struct tasks *t, addr_t runner, const addr_t *tstates, size_t n)
{
    addr_t interp, last = 0;

    for (size_t i = 0; i < n; i++) {
        struct run_context c = {.t = t, .runner = runner};

        if (repr_word(t->repr, tstates[i] + (addr_t)t->repr->py.layout.ts_interp, &interp) < 0 || interp == last)
            continue;
        last = interp;
        walk_contexts(&c, interp);
        for (size_t k = 0; c.dummy && k < n; k++)
            if (state_has_context(t, tstates[k], c.dummy))
                return k;
    }
    return n;
}

addr_t trio_runner_of(struct tasks *t, addr_t task)
{
    return attr_or_none(t, task, "_runner");
}

/* ---- one task ---- */

static bool visit_child(struct tasks *t, addr_t item, void *arg)
{
    *(int *)arg = tasks_add_awaited(t, item);
    return *(int *)arg == 0;
}

static bool visit_nursery(struct tasks *t, addr_t nursery, void *arg)
{
    addr_t children;

    if (attr(t, nursery, "_children", &children) == 0)
        tasks_items(t, children, CHILDREN_MAX, visit_child, arg);
    return *(int *)arg == 0;
}

static int add_children(struct tasks *t, addr_t task)
{
    addr_t nurseries;
    int error = 0;

    if (attr(t, task, "_child_nurseries", &nurseries) == 0)
        tasks_items(t, nurseries, NURSERIES_MAX, visit_nursery, &error);
    return error;
}

/* What to subtract from times on the runner's clock; negative: the program has a clock of its own. */
static double clock_offset(struct tasks *t, addr_t runner)
{
    const struct repr_type *type;
    addr_t clock, offset;

    if (attr(t, runner, "clock", &clock) < 0)
        return -1;
    type = repr_type_of(t->repr, clock);
    if (!type || !trio_is_class(t, type, "SystemClock") || attr(t, clock, "offset", &offset) < 0)
        return -1;
    return tasks_number(t, offset);
}

/* CancelStatus.effective_deadline() */
static void read_scopes(struct tasks *t, addr_t task)
{
    addr_t status = attr_or_none(t, task, "_cancel_status"), scope, deadline;
    double offset = clock_offset(t, t->loop), least = -1, at;

    t->wait.is_cancelled = status && attr_is_true(t, status, "effectively_cancelled");
    for (size_t i = 0; status && i < SCOPES_MAX && attr(t, status, "_scope", &scope) == 0; i++) {
        at = attr(t, scope, "_deadline", &deadline) == 0 ? tasks_number(t, deadline) : -1;
        if (at >= 0 && at < 1e15 && (least < 0 || at < least))
            least = at;
        status = attr_is_true(t, scope, "_shield") ? 0 : attr_or_none(t, status, "_parent");
    }
    if (t->wait.when >= 0) /* so far on the runner's clock */
        t->wait.when = offset >= 0 && t->wait.when < 1e15 ? t->wait.when - offset : -1;
    if (least >= 0 && offset >= 0 && (t->wait.when < 0 || least - offset < t->wait.when - 0.001))
        t->wait.deadline = least - offset;
}

struct task_mark trio_mark(struct tasks *t, addr_t task, addr_t frame)
{
    const struct layout *l = &t->repr->py.layout;
    struct task_mark mark = {0};
    int32_t lasti = 0;

    mark.words[0] = attr_or_none(t, task, "_next_send_fn");
    mark.words[1] = attr_or_none(t, task, "coro");
    mark.words[2] = attr_or_none(t, task, "_schedule_points");
    mark.words[3] = frame;
    if (frame && l->fr_lasti != NO && repr_read(t->repr, frame + (addr_t)l->fr_lasti, &lasti, sizeof(lasti)) == 0)
        mark.words[4] = (addr_t)(uint32_t)lasti;
    else if (frame && l->fr_lasti == NO)
        repr_word(t->repr, frame + (addr_t)l->fr_instr, &mark.words[4]);
    return mark;
}

static enum py_task_state state_of(struct tasks *t, addr_t task)
{
    if (t->coro.executing)
        return PY_TASK_RUNNING;
    if (t->coro.created)
        return PY_TASK_NEW;
    return attr_or_none(t, task, "_next_send_fn") ? PY_TASK_READY : PY_TASK_WAITING;
}

int trio_read(struct tasks *t, addr_t task)
{
    addr_t name, coro;
    int r = attr(t, task, "coro", &coro);

    t->loop = trio_runner_of(t, task);
    t->name = NULL;
    if (attr(t, task, "name", &name) == 0 && strings_read(&t->repr->py, name, &t->name) == ERR_NOMEM)
        return ERR_NOMEM;
    if (r == 0)
        r = coroutines_read(&t->coro, t->repr, coro);
    if (r == 0 && !t->coro.n && !t->coro.leaf) { /* it has ended */
        t->state = PY_TASK_DONE;
        return 0;
    }
    if (r == 0)
        r = tasks_read_codes(t);
    if (r < 0)
        return r;
    t->mark = trio_mark(t, task, t->coro.n ? t->coro.frames[t->coro.n - 1].addr : 0);
    t->state = state_of(t, task);
    if (t->state == PY_TASK_WAITING)
        r = tasks_find_wait(t, 0);
    read_scopes(t, task);
    return r == 0 ? add_children(t, task) : r;
}
