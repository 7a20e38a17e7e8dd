/*
 * What a task waits for: the innermost frames tell the operation, the future and its callbacks tell who completes it.
 */
#include "base/err.h"
#include "base/grow.h"
#include "python/objects.h"
#include "python/repr/containers.h"
#include "python/repr/instances.h"
#include "python/repr/locals.h"
#include "python/strings.h"
#include "python/tasks_private.h"

#include <stdio.h>
#include <string.h>

#define FLOAT_VALUE   16 /* PyFloatObject.ob_fval */
#define SOCKET_FD     16 /* PySocketSockObject.sock_fd */
#define CELL_CONTENT  16
#define NESTED_MAX    64 /* look for gather() inside gather() among this many */
#define DEPTH_MAX     4
#define CALLBACKS_MAX 16
#define ITEMS_MAX     TASKS_MAX
#define PATH_NAME     32
#define CALLS_MAX     4  /* a partial of a method of a partial ... */
#define CALLED        16 /* im_func, fn, m_ml: the first field */

/*
 * One operation. A path such as "self._tasks" is a local variable of the frame and its attributes.
 */
struct wait_row {
    const char *file, *function;
    const char *kind;
    const char *object; /* path of the object that it waits for; NULL: the future */
    const char *awaits; /* path of the tasks that it waits for, if the future does not tell; NULL: it does */
    bool inside;        /* a building block: if a caller in these libraries has a row, that tells more */
};

/* ADD AN OPERATION HERE. */
static const struct wait_row rows[] = {
    {"asyncio/tasks.py", "sleep", "sleep", NULL, NULL, false},
    {"asyncio/tasks.py", "_wait", "tasks", NULL, "fs", false},
    {"asyncio/tasks.py", "wait_for", "tasks", NULL, "fut", false},
    {"asyncio/taskgroups.py", "__aexit__", "tasks", "self", "self._tasks", false},
    {"asyncio/taskgroups.py", "_aexit", "tasks", "self", "self._tasks", false},
    {"asyncio/locks.py", "acquire", "lock", "self", NULL, false},
    {"asyncio/locks.py", "wait", "event", "self", NULL, true},
    {"asyncio/queues.py", "get", "queue", "self", NULL, false},
    {"asyncio/queues.py", "put", "queue", "self", NULL, false},
    {"asyncio/queues.py", "join", "queue", "self", NULL, false},
    {"asyncio/streams.py", "_wait_for_data", "socket", "self._transport", NULL, false},
    {"asyncio/streams.py", "_drain_helper", "socket", "self._transport", NULL, false},
    {"asyncio/selector_events.py", "sock_recv", "socket", "sock", NULL, false},
    {"asyncio/selector_events.py", "sock_recv_into", "socket", "sock", NULL, false},
    {"asyncio/selector_events.py", "sock_recvfrom", "socket", "sock", NULL, false},
    {"asyncio/selector_events.py", "sock_sendall", "socket", "sock", NULL, false},
    {"asyncio/selector_events.py", "sock_connect", "socket", "sock", NULL, false},
    {"asyncio/selector_events.py", "sock_accept", "socket", "sock", NULL, false},
    {"asyncio/base_subprocess.py", "_wait", "process", "self._pid", NULL, false},
    {"asyncio/base_events.py", "serve_forever", "connections", "self", NULL, false},
    {"anyio/_backends/_asyncio.py", "__aexit__", "tasks", "self", "self._tasks", false},
    {"asyncio/threads.py", "to_thread", "executor", "func", NULL, false},
    {"anyio/_backends/_asyncio.py", "receive", "socket", "self._transport", NULL, false},
    {"anyio/_backends/_asyncio.py", "send", "socket", "self._transport", NULL, false},
    {"anyio/_backends/_asyncio.py", "run_sync_in_worker_thread", "thread", "func", NULL, false},
    {"anyio/_backends/_trio.py", "run_sync_in_worker_thread", "thread", "func", NULL, false},
    {"anyio/_backends/_asyncio.py", "acquire", "lock", "self", NULL, false},
    {"anyio/_backends/_asyncio.py", "acquire_on_behalf_of", "lock", "self", NULL, false},
    {"anyio/_core/_synchronization.py", "acquire", "lock", "self", NULL, false},
    {"anyio/streams/memory.py", "receive", "queue", "self", NULL, false},
    {"anyio/streams/memory.py", "send", "queue", "self", NULL, false},
    {"trio/_core/_parking_lot.py", "park", "event", "self", NULL, true},
    {"trio/_core/_run.py", "_nested_child_finished", "tasks", "self", NULL, false},
    {"trio/_core/_unbounded_queue.py", "get_batch", "queue", "self", NULL, false},
    {"trio/_core/_io_epoll.py", "_epoll_wait", "socket", "fd", NULL, true},
    {"trio/_timeouts.py", "sleep_forever", "sleep", NULL, NULL, true},
    {"trio/_timeouts.py", "sleep_until", "sleep", "deadline", NULL, false},
    {"trio/_sync.py", "acquire", "lock", "self", NULL, false},
    {"trio/_sync.py", "acquire_on_behalf_of", "lock", "self", NULL, false},
    {"trio/_sync.py", "wait", "event", "self", NULL, true},
    {"trio/_channel.py", "receive", "queue", "self", NULL, false},
    {"trio/_channel.py", "send", "queue", "self", NULL, false},
    {"trio/_threads.py", "to_thread_run_sync", "thread", "sync_fn", NULL, true},
    {"trio/_subprocess.py", "wait", "process", "self._proc.pid", NULL, false},
    {"trio/_signals.py", "__anext__", "event", "self", NULL, false},
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct wait_row *row_of(const struct code *code)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(code_last_name(code), rows[i].function) == 0 && code_is_in(code, rows[i].file))
            return &rows[i];
    return NULL;
}

/* Futures that are written in Python have a frame of their own, and each wait in trio ends with two functions. */
static bool is_last_step(const struct code *code)
{
    return (strcmp(code_last_name(code), "__await__") == 0 && code_is_in(code, "asyncio/futures.py")) ||
           code_is_in(code, "trio/_core/_traps.py");
}

static bool is_library(const struct code *code)
{
    return strstr(code->filename, "asyncio/") || strstr(code->filename, "trio/") || strstr(code->filename, "anyio/");
}

/* The operation, and the position of its frame. */
static const struct wait_row *find_row(const struct tasks *t, size_t *ret_frame)
{
    size_t at = t->coro.n;
    const struct wait_row *row = NULL, *outer;

    while (at > 0 && is_last_step(t->codes[at - 1]))
        at--;
    if (!at)
        return NULL;
    row = row_of(t->codes[--at]);
    *ret_frame = at;
    for (size_t i = at; row && row->inside && i > 0; i--) {
        outer = row_of(t->codes[i - 1]);
        if (outer && outer->object) {
            *ret_frame = i - 1;
            row = outer;
        }
        if (!outer && !is_library(t->codes[i - 1]))
            break;
    }
    return row;
}

static int follow_path(struct tasks *t, const struct py_frame *frame, const char *path, addr_t *ret)
{
    char name[PATH_NAME];
    bool first = true;
    int r = 0;

    while (r == 0 && *path) {
        size_t n = strcspn(path, ".");

        snprintf(name, sizeof(name), "%.*s", (int)n, path);
        r = first ? locals_find(t->repr, frame, name, ret) : instances_get(t->repr, *ret, name, ret);
        first = false;
        path += n + (path[n] == '.');
    }
    return r;
}

/* ---- tasks that it waits for ---- */

int tasks_add_awaited(struct tasks *t, addr_t object)
{
    if (!t->awaits_left) {
        t->incomplete = true;
        return 0;
    }
    if (grow_array((void **)&t->awaits, &t->cap_awaits, t->n_awaits + 1, sizeof(*t->awaits)) < 0)
        return ERR_NOMEM;
    t->awaits_left--;
    t->awaits[t->n_awaits++] = object;
    return 0;
}

struct add_items {
    size_t n;
    int r;
};

static bool visit_awaited(struct tasks *t, addr_t item, void *arg)
{
    struct add_items *a = arg;

    a->n++;
    a->r = tasks_add_awaited(t, item);
    return a->r == 0;
}

static bool is_gathering(struct tasks *t, addr_t object)
{
    const struct repr_type *type = repr_type_of(t->repr, object);

    return type && strcmp(type->name, "_GatheringFuture") == 0;
}

static int add_gathered(struct tasks *t, addr_t gathering, size_t depth);

/* Items may be futures: those that are no tasks are dropped later, all at once. */
static int add_items(struct tasks *t, addr_t object, size_t depth)
{
    struct add_items a = {0};
    size_t first = t->n_awaits, end;

    tasks_items(t, object, ITEMS_MAX, visit_awaited, &a);
    end = t->n_awaits;
    for (size_t i = first; a.r == 0 && a.n <= NESTED_MAX && depth < DEPTH_MAX && i < end; i++)
        if (is_gathering(t, t->awaits[i]))
            a.r = add_gathered(t, t->awaits[i], depth + 1);
    return a.r;
}

static int add_gathered(struct tasks *t, addr_t gathering, size_t depth)
{
    addr_t children;

    return objects_attr_get(&t->repr->py, gathering, "_children", &children) < 0 ? 0 : add_items(t, children, depth);
}

static int add_object(struct tasks *t, addr_t object)
{
    if (is_gathering(t, object))
        return add_gathered(t, object, 0);
    return tasks_is_future(t, object) ? tasks_add_awaited(t, object) : add_items(t, object, 0);
}

/* ---- who completes a future ---- */

/* True if the function's qualified name is `name`. */
static bool is_function(struct tasks *t, addr_t object, const char *name)
{
    const struct repr_type *type = repr_type_of(t->repr, object);
    addr_t text;

    return type && strcmp(type->name, "function") == 0 &&
           repr_word(t->repr, object + (addr_t)t->repr->py.layout.fu_name, &text) == 0 &&
           strings_equal(&t->repr->py, text, name);
}

/* shield(): the callback of the future knows the inner task, and from 3.14 on the outer one. */
static int add_shielded(struct tasks *t, addr_t function)
{
    addr_t closure, cells, cell, content;
    uint64_t n;
    int r = 0;

    if (repr_word(t->repr, function + (addr_t)t->repr->py.layout.fu_closure, &closure) < 0 || !closure ||
        containers_tuple(t->repr, closure, &n, &cells) < 0)
        return 0;
    for (size_t i = 0; r == 0 && i < n && i < CALLBACKS_MAX; i++)
        if (repr_word(t->repr, cells + i * 8, &cell) == 0 && repr_word(t->repr, cell + CELL_CONTENT, &content) == 0 &&
            content != t->task && tasks_is_future(t, content))
            r = tasks_add_awaited(t, content);
    return r;
}

/* run_in_executor(): the callback knows the future of the job, which is one of concurrent.futures. */
static void read_job(struct tasks *t, addr_t function)
{
    addr_t closure, cells, cell, content, state;
    uint64_t n;

    if (repr_word(t->repr, function + (addr_t)t->repr->py.layout.fu_closure, &closure) < 0 || !closure ||
        containers_tuple(t->repr, closure, &n, &cells) < 0)
        return;
    for (size_t i = 0; i < n && i < CALLBACKS_MAX; i++)
        if (repr_word(t->repr, cells + i * 8, &cell) == 0 && repr_word(t->repr, cell + CELL_CONTENT, &content) == 0 &&
            content && objects_attr_get(&t->repr->py, content, "_state", &state) == 0)
            t->wait.is_queued |= strings_equal(&t->repr->py, state, "PENDING");
}

static bool check_callback(struct tasks *t, addr_t callback, int *r)
{
    if (is_function(t, callback, "_chain_future.<locals>._call_check_cancel")) {
        t->wait.kind = "executor";
        read_job(t, callback);
        return true;
    }
    if (is_function(t, callback, "shield.<locals>._outer_done_callback")) {
        t->wait.kind = "tasks";
        t->wait.what = intern_str(t->py->names, "shield");
        *r = t->wait.what ? add_shielded(t, callback) : ERR_NOMEM;
        return true;
    }
    return false;
}

static bool visit_callback(struct tasks *t, addr_t item, void *arg)
{
    addr_t items, callback;
    uint64_t n;

    if (containers_tuple(t->repr, item, &n, &items) < 0 || !n || repr_word(t->repr, items, &callback) < 0)
        return true;
    return !check_callback(t, callback, arg);
}

static int check_callbacks(struct tasks *t, addr_t future)
{
    addr_t callback, list;
    int r = 0;

    if (tasks_field(t, future, FUTURE_CALLBACK0, &callback) == 0 && callback && check_callback(t, callback, &r))
        return r;
    if (tasks_field(t, future, FUTURE_CALLBACKS, &list) == 0 && list)
        tasks_items(t, list, CALLBACKS_MAX, visit_callback, &r);
    return r;
}

/* ---- details ---- */

double tasks_number(struct tasks *t, addr_t object)
{
    const struct repr_type *type = repr_type_of(t->repr, object);
    double value = -1;
    uint64_t whole;

    if (type && strcmp(type->name, "float") == 0)
        return repr_read(t->repr, object + FLOAT_VALUE, &value, sizeof(value)) < 0 ? -1 : value;
    if (type && strcmp(type->name, "int") == 0 && objects_int_read(&t->repr->py, object, &whole) == 0)
        return (double)whole;
    return -1;
}

static void read_sleep(struct tasks *t, const struct py_frame *frame)
{
    addr_t object;

    if (locals_find(t->repr, frame, "delay", &object) == 0)
        t->wait.seconds = tasks_number(t, object);
    if (follow_path(t, frame, "h._when", &object) == 0) /* uvloop's timers do not show it */
        t->wait.when = tasks_number(t, object);
    else if (locals_find(t->repr, frame, "deadline", &object) == 0) /* of trio, on its clock: trio.c converts it */
        t->wait.when = tasks_number(t, object);
}

/* A socket, or a transport that has one. */
static void read_socket(struct tasks *t, addr_t object)
{
    const struct repr_type *type = repr_type_of(t->repr, object);
    int32_t fd = -1;
    addr_t number;
    uint64_t value;

    if (type && strcmp(type->name, "int") == 0) {
        t->wait.has_fd = objects_int_read(&t->repr->py, object, &value) == 0 && value <= INT32_MAX;
        t->wait.number = t->wait.has_fd ? (int64_t)value : -1;
    } else if (type && repr_derives(t->repr, type, "_socket.socket")) {
        t->wait.has_fd = repr_read(t->repr, object + SOCKET_FD, &fd, sizeof(fd)) == 0 && fd >= 0;
        t->wait.number = fd;
    } else if (objects_attr_get(&t->repr->py, object, "_sock_fd", &number) == 0 &&
               objects_int_read(&t->repr->py, number, &value) == 0 && value <= INT32_MAX) {
        t->wait.has_fd = true;
        t->wait.number = (int64_t)value;
    }
}

/* The name of a function, or of what a bound method or a functools.partial calls. */
static int name_callable(struct tasks *t, addr_t object)
{
    const struct repr_type *type;
    addr_t at;
    char text[REPR_NAME_MAX];

    for (int i = 0; i < CALLS_MAX && (type = repr_type_of(t->repr, object)) != NULL; i++) {
        bool is_builtin = strcmp(type->name, "builtin_function_or_method") == 0;

        if (strcmp(type->name, "function") == 0)
            return repr_word(t->repr, object + (addr_t)t->repr->py.layout.fu_name, &at) == 0 &&
                           strings_read(&t->repr->py, at, &t->wait.what) == ERR_NOMEM
                       ? ERR_NOMEM
                       : 0;
        if (is_builtin) { /* PyMethodDef begins with the name */
            if (repr_word(t->repr, object + CALLED, &at) < 0 || repr_word(t->repr, at, &at) < 0 ||
                repr_c_string(t->repr, at, text, sizeof(text)) < 0)
                return 0;
            t->wait.what = intern_str(t->py->names, text);
            return t->wait.what ? 0 : ERR_NOMEM;
        }
        if ((strcmp(type->name, "method") != 0 && strcmp(type->name, "functools.partial") != 0) ||
            repr_word(t->repr, object + CALLED, &object) < 0)
            return 0;
    }
    return 0;
}

addr_t tasks_lock_owner(struct tasks *t, addr_t lock)
{
    static const char *const names[] = {"_owner", "_owner_task"};
    addr_t owner;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (instances_get(t->repr, lock, names[i], &owner) == 0 && !tasks_is_none(t, owner))
            return owner;
    return 0;
}

/* "Queue.get": the class of the object, and the method. */
static int name_object(struct tasks *t, const struct wait_row *row)
{
    const struct repr_type *type = repr_type_of(t->repr, t->wait.object);
    char text[REPR_NAME_MAX + 64];

    if (!type || strcmp(type->name, "int") == 0)
        return 0;
    if (strcmp(row->kind, "thread") == 0 || strcmp(row->kind, "executor") == 0)
        return name_callable(t, t->wait.object);
    if (strcmp(row->kind, "lock") == 0)
        t->wait.owner = tasks_lock_owner(t, t->wait.object);
    if (strcmp(row->kind, "tasks") == 0)
        snprintf(text, sizeof(text), "%s", repr_short_name(type));
    else
        snprintf(text, sizeof(text), "%s.%s", repr_short_name(type), row->function);
    t->wait.what = intern_str(t->py->names, text);
    return t->wait.what ? 0 : ERR_NOMEM;
}

static int apply_row(struct tasks *t, const struct wait_row *row, const struct py_frame *frame)
{
    addr_t object;
    uint64_t pid;
    int r = 0;

    t->wait.kind = row->kind;
    if (strcmp(row->kind, "sleep") == 0)
        read_sleep(t, frame);
    if (row->object && follow_path(t, frame, row->object, &object) == 0) {
        if (strcmp(row->kind, "process") == 0) {
            t->wait.number = objects_int_read(&t->repr->py, object, &pid) == 0 ? (int64_t)pid : 0;
        } else if (strcmp(row->kind, "sleep") != 0) {
            t->wait.object = object;
            r = name_object(t, row);
        }
        if (strcmp(row->kind, "socket") == 0) {
            read_socket(t, object);
            t->wait.object = t->wait.what ? object : 0;
        }
    } else if (strcmp(row->kind, "tasks") == 0) {
        t->wait.what = intern_str(t->py->names, row->function[0] == '_' ? row->function + 1 : row->function);
        r = t->wait.what ? 0 : ERR_NOMEM;
    }
    if (r == 0 && row->awaits && follow_path(t, frame, row->awaits, &object) == 0)
        r = add_object(t, object);
    return r;
}

int tasks_find_wait(struct tasks *t, addr_t waiter)
{
    const struct wait_row *row;
    size_t frame = 0;
    int r = 0;

    t->wait.kind = waiter ? "future" : NULL;
    t->wait.object = waiter;
    if (tasks_is_task(t, waiter)) {
        t->wait.kind = "task";
        return tasks_add_awaited(t, waiter);
    }
    if (waiter && is_gathering(t, waiter)) {
        t->wait.kind = "tasks";
        t->wait.what = intern_str(t->py->names, "gather");
        return t->wait.what ? add_gathered(t, waiter, 0) : ERR_NOMEM;
    }
    row = find_row(t, &frame);
    if (row)
        r = apply_row(t, row, &t->coro.frames[frame]);
    if (r == 0 && waiter && tasks_is_future(t, waiter) && (!row || strcmp(row->kind, "executor") == 0))
        r = check_callbacks(t, waiter);
    if (r == 0 && waiter && !t->wait.what && strcmp(t->wait.kind, "future") == 0)
        t->wait.what = tasks_type_name(t, waiter); /* NULL: it has changed meanwhile */
    return r;
}
