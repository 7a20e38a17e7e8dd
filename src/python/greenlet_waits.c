/*
 * What a suspended greenlet waits for: its innermost frames tell the operation. Most of gevent is compiled and has no frames, so an Event of
 * gevent, for example, is not among these.
 */
#include "python/greenlets.h"

#include "base/err.h"
#include "python/objects.h"
#include "python/repr/instances.h"
#include "python/repr/locals.h"

#include <stdio.h>
#include <string.h>

#define FLOAT_VALUE 16 /* PyFloatObject.ob_fval */
#define SOCKET_FD   16 /* PySocketSockObject.sock_fd */
#define FRAMES_SEEN 3  /* innermost frames: eventlet has its own below the operation */

/* `value`: a local variable: the seconds, the file descriptor, or the object. */
static const struct wait_row {
    const char *file, *function, *kind, *value;
} rows[] = {
    /* ADD AN OPERATION HERE. An empty name: any function of the file. */
    {"gevent/hub.py", "sleep", "sleep", "seconds"},
    {"gevent/thread.py", "acquire", "lock", "self"},
    {"gevent/_socketcommon.py", "", "socket", "self"},
    {"gevent/_socket3.py", "", "socket", "self"},
    {"gevent/_socket2.py", "", "socket", "self"},
    {"gevent/threadpool.py", "get", "thread", NULL},
    {"eventlet/greenthread.py", "sleep", "sleep", "seconds"},
    {"eventlet/hubs/__init__.py", "trampoline", "socket", "fileno"},
    {"eventlet/semaphore.py", "acquire", "lock", "self"},
    {"eventlet/event.py", "wait", "event", "self"},
    {"eventlet/queue.py", "get", "queue", "self"},
    {"eventlet/queue.py", "put", "queue", "self"},
};

static const struct wait_row *find_row(const struct code *code)
{
    const char *name = code_last_name(code);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (code_is_in(code, rows[i].file) && (!*rows[i].function || strcmp(name, rows[i].function) == 0))
            return &rows[i];
    return NULL;
}

static double read_number(struct repr *v, addr_t object)
{
    const struct repr_type *type = repr_type_of(v, object);
    double value = -1;
    uint64_t whole;

    if (type && strcmp(type->name, "float") == 0 && repr_read(v, object + FLOAT_VALUE, &value, sizeof(value)) == 0)
        return value >= 0 ? value : -1;
    if (type && strcmp(type->name, "int") == 0 && objects_int_read(&v->py, object, &whole) == 0)
        return (double)whole;
    return -1;
}

/* A number, or a socket of gevent, which has one of the C type. */
static void read_socket(struct repr *v, addr_t object, struct py_wait *ret)
{
    const struct repr_type *type = repr_type_of(v, object);
    addr_t inner;
    int32_t fd = -1;
    uint64_t number;

    if (type && strcmp(type->name, "int") == 0) {
        if (objects_int_read(&v->py, object, &number) == 0 && number <= INT32_MAX)
            fd = (int32_t)number;
    } else if (instances_get(v, object, "_sock", &inner) == 0 && (type = repr_type_of(v, inner)) != NULL &&
               repr_derives(v, type, "_socket.socket") && repr_read(v, inner + SOCKET_FD, &fd, sizeof(fd)) < 0) {
        fd = -1;
    }
    ret->has_fd = fd >= 0;
    ret->number = fd;
}

/* "LockType.acquire": the class of the object, and the method. */
static int name_object(struct repr *v, const struct wait_row *row, struct py_wait *ret)
{
    const struct repr_type *type = repr_type_of(v, ret->object);
    char text[REPR_NAME_MAX + 32];

    if (!type)
        return 0;
    snprintf(text, sizeof(text), "%s.%s", repr_short_name(type), row->function);
    ret->what = intern_str(v->py.names, text);
    return ret->what ? 0 : ERR_NOMEM;
}

int greenlet_wait(struct repr *v, const struct py_frame *frames, const struct code *const *codes, size_t n,
                  struct py_wait *ret)
{
    const struct wait_row *row = NULL;
    size_t i = 0;
    addr_t object;

    *ret = (struct py_wait){.seconds = -1, .when = -1, .deadline = -1};
    for (; i < n && i < FRAMES_SEEN && codes[i]; i++) {
        row = find_row(codes[i]);
        if (row || !strstr(codes[i]->filename, "eventlet/"))
            break;
    }
    if (!row)
        return 0;
    ret->kind = row->kind;
    if (!row->value || locals_find(v, &frames[i], row->value, &object) < 0)
        return 0;
    if (strcmp(row->kind, "sleep") == 0) {
        ret->seconds = read_number(v, object);
        return 0;
    }
    if (strcmp(row->kind, "socket") == 0) {
        read_socket(v, object, ret);
        return 0;
    }
    ret->object = object;
    return name_object(v, row, ret);
}
