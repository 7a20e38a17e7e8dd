/*
 * Running task -> tasks that wait for it.
 */
#include "python/awaiters.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/grow.h"
#include "python/objects.h"
#include "python/repr/containers.h"
#include "python/repr/instances.h"
#include "python/repr/locals.h"
#include "python/tasks_private.h"

#include <stdlib.h>
#include <string.h>

#define FIND_NS            NS_PER_S /* look for the dict of running tasks this often */
#define RUNNING_MAX        64       /* loops that run a task at the same time */
#define FUTURES_MAX        8        /* between a task and the one that awaits it: gather() inside gather(), shield() */
#define CALLBACKS_MAX      16
#define VISITS_MAX         512             /* of callbacks and futures, for all tasks of a stack */
#define READ_NS            (5 * NS_PER_MS) /* the thread is paused meanwhile */
#define CELLS_MAX          16
#define CREATOR_FRAMES_MAX 256
#define METHOD_SELF        24 /* PyCFunctionObject.m_self, PyMethodObject.im_self */
#define WRAPPER_TASK       16 /* TaskStepMethWrapper, up to 3.7 TaskWakeupMethWrapper (_asynciomodule.c) */
#define PARTIAL_ARGS       24 /* partialobject.args (_functoolsmodule.c) */
#define CELL_CONTENT       16

/* Elapsed time is not enough: on a busy machine, others may have had the CPU, and a walk that ends too early gives a wrong root. */
struct time_limit {
    uint64_t end_ns, end_cpu_ns;
};

static struct time_limit time_limit_from_now(void)
{
    return (struct time_limit){clock_now_ns() + READ_NS, clock_cpu_ns() + READ_NS};
}

static bool is_late(const struct time_limit *l)
{
    return clock_now_ns() >= l->end_ns && clock_cpu_ns() >= l->end_cpu_ns;
}

/* ---- the running task ---- */

/* Its coroutine's outermost frame is on the stack of the thread. */
static size_t position_of(struct tasks *t, addr_t task, const struct frames *stack)
{
    const struct layout *l = &t->repr->py.layout;
    addr_t coro, frame;

    if (tasks_field(t, task, TASK_CORO, &coro) < 0 || !coro)
        return 0;
    frame = coro + (addr_t)l->ge_frame;
    if (l->ge_state == NO && repr_word(t->repr, frame, &frame) < 0)
        return 0;
    for (size_t i = 0; i < stack->n; i++)
        if (stack->items[i].addr == frame)
            return i + 1;
    return 0;
}

static void find_running(struct awaiters *a, struct tasks *t, addr_t interp, uint64_t now)
{
    const struct python *py = &t->repr->py;
    addr_t modules, module, dict;

    if (a->interp == interp && a->found_ns && now - a->found_ns < FIND_NS)
        return;
    *a = (struct awaiters){.frames = a->frames,
                           .codes = a->codes,
                           .cap_frames = a->cap_frames,
                           .cap_codes = a->cap_codes,
                           .interp = interp,
                           .found_ns = now};
    if (repr_word(t->repr, interp + (addr_t)py->layout.in_modules, &modules) < 0 || !modules ||
        objects_dict_get(py, modules, "asyncio.tasks", &module) < 0 ||
        repr_word(t->repr, module + MODULE_DICT, &dict) < 0 || !dict ||
        objects_dict_get(py, dict, "_current_tasks", &a->running) < 0)
        a->running = 0;
}

struct running {
    struct tasks *t;
    struct time_limit limit;
    const struct frames *stack;
    addr_t task;
    size_t kept, visited;
};

static bool visit_running(const struct python *py, addr_t loop, addr_t task, void *arg)
{
    struct running *r = arg;

    (void)py;
    (void)loop;
    r->kept = tasks_is_task(r->t, task) ? position_of(r->t, task, r->stack) : 0;
    r->task = task;
    return !r->kept && ++r->visited < RUNNING_MAX && !is_late(&r->limit);
}

/* The task that the thread runs, or 0. */
static addr_t running_task(struct awaiters *a, struct tasks *t, addr_t interp, addr_t tstate,
                           const struct frames *stack, uint64_t now)
{
    const struct layout *l = &t->repr->py.layout;
    struct running r = {.t = t, .stack = stack, .limit = time_limit_from_now()};

    if (l->ts_running_task != NO) {
        if (repr_word(t->repr, tstate + (addr_t)l->ts_running_task, &r.task) == 0 && r.task)
            visit_running(&t->repr->py, 0, r.task, &r);
    } else {
        find_running(a, t, interp, now);
        if (a->running)
            objects_dict_walk(&t->repr->py, a->running, visit_running, &r);
    }
    a->kept = r.kept;
    return r.kept ? r.task : 0;
}

/* ---- eager tasks ---- */

static bool is_coroutine(struct tasks *t, addr_t frame)
{
    const struct layout *l = &t->repr->py.layout;
    const struct repr_type *type = repr_type_of(t->repr, frame - (addr_t)l->ge_frame);
    int8_t state;

    return type && strcmp(type->name, "coroutine") == 0 &&
           repr_read(t->repr, frame - (addr_t)l->ge_frame + (addr_t)l->ge_state, &state, 1) == 0 &&
           state == l->ge_executing;
}

/* The task that a handle of the event loop runs: its callback is a method of the task. */
static addr_t task_of_handle(struct tasks *t, const struct py_frame *frame)
{
    static const addr_t selves[] = {METHOD_SELF, WRAPPER_TASK};
    addr_t handle, callback, task;

    if (locals_find(t->repr, frame, "self", &handle) < 0 || instances_get(t->repr, handle, "_callback", &callback) < 0)
        return 0;
    for (size_t i = 0; i < sizeof(selves) / sizeof(selves[0]); i++)
        if (repr_word(t->repr, callback + selves[i], &task) == 0 && tasks_is_task(t, task))
            return task;
    return 0;
}

static bool is_handle_run(const struct code *code)
{
    return strcmp(code->name, "Handle._run") == 0 && strstr(code->filename, "asyncio/events.py");
}

/*
 * 3.12+: an eager task begins on the stack of the task that creates it, and nobody awaits it then. Before its first frame and after its
 * last one, it runs without being on the stack. Returns the task that the event loop runs, which may be `task`, and sets a->kept. 0: it
 * is unknown, as with uvloop.
 */
static addr_t outermost_task(struct awaiters *a, struct tasks *t, addr_t task, const struct frames *stack,
                             const struct code *const *codes)
{
    const struct layout *l = &t->repr->py.layout;
    size_t first = a->kept, last = first + CREATOR_FRAMES_MAX < stack->n ? first + CREATOR_FRAMES_MAX : stack->n, i, at;
    addr_t creator;

    if (l->major < 3 || l->minor < 12)
        return task;
    for (i = first; i < last && !is_handle_run(codes[i]); i++)
        ;
    if (i < last && (i > first || !task)) {
        creator = task_of_handle(t, &stack->items[i]);
        at = creator ? position_of(t, creator, stack) : 0;
        if (at >= first && at) {
            a->kept = at;
            return creator;
        }
    }
    for (size_t k = first; task && k < i && !strstr(codes[k]->filename, "asyncio/runners.py"); k++)
        if (is_coroutine(t, stack->items[k].addr))
            a->kept = k + 1;
    return a->kept == first ? task : 0;
}

/* ---- the task that awaits a task ---- */

/* What is left for all walks of a stack: the target controls how many ways lead from future to future. */
struct budget {
    size_t visits;
    struct time_limit limit;
};

static bool spend(struct budget *b)
{
    if (!b->visits || is_late(&b->limit))
        return false;
    b->visits--;
    return true;
}

/* A walk from one future to the next. */
struct walk {
    struct tasks *t;
    struct budget *budget;
    addr_t from;     /* the task where it began */
    addr_t future;   /* whose callbacks are being visited */
    addr_t awaiter;  /* 0: not found yet */
    bool structural; /* a task group: its task need not await now */
    int depth;
};

static bool visit_callback_of(struct tasks *t, addr_t item, void *arg);

/* The callbacks of a future are those of whoever awaits it. */
static void visit_future(struct walk *w, addr_t future)
{
    addr_t callback, list, outer = w->future;

    if (w->depth == FUTURES_MAX || !spend(w->budget))
        return;
    w->depth++;
    w->future = future;
    if (tasks_field(w->t, future, FUTURE_CALLBACK0, &callback) == 0 && callback)
        visit_callback_of(w->t, callback, w);
    if (!w->awaiter && tasks_field(w->t, future, FUTURE_CALLBACKS, &list) == 0 && list)
        tasks_items(w->t, list, CALLBACKS_MAX, visit_callback_of, w);
    w->future = outer;
    w->depth--;
}

/* A task group of asyncio or anyio knows the task that it belongs to. */
static void visit_group(struct walk *w, addr_t object)
{
    addr_t task;

    if (instances_get(w->t->repr, object, "_parent_task", &task) < 0 &&
        (instances_get(w->t->repr, object, "cancel_scope", &task) < 0 ||
         instances_get(w->t->repr, task, "_host_task", &task) < 0))
        return;
    if (task != w->from && tasks_is_task(w->t, task)) {
        w->awaiter = task;
        w->structural = true;
    }
}

static void visit_object(struct walk *w, addr_t object)
{
    const struct repr_type *type;

    if (!object || object == w->from)
        return;
    type = repr_type_of(w->t->repr, object);
    if (!type)
        return;
    if (tasks_is_future(w->t, object))
        visit_future(w, object);
    else if (strcmp(repr_short_name(type), "TaskGroup") == 0)
        visit_group(w, object);
}

/* The variables of an inner function, such as the one that gather() adds as a callback. */
static void visit_closure(struct walk *w, addr_t function)
{
    addr_t closure, cells, cell, content;
    uint64_t n;

    if (repr_word(w->t->repr, function + (addr_t)w->t->repr->py.layout.fu_closure, &closure) < 0 || !closure ||
        containers_tuple(w->t->repr, closure, &n, &cells) < 0)
        return;
    for (size_t i = 0; !w->awaiter && w->budget->visits && i < n && i < CELLS_MAX; i++)
        if (repr_word(w->t->repr, cells + i * 8, &cell) == 0 &&
            repr_word(w->t->repr, cell + CELL_CONTENT, &content) == 0 &&
            !tasks_is_task(w->t, content)) /* another child */
            visit_object(w, content);
}

/* `self` of a method: the task that is to be woken up, or a task group. A task that waits for something else has added another of its
 * methods, such as cancel(). */
static void visit_self(struct walk *w, addr_t self)
{
    addr_t waiter;

    if (!self || self == w->from)
        return;
    if (!tasks_is_task(w->t, self))
        visit_object(w, self);
    else if (tasks_field(w->t, self, TASK_WAITER, &waiter) == 0 && waiter == w->future)
        w->awaiter = self;
}

/* functools.partial(_release_waiter, waiter), in wait_for() up to 3.11. */
static void visit_partial(struct walk *w, addr_t partial)
{
    addr_t args, items, item;
    uint64_t n;

    if (repr_word(w->t->repr, partial + PARTIAL_ARGS, &args) < 0 || containers_tuple(w->t->repr, args, &n, &items) < 0)
        return;
    for (size_t i = 0; !w->awaiter && w->budget->visits && i < n && i < CELLS_MAX; i++)
        if (repr_word(w->t->repr, items + i * 8, &item) == 0)
            visit_object(w, item);
}

static void visit_callback(struct walk *w, addr_t callback)
{
    const struct repr_type *type = repr_type_of(w->t->repr, callback);
    const char *name = type ? repr_short_name(type) : "";
    addr_t self;

    if (!spend(w->budget))
        return;
    if (strcmp(name, "function") == 0)
        visit_closure(w, callback);
    else if (strcmp(name, "partial") == 0)
        visit_partial(w, callback);
    else if ((strcmp(name, "builtin_function_or_method") == 0 || strcmp(name, "method") == 0) &&
             repr_word(w->t->repr, callback + METHOD_SELF, &self) == 0)
        visit_self(w, self);
    else if ((strcmp(name, "TaskWakeupMethWrapper") == 0 || strcmp(name, "TaskStepMethWrapper") == 0) &&
             repr_word(w->t->repr, callback + WRAPPER_TASK, &self) == 0)
        visit_self(w, self);
}

/* A callback, or a tuple of a callback and its context. */
static bool visit_callback_of(struct tasks *t, addr_t item, void *arg)
{
    struct walk *w = arg;
    const struct repr_type *type = repr_type_of(t->repr, item);
    addr_t items;
    uint64_t n;

    if (type && strcmp(type->name, "tuple") == 0 &&
        (containers_tuple(t->repr, item, &n, &items) < 0 || !n || repr_word(t->repr, items, &item) < 0))
        return true;
    visit_callback(w, item);
    return !w->awaiter && w->budget->visits;
}

/* ---- frames ---- */

/* True if the last coroutine that was read waits at the end of a task group. */
static bool waits_for_group(const struct tasks *t)
{
    for (size_t i = 0; i < t->coro.n; i++) {
        const char *dot = strrchr(t->codes[i]->name, '.'), *name = dot ? dot + 1 : t->codes[i]->name;

        if ((strcmp(name, "__aexit__") == 0 || strcmp(name, "_aexit") == 0) &&
            (strstr(t->codes[i]->filename, "asyncio/taskgroups.py") ||
             strstr(t->codes[i]->filename, "anyio/_backends/")))
            return true;
    }
    return false;
}

/* Adds the frames of the last coroutine that was read. */
static int add_frames(struct awaiters *a, const struct tasks *t)
{
    size_t n = t->coro.n;

    if (grow_array((void **)&a->frames, &a->cap_frames, a->n + n, sizeof(*a->frames)) < 0 ||
        grow_array((void **)&a->codes, &a->cap_codes, a->n + n, sizeof(*a->codes)) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        a->frames[a->n] = t->coro.frames[n - 1 - i];
        a->codes[a->n++] = t->codes[n - 1 - i];
    }
    return 0;
}

int awaiters_read(struct awaiters *a, struct tasks *t, addr_t interp, addr_t tstate, const struct frames *stack,
                  const struct code *const *codes, uint64_t now)
{
    struct budget budget = {VISITS_MAX, time_limit_from_now()};
    addr_t task = 0;

    a->n = a->kept = 0;
    if (tasks_are_listed(&t->repr->py)) {
        task = running_task(a, t, interp, tstate, stack, now);
        task = outermost_task(a, t, task, stack, codes);
    }
    for (int i = 0; task && i < AWAITERS_MAX && a->n < AWAITERS_MAX_FRAMES && !is_late(&budget.limit); i++) {
        struct walk w = {.t = t, .budget = &budget, .from = task};

        visit_future(&w, task);
        task = w.awaiter;
        if (!task || tasks_read_frames(t, task) < 0 || t->coro.executing || (w.structural && !waits_for_group(t)))
            break;
        if (add_frames(a, t) < 0)
            return ERR_NOMEM;
    }
    return 0;
}

void awaiters_free(struct awaiters *a)
{
    free(a->frames);
    free(a->codes);
    *a = (struct awaiters){0};
}
