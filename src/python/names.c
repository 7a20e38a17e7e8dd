/*
 * Reads thread names from sys.modules["threading"]._active. The dict may change while it is read, so
 * every step may fail and a name may be missing.
 */
#include "python/names.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/grow.h"
#include "python/objects.h"
#include "python/strings.h"

#include <stdlib.h>

#define MODULE_DICT 16 /* PyModuleObject.md_dict, Objects/moduleobject.c */

#define CPU_BUDGET_NS (500 * NS_PER_MS) /* CPU time; a hostile dict could cost hours, so give up and leave names out */

struct collect {
    struct thread_names *names;
    addr_t interp;
    uint64_t deadline_ns; /* on the clock of clock_cpu_ns() */
    int r;
};

static bool is_wanted(const struct thread_names *names, uint64_t thread_id)
{
    for (size_t i = 0; i < names->n_wanted && names->wanted; i++)
        if (names->wanted[i] == thread_id)
            return true;
    return !names->wanted;
}

static bool visit_thread(const struct python *py, addr_t key, addr_t value, void *arg)
{
    struct collect *c = arg;
    struct thread_names *names = c->names;
    struct thread_name item = {.interp = c->interp};
    addr_t name;

    if (names->n >= PY_MAX_THREADS || clock_cpu_ns() > c->deadline_ns)
        return false;
    if (objects_int_read(py, key, &item.thread_id) < 0 || !is_wanted(names, item.thread_id) ||
        objects_attr_get(py, value, py->major == 2 ? "_Thread__name" : "_name", &name) < 0 ||
        strings_read(py, name, &item.name) < 0)
        return true;
    if (grow_array((void **)&names->items, &names->cap, names->n + 1, sizeof(item)) < 0) {
        c->r = ERR_NOMEM;
        return false;
    }
    names->items[names->n++] = item;
    return true;
}

int names_read(const struct python *py, addr_t interp, struct thread_names *names)
{
    struct collect c = {.names = names, .interp = interp, .deadline_ns = clock_cpu_ns() + CPU_BUDGET_NS};
    addr_t modules, module, dict, active;

    if (!names->wanted || !names->active || names->interp != interp) {
        bool found = mem_read_addr(py->mem, interp + (addr_t)py->layout.in_modules, &modules) == 0 && modules &&
                     objects_dict_get(py, modules, "threading", &module) == 0 &&
                     mem_read_addr(py->mem, module + MODULE_DICT, &dict) == 0 && dict &&
                     objects_dict_get(py, dict, "_active", &active) == 0;

        names->active = found ? active : 0;
        names->interp = interp;
    }
    if (names->active)
        objects_dict_walk(py, names->active, visit_thread, &c);
    return c.r;
}

static int name_compare(const void *a, const void *b)
{
    const struct thread_name *x = a, *y = b;

    if (x->interp != y->interp)
        return x->interp < y->interp ? -1 : 1;
    return x->thread_id < y->thread_id ? -1 : x->thread_id > y->thread_id;
}

void names_sort(struct thread_names *names)
{
    qsort(names->items, names->n, sizeof(*names->items), name_compare);
}

const char *names_find(const struct thread_names *names, addr_t interp, uint64_t thread_id)
{
    struct thread_name key = {.interp = interp, .thread_id = thread_id};
    const struct thread_name *found;

    if (!names->n)
        return NULL;
    found = bsearch(&key, names->items, names->n, sizeof(key), name_compare);
    return found ? found->name : NULL;
}
