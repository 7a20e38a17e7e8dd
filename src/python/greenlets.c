/*
 * Reads greenlets. Up to greenlet 1.1, the state is in the object (greenlet.h of that version); since 2.0, in a C++ object of class
 * Greenlet that the object points to (TGreenlet.hpp).
 */
#include "python/greenlets.h"

#include "base/err.h"
#include "base/utf8.h"
#include "python/objects.h"
#include "python/strings.h"
#include "target/mem_cached.h"

#include <stdlib.h>
#include <string.h>

#define MODULE_DICT      16                        /* PyModuleObject.md_dict, Objects/moduleobject.c */
#define WEAKREF_OBJECT   16                        /* PyWeakReference.wr_object */
#define TY_SUBCLASSES(l) ((l)->ty_dictoffset + 72) /* tp_subclasses: a dict of weak references, in 2.7 a list */
#define FRAME_FRAME      24                        /* 3.11+: PyFrameObject.f_frame */
#define PIMPL_SIZE       40                        /* of a PyGreenlet since 2.0: two pointers, then `pimpl` */
#define OBJECT_MAX       4096                      /* of a subclass's instance */
#define SAVED_MAX        ((addr_t)64 << 20)
#define PIMPL_WORDS      32
#define WINDOW_WORDS     10
#define READS_MAX        (1u << 24)
#define NAME_ROOM        128

enum { STACK_START, STACK_STOP, STACK_COPY, STACK_SAVED, STACK_WORDS };

/* ---- types ---- */

static bool types_have(const struct greenlet_types *t, addr_t type)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->items[i] == type)
            return true;
    return false;
}

/* The name of a type without its module: "greenlet" if it cannot be read. */
static const char *type_name(const struct python *py, addr_t type)
{
    char text[NAME_ROOM], clean[3 * NAME_ROOM + 1];
    const char *dot;
    size_t n = 0;
    addr_t at;

    if (mem_read_addr(py->mem, type + (addr_t)py->layout.ty_name, &at) < 0)
        return "greenlet";
    while (n < sizeof(text) && mem_read(py->mem, at + n, text + n, 1) == 0 && text[n])
        n++;
    clean[utf8_clean(text, n, clean)] = '\0';
    dot = strrchr(clean, '.');
    return intern_str(py->names, dot ? dot + 1 : *clean ? clean : "greenlet");
}

static bool add_type(const struct python *py, struct greenlet_types *t, addr_t type)
{
    uint64_t size;

    if (t->n == GREENLET_TYPES_MAX)
        return false;
    if (types_have(t, type) || mem_read_addr(py->mem, type + (addr_t)py->layout.ty_basicsize, &size) < 0 ||
        size < PIMPL_SIZE || size > OBJECT_MAX)
        return true;
    t->sizes[t->n] = size;
    t->names[t->n] = type_name(py, type);
    t->items[t->n++] = type;
    return true;
}

static bool add_reference(const struct python *py, struct greenlet_types *t, addr_t weakref)
{
    addr_t type;

    return mem_read_addr(py->mem, weakref + WEAKREF_OBJECT, &type) < 0 || !type || add_type(py, t, type);
}

static bool visit_subclass(const struct python *py, addr_t key, addr_t value, void *arg)
{
    (void)key;
    return add_reference(py, arg, value);
}

static void add_listed_subclasses(const struct python *py, addr_t list, struct greenlet_types *t)
{
    uint64_t n;
    addr_t items, weakref;

    if (mem_read_addr(py->mem, list + 16, &n) < 0 ||
        mem_read_addr(py->mem, list + (addr_t)py->layout.li_items, &items) < 0)
        return;
    for (uint64_t i = 0; i < n && i < GREENLET_TYPES_MAX; i++)
        if (mem_read_addr(py->mem, items + i * 8, &weakref) < 0 || !add_reference(py, t, weakref))
            return;
}

static int find_base(const struct python *py, addr_t interp, addr_t *ret)
{
    addr_t modules, module, dict;
    int r = mem_read_addr(py->mem, interp + (addr_t)py->layout.in_modules, &modules);

    if (r == 0)
        r = modules ? objects_dict_get(py, modules, "greenlet", &module) : ERR_READ;
    if (r == 0)
        r = mem_read_addr(py->mem, module + MODULE_DICT, &dict);
    return r < 0 ? r : objects_dict_get(py, dict, "greenlet", ret);
}

int greenlets_find_types(const struct python *py, addr_t interp, struct greenlet_types *ret)
{
    addr_t base, subclasses;

    *ret = (struct greenlet_types){0};
    if (find_base(py, interp, &base) < 0)
        return 0;
    add_type(py, ret, base);
    ret->has_pimpl = ret->n && ret->sizes[0] == PIMPL_SIZE;
    for (size_t i = 0; i < ret->n; i++) {
        if (mem_read_addr(py->mem, ret->items[i] + (addr_t)TY_SUBCLASSES(&py->layout), &subclasses) < 0 || !subclasses)
            continue;
        if (py->major == 2)
            add_listed_subclasses(py, subclasses, ret);
        else
            objects_dict_walk(py, subclasses, visit_subclass, ret);
    }
    return 0;
}

/* ---- one greenlet ---- */

/* 3.14 keeps flags in the upper half of ob_refcnt. A block that was freed has no references left. */
static bool has_references(const struct python *py, uint64_t refcnt)
{
    return (uint32_t)refcnt != 0 && (refcnt >> 32 == 0 || (py->major == 3 && py->minor >= 14));
}

static int set_state(struct greenlet *g, const addr_t *stack, addr_t top_frame)
{
    g->stack_start = stack[STACK_START];
    g->stack_stop = stack[STACK_STOP];
    g->stack_copy = stack[STACK_COPY];
    g->stack_saved = stack[STACK_SAVED];
    g->is_main = g->stack_stop == UINT64_MAX;
    if (g->stack_saved > SAVED_MAX || (g->stack_saved && !g->stack_copy) ||
        (g->stack_start && g->stack_start > g->stack_stop) ||
        (g->stack_start && g->stack_saved > g->stack_stop - g->stack_start) || top_frame & 7)
        return ERR_BOUNDS;
    if (!g->stack_stop)
        g->state = GREENLET_NEW;
    else if (!g->stack_start)
        g->state = GREENLET_DEAD;
    else
        g->state = top_frame ? GREENLET_SUSPENDED : GREENLET_RUNNING;
    g->frame = g->state == GREENLET_SUSPENDED ? top_frame : 0;
    return 0;
}

/* typedef struct _greenlet: the stack, stack_prev, parent, run_info, top_frame. */
static int read_object(const struct python *py, struct greenlet *g)
{
    addr_t words[8];
    int r = mem_read(py->mem, g->addr + 16, words, sizeof(words));

    if (r < 0)
        return r;
    g->parent = words[5];
    return set_state(g, words, words[7]);
}

/* Words in ExceptionState: up to 3.6, a type, a value and a traceback; then a pointer to an _PyErr_StackItem, and one. That had four
 * words up to 3.10, then two (Include/cpython/pystate.h). */
static size_t exception_words(const struct layout *l)
{
    if (l->major == 2 || l->minor <= 6)
        return 3;
    return l->minor <= 10 ? 5 : 3;
}

/*
 * class Greenlet: the virtual functions; since 3.1, the object; ExceptionState; SwitchingArgs: two pointers; StackState: the four words
 * and stack_prev; PythonState: from 3.7 on, the context; then the frame. PythonState has more, which depends on both versions. Up to
 * greenlet 3.0, the object comes after that. Then comes the parent.
 */
static int read_pimpl(const struct python *py, const struct greenlet_types *types, struct greenlet *g)
{
    addr_t words[PIMPL_WORDS], pimpl;
    size_t at, frame, has_context = py->major == 3 && py->minor >= 7;
    bool has_self;
    int r = mem_read_addr(py->mem, g->addr + PIMPL_SIZE - 8, &pimpl);

    if (r == 0)
        r = pimpl && !(pimpl & 7) ? mem_read(py->mem, pimpl, words, sizeof(words)) : ERR_BOUNDS;
    has_self = r == 0 && types->has_self && words[1] == g->addr;
    if (r == 0 && types->has_self != has_self)
        r = ERR_BOUNDS;
    if (r < 0)
        return r;
    at = 1 + types->has_self + exception_words(&py->layout) + 2;
    frame = at + STACK_WORDS + 1 + has_context;
    g->window = pimpl + (frame + 2) * 8;
    for (size_t i = frame + 2; !has_self && i < frame + 2 + WINDOW_WORDS; i++)
        has_self = words[i] == g->addr;
    return has_self ? set_state(g, words + at, words[frame]) : ERR_BOUNDS;
}

/* From 3.11 on, the frame is a part of what the frame object refers to. */
static int find_frame(const struct python *py, struct greenlet *g)
{
    if (!g->frame)
        return 0;
    if (!greenlet_type_is(py, g->frame, "frame"))
        return ERR_BOUNDS;
    if (py->layout.fr_owner == NO)
        return 0;
    return mem_read_addr(py->mem, g->frame + FRAME_FRAME, &g->frame);
}

int greenlet_read(const struct python *py, const struct greenlet_types *types, addr_t addr, struct greenlet *ret)
{
    struct greenlet g = {.addr = addr};
    uint64_t head[2];
    int r = mem_read(py->mem, addr, head, sizeof(head));

    if (r < 0)
        return r;
    if (!has_references(py, head[0]) || !types_have(types, head[1]))
        return ERR_BOUNDS;
    g.type = head[1];
    r = types->has_pimpl ? read_pimpl(py, types, &g) : read_object(py, &g);
    if (r == 0)
        r = find_frame(py, &g);
    if (r == 0)
        *ret = g;
    return r;
}

void greenlets_find_layout(const struct python *py, const struct greenlets_found *found, struct greenlet_types *types)
{
    addr_t pimpl, self;

    for (size_t i = 0; i < found->n && types->has_pimpl && !types->has_self; i++)
        types->has_self = mem_read_addr(py->mem, found->items[i] + PIMPL_SIZE - 8, &pimpl) == 0 &&
                          mem_read_addr(py->mem, pimpl + 8, &self) == 0 && self == found->items[i];
}

static bool is_found(const struct greenlets_found *found, addr_t addr)
{
    size_t low = 0, high = found->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (found->items[mid] == addr)
            return true;
        if (found->items[mid] < addr)
            low = mid + 1;
        else
            high = mid;
    }
    return false;
}

/* class UserGreenlet: up to 3.0, the object; then _main_greenlet, _run_callable, _parent. The words before do not point to greenlets. A
 * greenlet that has not started has no _main_greenlet. */
void greenlet_find_parent(const struct python *py, const struct greenlets_found *found, struct greenlet *g)
{
    addr_t words[WINDOW_WORDS + 2];

    if (!g->window || g->is_main || mem_read(py->mem, g->window, words, sizeof(words)) < 0)
        return;
    for (size_t i = 0; i < WINDOW_WORDS; i++)
        if (words[i] != g->addr && is_found(found, words[i])) {
            g->parent = is_found(found, words[i + 2]) ? words[i + 2] : 0;
            return;
        }
}

/* ---- frames ---- */

/* Memory in which the moved part of a greenlet's C stack is where it was. */
struct stack_mem {
    struct mem mem;
    struct mem *from;
    addr_t start, len, copy;
};

static size_t stack_readv(struct mem *m, const struct mem_span *spans, size_t n)
{
    struct stack_mem *s = (struct stack_mem *)m;
    size_t done = 0;

    for (; done < n; done++) {
        struct mem_span span = spans[done];
        addr_t at = span.addr - s->start;

        if (at < s->len && span.len <= s->len - at)
            span.addr = s->copy + at;
        if (mem_readv(s->from, &span, 1) != 1)
            break;
    }
    return done;
}

static const struct mem_ops stack_ops = {.readv = stack_readv};

struct greenlet_reader {
    struct mem *from;
    struct mem_cached *pages;
    struct stack_mem stack;
    struct python py;
};

struct greenlet_reader *greenlet_reader_free(struct greenlet_reader *r)
{
    if (!r)
        return NULL;
    mem_cached_free(r->pages);
    free(r);
    return NULL;
}

struct greenlet_reader *greenlet_reader_new(const struct python *py)
{
    struct greenlet_reader *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->from = py->mem;
    r->py = *py;
    r->pages = mem_cached_new();
    if (!r->pages)
        return greenlet_reader_free(r);
    r->py.mem = mem_cached_mem(r->pages);
    r->stack = (struct stack_mem){.mem = {&stack_ops}, .from = r->py.mem};
    greenlet_reader_forget(r);
    return r;
}

void greenlet_reader_forget(struct greenlet_reader *r)
{
    mem_cached_begin(r->pages, r->from, READS_MAX);
}

const struct python *greenlet_reader_python(const struct greenlet_reader *r)
{
    return &r->py;
}

int greenlet_frames(struct greenlet_reader *r, const struct greenlet *g, struct frames *ret)
{
    struct python py = r->py;

    r->stack.start = g->stack_start;
    r->stack.len = g->stack_saved;
    r->stack.copy = g->stack_copy;
    py.mem = &r->stack.mem;
    return frames_read_chain(ret, &py, g->frame);
}

/* ---- names ---- */

#define CALLS_MAX 4 /* a partial of a method of a partial ... */

bool greenlet_type_is(const struct python *py, addr_t object, const char *name)
{
    char text[NAME_ROOM] = "";
    size_t len = strlen(name) + 1;
    addr_t type, at;

    return len <= sizeof(text) && mem_read_addr(py->mem, object + 8, &type) == 0 &&
           mem_read_addr(py->mem, type + (addr_t)py->layout.ty_name, &at) == 0 &&
           mem_read(py->mem, at, text, len) == 0 && memcmp(text, name, len) == 0;
}

/* The name of a function, or of what a bound method (im_func) or a functools.partial (fn) calls: both are the first field. */
static int function_name(const struct python *py, addr_t object, const char **ret)
{
    addr_t name;

    for (int i = 0; i < CALLS_MAX; i++) {
        if (greenlet_type_is(py, object, "function"))
            return mem_read_addr(py->mem, object + (addr_t)py->layout.fu_name, &name) < 0 ? ERR_READ
                                                                                          : strings_read(py, name, ret);
        if (!greenlet_type_is(py, object, "method") && !greenlet_type_is(py, object, "instancemethod") &&
            !greenlet_type_is(py, object, "functools.partial"))
            return ERR_READ;
        if (mem_read_addr(py->mem, object + 16, &object) < 0)
            return ERR_READ;
    }
    return ERR_READ;
}

/* gevent keeps `name`, if the program has set it, and `_run` among the attributes. */
int greenlet_name(const struct python *py, const struct greenlet *g, const char **ret)
{
    addr_t value;
    int r = objects_attr_get(py, g->addr, "name", &value);

    *ret = NULL;
    if (r == 0 && greenlet_type_is(py, value, "str"))
        r = strings_read(py, value, ret);
    else
        r = objects_attr_get(py, g->addr, "_run", &value) == 0 ? function_name(py, value, ret) : 0;
    return r == ERR_NOMEM ? r : 0;
}

const char *greenlet_type_name(const struct greenlet_types *types, const struct greenlet *g)
{
    for (size_t i = 0; i < types->n; i++)
        if (types->items[i] == g->type)
            return types->names[i];
    return "greenlet";
}
