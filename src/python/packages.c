/*
 * Finds packages in sys.modules. Its dict may change while it is read, so every step may fail and a package may be missing.
 */
#include "python/packages.h"

#include "base/clock.h"
#include "base/grow.h"
#include "base/hash.h"
#include "python/objects.h"
#include "python/strings.h"

#include <stdlib.h>
#include <string.h>

#define MODULE_DICT  16 /* PyModuleObject.md_dict, Objects/moduleobject.c */
#define LIST_AGAIN   (2 * NS_PER_S)
#define LIST_MAX_NS  (500 * NS_PER_MS) /* CPU time */
#define FIND_MAX_NS  (100 * NS_PER_MS)
#define SPENT_MAX_NS (2 * NS_PER_S)
#define MODULES_MAX  65536
#define PART_MAX     256

static const char *last_part(const char *text, size_t len, char separator, size_t *ret_len)
{
    const char *at = memrchr(text, separator, len);

    at = at ? at + 1 : text;
    *ret_len = len - (size_t)(at - text);
    return at;
}

/* 0 if the bytes are not ASCII: then they are not those of the path. */
static uint64_t part_hash(const char *part, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)part[i] >= 0x80)
            return 0;
    return hash_bytes(part, len) | 1;
}

static uint64_t key_hash(const struct python *py, addr_t key)
{
    struct str_shape shape;
    char text[PART_MAX];
    const char *part;
    size_t n, len;

    if (strings_shape(py, key, &shape) < 0 || shape.kind != 1)
        return 0;
    n = shape.length < sizeof(text) ? shape.length : sizeof(text);
    if (mem_read(py->mem, shape.data + (shape.length - n), text, n) < 0)
        return 0;
    part = last_part(text, n, '.', &len);
    return part == text && n < shape.length ? 0 : part_hash(part, len);
}

struct listing {
    struct packages *packages;
    uint64_t end_ns; /* on the clock of clock_cpu_ns() */
};

static bool visit_module(const struct python *py, addr_t key, addr_t value, void *arg)
{
    struct listing *l = arg;
    struct packages *p = l->packages;

    if (p->n == MODULES_MAX || clock_cpu_ns() > l->end_ns ||
        grow_array((void **)&p->items, &p->cap, p->n + 1, sizeof(*p->items)) < 0)
        return false;
    p->items[p->n++] = (struct package_module){.module = value, .hash = key_hash(py, key)};
    return true;
}

void packages_update(struct packages *p, const struct python *py, const struct py_threads *threads)
{
    uint64_t begin = clock_cpu_ns();
    struct listing l = {.packages = p, .end_ns = begin + LIST_MAX_NS};

    if ((p->listed_ns && clock_now_ns() - p->listed_ns < LIST_AGAIN) || p->spent_ns >= SPENT_MAX_NS)
        return;
    p->n = 0;
    for (size_t i = 0; i < threads->n && clock_cpu_ns() <= l.end_ns; i++) {
        addr_t interp = threads->items[i].interp, modules;

        if (i && interp == threads->items[i - 1].interp)
            continue;
        if (mem_read_addr(py->mem, interp + (addr_t)py->layout.in_modules, &modules) == 0 && modules)
            objects_dict_walk(py, modules, visit_module, &l);
    }
    p->listed_ns = clock_now_ns();
    p->spent_ns += clock_cpu_ns() - begin;
}

/* 2.7: the file of a module is that of its bytecode. */
static bool is_init(const struct python *py, const char *name)
{
    return strcmp(name, "/__init__.py") == 0 ||
           (py->major == 2 && (strcmp(name, "/__init__.pyc") == 0 || strcmp(name, "/__init__.pyo") == 0));
}

static bool is_from(const struct python *py, addr_t module, const char *path, size_t len)
{
    addr_t dict, object;
    const char *file;

    return mem_read_addr(py->mem, module + MODULE_DICT, &dict) == 0 && dict &&
           objects_dict_get(py, dict, "__file__", &object) == 0 && strings_read(py, object, &file) == 0 &&
           strncmp(file, path, len) == 0 && is_init(py, file + len);
}

bool packages_have(struct packages *p, const struct python *py, const char *path, size_t len)
{
    uint64_t begin = clock_cpu_ns(), spent = 0, hash;
    size_t part_len;
    const char *part = last_part(path, len, '/', &part_len);
    bool found = false;

    hash = part_hash(part, part_len);
    for (size_t i = 0; i < p->n && !found && spent < FIND_MAX_NS && p->spent_ns < SPENT_MAX_NS; i++) {
        if (p->items[i].hash && p->items[i].hash != hash)
            continue;
        found = is_from(py, p->items[i].module, path, len);
        spent = clock_cpu_ns() - begin;
    }
    p->spent_ns += spent;
    return found;
}

void packages_free(struct packages *p)
{
    free(p->items);
    *p = (struct packages){0};
}
