/*
 * Finds lock objects on the value stacks of frames. Slots above the top of the value stack have old contents, so being
 * in a slot proves nothing: a lock that a thread waits for must contain the futex, and a `with` block counts only below the depth
 * that the interpreter itself has recorded for it.
 */
#include "python/lock_objects.h"

#include "base/err.h"
#include "python/repr/containers.h"
#include "python/strings.h"

#include <string.h>

#define SLOTS_MAX       256
#define SEMAPHORE_BYTES 32 /* sizeof(sem_t) in glibc and musl */
#define TABLE_MAX       4096
#define NAMES_MAX       1024

/* Objects that begin with a PyThread_type_lock, a handle of a semaphore, or from 3.14 on a PyMutex (_threadmodule.c, _queuemodule.c,
 * semaphore.c of _multiprocessing). */
#define LOCK_POINTER 16
#define RLOCK_OWNER  24
#define SEMLOCK_TID  24
#define SEMLOCK_USES 32
#define METHOD_SELF  24 /* PyCFunctionObject.m_self, PyMethodObject.im_self, wrapperobject.self */

/* struct wait_entry, 3.13+: park_arg, addr, sema, … The futex is the first word of the semaphore. */
#define PARKED_ADDRESS 8 /* before the futex */
#define PARKING_MINOR  13
#define MUTEX_MINOR    14 /* Lock and RLock are a PyMutex */

enum lock_type lock_object_type(struct repr *v, addr_t object)
{
    static const struct {
        const char *name;
        enum lock_type type;
    } rows[] = {{"_thread.lock", LOCK_PLAIN},
                {"thread.lock", LOCK_PLAIN},
                {"_thread.RLock", LOCK_REENTRANT},
                {"_multiprocessing.SemLock", LOCK_SHARED},
                {"_queue.SimpleQueue", LOCK_QUEUE}};
    const struct repr_type *t = object ? repr_type_of(v, object) : NULL;

    for (size_t i = 0; t && i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(t->name, rows[i].name) == 0)
            return rows[i].type;
    return LOCK_NONE;
}

/* ---- the value stack ---- */

static bool has_frame_objects(const struct layout *l)
{
    return l->fr_values != NO;
}

/* The address of the first slot of the value stack, and the number of slots. */
static int value_stack(struct repr *v, const struct py_frame *frame, addr_t *ret_base, size_t *ret_n)
{
    const struct layout *l = &v->py.layout;
    int32_t size, locals;
    int r;

    if (has_frame_objects(l)) {
        r = repr_read(v, frame->code + (addr_t)(l->co_flags - 4), &size, sizeof(size)); /* co_stacksize */
        if (r == 0)
            r = repr_word(v, frame->addr + (addr_t)l->fr_values, ret_base);
    } else {
        r = repr_read(v, frame->code + (addr_t)(l->co_firstline - 4), &size, sizeof(size)); /* co_stacksize */
        if (r == 0)
            r = repr_read(v, frame->code + (addr_t)(l->co_firstline + 4), &locals, sizeof(locals)); /* co_nlocalsplus */
        if (r == 0 && (locals < 0 || locals > 65536))
            r = ERR_BOUNDS;
        if (r == 0)
            *ret_base = frame->addr + (addr_t)l->fr_slots + (addr_t)locals * 8;
    }
    if (r == 0 && size < 0)
        r = ERR_BOUNDS;
    if (r == 0)
        *ret_n = size < SLOTS_MAX ? (size_t)size : SLOTS_MAX;
    return r;
}

/* The object in a slot. From 3.14 on, the low bits of a slot are tags. */
static addr_t slot_object(struct repr *v, addr_t slot)
{
    addr_t object;

    if (repr_word(v, slot, &object) < 0)
        return 0;
    if (v->py.layout.repr_flags & REPR_TAGGED_LOCALS)
        return (object & 3) > 1 ? 0 : object & ~3ull;
    return object & 7 ? 0 : object;
}

/* The object that a method is bound to; any other object as it is. */
static addr_t bound_to(struct repr *v, addr_t object)
{
    static const char *const methods[] = {"builtin_function_or_method", "method", "instancemethod", "method-wrapper"};
    const struct repr_type *t = object ? repr_type_of(v, object) : NULL;
    addr_t self;

    for (size_t i = 0; t && i < sizeof(methods) / sizeof(methods[0]); i++)
        if (strcmp(t->name, methods[i]) == 0)
            return repr_word(v, object + METHOD_SELF, &self) == 0 ? self : 0;
    return t ? object : 0;
}

/* ---- the lock that a thread waits for ---- */

static bool has_mutex(const struct python *py)
{
    return py->major == 3 && py->minor >= MUTEX_MINOR;
}

/* True if the futex is in the semaphore of the object. */
static bool has_futex(struct repr *v, addr_t object, addr_t futex)
{
    enum lock_type type = lock_object_type(v, object);
    addr_t at;

    if (type == LOCK_NONE || (has_mutex(&v->py) && type != LOCK_SHARED) || repr_word(v, object + LOCK_POINTER, &at) < 0)
        return false;
    return at && futex >= at && futex - at < SEMAPHORE_BYTES;
}

/* True if the address at which the thread has parked is in the object. */
static bool is_parked_in(struct repr *v, addr_t object, addr_t parked)
{
    const struct repr_type *t;
    uint64_t size;

    if (lock_object_type(v, object) == LOCK_NONE || (t = repr_type_of(v, object)) == NULL)
        return false;
    return parked > object && repr_word(v, t->addr + (addr_t)v->py.layout.ty_basicsize, &size) == 0 &&
           parked - object < size;
}

addr_t lock_object_parked(struct repr *v, addr_t futex)
{
    addr_t parked;

    if (!futex || v->py.major < 3 || v->py.minor < PARKING_MINOR || repr_word(v, futex - PARKED_ADDRESS, &parked) < 0)
        return 0;
    return parked;
}

addr_t lock_object_find(struct repr *v, const struct py_frame *frame, addr_t futex)
{
    addr_t base, parked = lock_object_parked(v, futex);
    size_t n = 0;

    if (parked && has_mutex(&v->py)) {
        enum lock_type type = lock_object_type(v, parked - LOCK_POINTER);

        if (type == LOCK_PLAIN || type == LOCK_REENTRANT)
            return parked - LOCK_POINTER;
    }
    if (!frame || value_stack(v, frame, &base, &n) < 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        addr_t object = bound_to(v, slot_object(v, base + i * 8));

        if (object && (has_futex(v, object, futex) || (parked && is_parked_in(v, object, parked))))
            return object;
    }
    return 0;
}

uint64_t lock_object_owner(struct repr *v, addr_t object, enum lock_type type)
{
    uint64_t owner = 0;
    int32_t uses = 0;

    if (type == LOCK_REENTRANT)
        return repr_word(v, object + RLOCK_OWNER, &owner) < 0 ? 0 : owner;
    if (type == LOCK_SHARED && repr_read(v, object + SEMLOCK_USES, &uses, sizeof(uses)) == 0 && uses > 0)
        return repr_word(v, object + SEMLOCK_TID, &owner) < 0 ? 0 : owner;
    return 0;
}

/* ---- with blocks ---- */

/* Up to 3.10, a frame has a stack of blocks, each with the depth of the value stack (PyTryBlock: type, handler, level). */
static size_t depth_of_blocks(struct repr *v, const struct py_frame *frame)
{
    const struct layout *l = &v->py.layout;
    int32_t n, level;

    if (repr_read(v, frame->addr + (addr_t)l->fr_iblock, &n, sizeof(n)) < 0 || n <= 0 || n > 20)
        return 0;
    if (repr_read(v, frame->addr + (addr_t)l->fr_blockstack + (addr_t)(n - 1) * 12 + 8, &level, sizeof(level)) < 0)
        return 0;
    return level > 0 ? (size_t)level : 0;
}

/* A number in the exception table: six bits per byte, bit 6: more follow; bit 7 marks the first of an entry. */
static bool next_number(const unsigned char *bytes, size_t n, size_t *at, uint32_t *ret)
{
    uint32_t value = 0;

    for (int i = 0; i < 5 && *at < n; i++) {
        unsigned char b = bytes[(*at)++];

        value = value << 6 | (b & 63);
        if (!(b & 64)) {
            *ret = value;
            return true;
        }
    }
    return false;
}

/* From 3.11 on, the exception table of the code object has the depth for each range of instructions: start, size, target and
 * depth << 1 | lasti, in code units (Objects/exception_handling_notes.txt). */
static size_t depth_of_table(struct repr *v, const struct py_frame *frame)
{
    const struct layout *l = &v->py.layout;
    unsigned char bytes[TABLE_MAX];
    uint64_t size;
    addr_t table;
    size_t at = 0;
    uint32_t unit, e[4];

    if (frame->at < 0 || repr_word(v, frame->code + (addr_t)(l->co_flags - 8), &table) < 0 || /* co_exceptiontable */
        repr_word(v, table + (addr_t)l->by_size, &size) < 0 || size > TABLE_MAX ||
        repr_read(v, table + (addr_t)l->by_data, bytes, size) < 0)
        return 0;
    unit = (uint32_t)(frame->at / 2);
    while (at < size) {
        for (int i = 0; i < 4; i++)
            if (!next_number(bytes, size, &at, &e[i]))
                return 0;
        if (unit >= e[0] && unit - e[0] < e[1])
            return e[3] >> 1;
    }
    return 0;
}

size_t lock_objects_in_with(struct repr *v, const struct py_frame *frame, addr_t *ret, size_t max)
{
    size_t depth = has_frame_objects(&v->py.layout) ? depth_of_blocks(v, frame) : depth_of_table(v, frame), n,
           found = 0;
    addr_t base;

    if (!depth || value_stack(v, frame, &base, &n) < 0)
        return 0;
    for (size_t i = 0; i < depth && i < n && found < max; i++) {
        addr_t object = bound_to(v, slot_object(v, base + i * 8));

        if (object)
            ret[found++] = object;
    }
    return found;
}

/* co_names precedes co_varnames up to 3.10; from 3.11 on it is before the exception table. */
bool lock_frame_uses_name(struct repr *v, const struct py_frame *frame, const char *name)
{
    const struct layout *l = &v->py.layout;
    int at = has_frame_objects(l) ? l->co_varnames - 8 : l->co_flags - 16;
    addr_t tuple, items, item;
    uint64_t n;

    if (repr_word(v, frame->code + (addr_t)at, &tuple) < 0 || containers_tuple(v, tuple, &n, &items) < 0)
        return false;
    for (size_t i = 0; i < n && i < NAMES_MAX; i++)
        if (repr_word(v, items + i * 8, &item) == 0 && strings_equal(&v->py, item, name))
            return true;
    return false;
}
