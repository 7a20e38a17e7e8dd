/*
 * The threading primitives of the standard library are written in Python on top of locks, so the innermost frames tell what a lock
 * is for: ADD AN OPERATION to the rows below.
 */
#include "python/thread_waits.h"

#include "base/err.h"
#include "python/lock_objects.h"
#include "python/objects.h"
#include "python/repr/instances.h"
#include "python/repr/locals.h"
#include "python/strings.h"

#include <stdio.h>
#include <string.h>

#define NAME_MAX_   256
#define CALLERS     16 /* frames of one operation, at most */
#define NAME_FRAMES 6
#define HANDLE      16 /* PyThreadHandleObject.handle, 3.13+ */
#define HANDLE_SIZE 96

enum row_kind {
    ROW_OUTER,     /* calls one of the others */
    ROW_CONDITION, /* Condition.wait: waits for a lock that it has just made */
    ROW_RLOCK,     /* an RLock that is written in Python */
    ROW_IMPORT,
    ROW_JOIN,
    ROW_SHUTDOWN, /* waits for all threads that are not daemons */
};

/* `type`: of `self`; NULL: any. The operation is `self`'s type and `function`. */
static const struct wait_row {
    const char *file, *function, *type;
    enum row_kind kind;
} rows[] = {
    {"/threading.py", "wait", "Condition", ROW_CONDITION},
    {"/threading.py", "acquire", "RLock", ROW_RLOCK},
    {"importlib._bootstrap>", "acquire", "ModuleLock", ROW_IMPORT},
    {"/importlib/_bootstrap.py", "acquire", "ModuleLock", ROW_IMPORT},
    {"/threading.py", "_wait_for_tstate_lock", NULL, ROW_JOIN},
    {"/threading.py", "join", NULL, ROW_JOIN},
    {"/threading.py", "_shutdown", NULL, ROW_SHUTDOWN},
    {"/threading.py", "wait", NULL, ROW_OUTER},
    {"/threading.py", "wait_for", NULL, ROW_OUTER},
    {"/threading.py", "_wait", NULL, ROW_OUTER},
    {"/threading.py", "_enter", NULL, ROW_OUTER},
    {"/threading.py", "acquire", NULL, ROW_OUTER},
    {"/threading.py", "start", NULL, ROW_OUTER},
    {"/queue.py", "get", NULL, ROW_OUTER},
    {"/queue.py", "put", NULL, ROW_OUTER},
    {"/queue.py", "join", NULL, ROW_OUTER},
    {"/Queue.py", "get", NULL, ROW_OUTER},
    {"/Queue.py", "put", NULL, ROW_OUTER},
    {"/Queue.py", "join", NULL, ROW_OUTER},
    {"/concurrent/futures/_base.py", "result", NULL, ROW_OUTER},
    {"/concurrent/futures/_base.py", "exception", NULL, ROW_OUTER},
    {"/concurrent/futures/_base.py", "wait", NULL, ROW_OUTER},
    {"/concurrent/futures/_base.py", "as_completed", NULL, ROW_OUTER},
    {"/multiprocessing/pool.py", "wait", NULL, ROW_OUTER},
    {"/multiprocessing/pool.py", "get", NULL, ROW_OUTER},
};

/* The name of an object's class, without the underscore of private ones. 2.7: also of an old-style class (classobject.h). */
static const char *class_name(struct repr *v, addr_t object)
{
    const struct repr_type *t = repr_type_of(v, object);
    const char *name;
    addr_t class, text;

    if (!t)
        return NULL;
    if (v->py.major == 2 && strcmp(t->name, "instance") == 0) {
        if (repr_word(v, object + 16, &class) < 0 || repr_word(v, class + 32, &text) < 0 ||
            strings_read(&v->py, text, &name) < 0)
            return NULL;
    } else {
        name = repr_short_name(t);
    }
    return *name == '_' && name[1] ? name + 1 : name;
}

static int attribute(struct repr *v, addr_t object, const char *name, addr_t *ret)
{
    const struct repr_type *t = repr_type_of(v, object);
    addr_t dict;

    if (t && v->py.major == 2 && strcmp(t->name, "instance") == 0)
        return repr_word(v, object + 24, &dict) < 0 ? ERR_READ : objects_dict_get(&v->py, dict, name, ret);
    return instances_get(v, object, name, ret);
}

/* An ident of a thread in an attribute; 0 if it is None. */
static uint64_t ident_of(struct repr *v, addr_t object, const char *name)
{
    const struct repr_type *t;
    uint64_t ident = 0;
    addr_t number;

    if (attribute(v, object, name, &number) < 0 || (t = repr_type_of(v, number)) == NULL ||
        (strcmp(t->name, "int") != 0 && strcmp(t->name, "long") != 0))
        return 0;
    return objects_int_read(&v->py, number, &ident) < 0 ? 0 : ident;
}

static const struct wait_row *row_of(struct repr *v, const struct py_frame *frame, const struct code *code,
                                     addr_t *ret_self)
{
    const char *name = code_last_name(code), *class;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(name, rows[i].function) != 0 || !code_is_in(code, rows[i].file))
            continue;
        if (locals_find(v, frame, "self", ret_self) < 0)
            *ret_self = 0;
        class = *ret_self ? class_name(v, *ret_self) : NULL;
        if (!rows[i].type || (class && strcmp(class, rows[i].type) == 0))
            return &rows[i];
    }
    return NULL;
}

/* "Queue.get", "threading._shutdown" */
static int name_operation(struct repr *v, const struct wait_row *row, addr_t self, const char **ret)
{
    const char *class = self ? class_name(v, self) : NULL, *file = strrchr(row->file, '/');
    char text[NAME_MAX_];

    file = file ? file + 1 : row->file;
    if (class)
        snprintf(text, sizeof(text), "%s.%s", class, row->function);
    else
        snprintf(text, sizeof(text), "%.*s.%s", (int)strcspn(file, "."), file, row->function);
    *ret = intern_str(v->py.names, text);
    return *ret ? 0 : ERR_NOMEM;
}

/* From `*ret_at` outwards to the operation that the program called. */
static const struct wait_row *outermost_row(struct repr *v, const struct py_frame *frames,
                                            const struct code *const *codes, size_t n, const struct wait_row *row,
                                            addr_t *self, size_t *ret_at)
{
    const struct wait_row *outer;
    addr_t object;

    for (size_t i = 1; i < n && i < CALLERS; i++) {
        outer = row_of(v, &frames[i], codes[i], &object);
        if (!outer || outer->kind == ROW_SHUTDOWN || outer->kind == ROW_RLOCK)
            break;
        row = outer;
        *self = object;
        *ret_at = i;
        if (row->kind == ROW_JOIN && strcmp(row->function, "join") == 0)
            break;
    }
    return row;
}

/* True if this is what the thread releases or sets when it ends: up to 3.12 a lock, later an event in what its handle points to. */
static bool is_end_of(struct repr *v, addr_t thread, addr_t lock, addr_t parked)
{
    addr_t found;

    if (lock && attribute(v, thread, "_tstate_lock", &found) == 0)
        return found == lock;
    return parked &&
           (attribute(v, thread, "_handle", &found) == 0 || attribute(v, thread, "_os_thread_handle", &found) == 0) &&
           repr_word(v, found + HANDLE, &found) == 0 && found && parked >= found && parked - found < HANDLE_SIZE;
}

/* A program may have a join() of its own in a file of this name. On 2.7, Thread.join waits for a Condition of the thread. */
static bool waits_for_end(struct repr *v, addr_t thread, addr_t inner, addr_t lock, addr_t futex)
{
    addr_t block;

    if (!thread)
        return false;
    if (v->py.major == 2)
        return attribute(v, thread, "_Thread__block", &block) == 0 && block && block == inner;
    return is_end_of(v, thread, lock, lock_object_parked(v, futex));
}

/* The same for an RLock that is written in Python, around a lock. */
static bool is_block_of(struct repr *v, addr_t rlock, addr_t lock)
{
    addr_t block;

    return rlock && lock && attribute(v, rlock, v->py.major == 2 ? "_RLock__block" : "_block", &block) == 0 &&
           block == lock;
}

static int read_import(struct repr *v, addr_t self, struct thread_wait *ret)
{
    addr_t name;

    ret->kind = THREAD_WAIT_IMPORT;
    ret->object = self;
    ret->owner = ident_of(v, self, "owner");
    ret->certain = ret->owner_certain = true;
    return attribute(v, self, "name", &name) == 0 && strings_read(&v->py, name, &ret->module) == ERR_NOMEM ? ERR_NOMEM
                                                                                                           : 0;
}

static int read_lock(struct repr *v, addr_t lock, enum lock_type type, struct thread_wait *ret)
{
    static const enum thread_wait_kind kinds[] = {[LOCK_PLAIN] = THREAD_WAIT_LOCK,
                                                  [LOCK_REENTRANT] = THREAD_WAIT_RLOCK,
                                                  [LOCK_SHARED] = THREAD_WAIT_SHARED_LOCK,
                                                  [LOCK_QUEUE] = THREAD_WAIT_OPERATION};

    if (type == LOCK_NONE)
        return 0;
    ret->kind = kinds[type];
    ret->object = lock;
    ret->owner = lock_object_owner(v, lock, type);
    ret->certain = true;
    ret->owner_certain = type == LOCK_REENTRANT; /* fork() copies what a lock of multiprocessing says */
    if (type == LOCK_QUEUE && !(ret->operation = intern_str(v->py.names, "SimpleQueue.get")))
        return ERR_NOMEM;
    return 0;
}

static int read_row(struct repr *v, const struct py_frame *frames, const struct code *const *codes, size_t n,
                    const struct wait_row *row, addr_t self, addr_t futex, struct thread_wait *ret)
{
    addr_t lock = ret->object, inner = self;
    size_t at = 0;
    bool ends;

    ret->n_frames = 1;
    switch (row->kind) {
    case ROW_IMPORT:
        return self ? read_import(v, self, ret) : 0;
    case ROW_RLOCK:
        if (!is_block_of(v, self, lock))
            return read_lock(v, lock, lock ? LOCK_PLAIN : LOCK_NONE, ret);
        ret->kind = THREAD_WAIT_RLOCK;
        ret->object = self;
        ret->owner = ident_of(v, self, v->py.major == 2 ? "_RLock__owner" : "_owner");
        ret->certain = ret->owner_certain = true;
        return 0;
    case ROW_SHUTDOWN:
        ret->kind = THREAD_WAIT_OPERATION;
        ret->is_shutdown = ret->certain = true;
        return name_operation(v, row, 0, &ret->operation);
    case ROW_CONDITION:
    case ROW_JOIN:
    case ROW_OUTER:
        break;
    }
    row = outermost_row(v, frames, codes, n, row, &self, &at);
    ret->n_frames = at + 1;
    ret->object = self;
    ends = row->kind == ROW_JOIN && waits_for_end(v, self, inner, lock, futex);
    ret->kind = ends ? THREAD_WAIT_THREAD : THREAD_WAIT_OPERATION;
    ret->certain = ret->owner_certain = true;
    if (ends)
        ret->owner = ident_of(v, self, v->py.major == 2 ? "_Thread__ident" : "_ident");
    return name_operation(v, row, self, &ret->operation);
}

/* Which of the innermost frames can be the one that sleeps, and not in a lock of its own. */
static bool may_wait_itself(const struct wait_row *row, enum lock_type type)
{
    if (row->kind == ROW_OUTER)
        return false;
    return type == LOCK_NONE || type == LOCK_PLAIN; /* Condition.wait() also acquires its RLock again */
}

/* 2.7: one lock for all modules (Python/import.c). */
static bool read_global_import(struct repr *v, addr_t futex, struct thread_wait *ret)
{
    addr_t lock;

    if (!futex || !v->py.import_lock || repr_word(v, v->py.import_lock, &lock) < 0 || lock != futex)
        return false;
    ret->kind = THREAD_WAIT_IMPORT;
    ret->certain = repr_word(v, v->py.import_lock_thread, &ret->owner) == 0;
    ret->owner = ret->certain && ret->owner != UINT64_MAX ? ret->owner : 0;
    ret->owner_certain = true;
    return true;
}

int thread_wait_read(struct repr *v, const struct py_frame *frames, const struct code *const *codes, size_t n,
                     addr_t futex, struct thread_wait *ret)
{
    const struct wait_row *row = NULL;
    addr_t lock = 0, self = 0;
    enum lock_type type;

    *ret = (struct thread_wait){0};
    if (read_global_import(v, futex, ret))
        return 0;
    if (futex)
        lock = lock_object_find(v, n ? &frames[0] : NULL, futex);
    type = lock_object_type(v, lock);
    if (n && codes[0])
        row = row_of(v, &frames[0], codes[0], &self);
    ret->object = type == LOCK_PLAIN ? lock : 0;
    if (row && may_wait_itself(row, type))
        return read_row(v, frames, codes, n, row, self, futex, ret);
    return read_lock(v, lock, type, ret);
}

uint64_t thread_wait_owner(struct repr *v, enum thread_wait_kind kind, addr_t object)
{
    uint64_t owner;

    if (kind == THREAD_WAIT_IMPORT && object)
        return ident_of(v, object, "owner");
    if (kind == THREAD_WAIT_IMPORT)
        return repr_word(v, v->py.import_lock_thread, &owner) == 0 && owner != UINT64_MAX ? owner : 0;
    if (kind != THREAD_WAIT_RLOCK)
        return 0;
    if (lock_object_type(v, object) == LOCK_REENTRANT)
        return lock_object_owner(v, object, LOCK_REENTRANT);
    return ident_of(v, object, v->py.major == 2 ? "_RLock__owner" : "_owner");
}

/* ---- names ---- */

struct by_value {
    struct repr *v;
    addr_t value;
    const char *name;
};

static bool visit_value(const struct python *py, addr_t key, addr_t value, void *arg)
{
    struct by_value *b = arg;

    if (value != b->value || strings_read(py, key, &b->name) < 0)
        return true;
    return false;
}

static const char *join_names(struct repr *v, const char *object, const char *attribute_name)
{
    char text[NAME_MAX_];

    snprintf(text, sizeof(text), "%s.%s", object, attribute_name);
    return intern_str(v->py.names, text);
}

const char *thread_wait_name(struct repr *v, const struct py_frame *frame, addr_t object)
{
    const struct layout *l = &v->py.layout;
    struct by_value b = {.v = v, .value = object};
    addr_t self, globals;
    const char *name = locals_find_value(v, frame, object);

    if (name)
        return name;
    if (locals_find(v, frame, "self", &self) == 0 && objects_attrs_walk(&v->py, self, visit_value, &b) == 0 && b.name)
        return join_names(v, "self", b.name);
    b.name = NULL;
    if (repr_word(v, frame->addr + (addr_t)l->fr_globals, &globals) == 0 && globals)
        objects_dict_walk(&v->py, globals, visit_value, &b);
    return b.name && lock_frame_uses_name(v, frame, b.name) ? b.name : NULL;
}

static bool is_library(const struct code *code)
{
    static const char *const files[] = {"/threading.py", "/queue.py", "/Queue.py", "/multiprocessing/synchronize.py"};

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (code_is_in(code, files[i]))
            return true;
    return false;
}

const char *thread_wait_name_outside(struct repr *v, const struct py_frame *frames, const struct code *const *codes,
                                     size_t n, addr_t object)
{
    const char *name = NULL, *rest = "", *outer;
    char text[NAME_MAX_];

    for (size_t i = 0; i < n && i < NAME_FRAMES && object; i++) {
        outer = thread_wait_name(v, &frames[i], object);
        if (outer && (!is_library(codes[i]) || strncmp(outer, "self.", 5) != 0)) {
            snprintf(text, sizeof(text), "%s%s", outer, rest);
            return is_library(codes[i]) ? name : intern_str(v->py.names, text);
        }
        if (!outer && !is_library(codes[i]))
            return name;
        if (!outer)
            continue;
        snprintf(text, sizeof(text), "%s%s", outer, rest);
        name = intern_str(v->py.names, text);
        if (!name || locals_find(v, &frames[i], "self", &object) < 0)
            return name;
        rest = name + strlen("self");
    }
    return name;
}

bool thread_frame_knows(struct repr *v, const struct py_frame *frame, addr_t object)
{
    return thread_wait_name(v, frame, object) != NULL;
}

addr_t thread_wait_lock_of(struct repr *v, addr_t condition)
{
    const char *class = class_name(v, condition);
    addr_t lock;

    if (!class || strcmp(class, "Condition") != 0)
        return 0;
    return attribute(v, condition, v->py.major == 2 ? "_Condition__lock" : "_lock", &lock) < 0 ? 0 : lock;
}

addr_t thread_wait_released(struct repr *v, const struct py_frame *frame, const struct code *code)
{
    addr_t self;

    if (strcmp(code_last_name(code), "wait") != 0 || !code_is_in(code, "/threading.py") ||
        locals_find(v, frame, "self", &self) < 0)
        return 0;
    return thread_wait_lock_of(v, self);
}

/* ---- threading._shutdown ---- */

struct by_lock {
    struct repr *v;
    addr_t lock, parked;
    uint64_t ident;
};

static bool visit_thread(const struct python *py, addr_t key, addr_t thread, void *arg)
{
    struct by_lock *b = arg;

    return !is_end_of(b->v, thread, b->lock, b->parked) || objects_int_read(py, key, &b->ident) < 0;
}

uint64_t thread_wait_ending(struct repr *v, addr_t active, addr_t futex, addr_t lock)
{
    struct by_lock b = {.v = v, .lock = lock, .parked = lock_object_parked(v, futex)};

    if (active && (b.lock || b.parked))
        objects_dict_walk(&v->py, active, visit_thread, &b);
    return b.ident;
}
