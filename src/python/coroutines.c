/*
 * Coroutine -> frames. A suspended frame has the object that it awaits on top of its value stack: another coroutine, a wrapper of
 * one, or the iterator of a future (genobject.c, _PyGen_yf).
 */
#include "python/coroutines.h"

#include "base/err.h"
#include "base/grow.h"
#include "python/frames_private.h"
#include "python/objects.h"

#include <stdlib.h>

#define STEPS_MAX    (4 * COROUTINES_MAX_FRAMES)
#define STACK_MAX    65536 /* words of a value stack */
#define WRAPPERS_MAX 64    /* of types.coroutine(), each found by its attribute */
#define YIELD_FROM   72    /* up to 3.10 (opcode.h) */
#define WRAPPED      16    /* the first field of each wrapper */
#define FRAME_MAX    512   /* see debug_offsets.c */
#define RESUME_AFTER 2     /* 3.11, 3.12: the argument of RESUME after `yield from` or, if 3, after await */
#define RESUME_MASK  3

enum awaitable { AWAITABLE_OTHER, AWAITABLE_FRAME, AWAITABLE_WRAPPER, AWAITABLE_GENERATOR_WRAPPER };

/* ADD AN AWAITABLE HERE. */
static const struct {
    const char *type;
    enum awaitable kind;
} awaitables[] = {
    {"coroutine", AWAITABLE_FRAME},
    {"generator", AWAITABLE_FRAME},
    {"async_generator", AWAITABLE_FRAME},
    {"coroutine_wrapper", AWAITABLE_WRAPPER},
    {"async_generator_asend", AWAITABLE_WRAPPER},
    {"async_generator_athrow", AWAITABLE_WRAPPER},
    {"anext_awaitable", AWAITABLE_WRAPPER},
    {"_asyncio.FutureIter", AWAITABLE_WRAPPER},
    {"_GeneratorWrapper", AWAITABLE_GENERATOR_WRAPPER}, /* types.py */
};

static enum awaitable awaitable_of(struct repr *v, addr_t object)
{
    const struct repr_type *t = repr_type_of(v, object);

    for (size_t i = 0; t && i < sizeof(awaitables) / sizeof(awaitables[0]); i++)
        if (strcmp(t->name, awaitables[i].type) == 0)
            return awaitables[i].kind;
    return AWAITABLE_OTHER;
}

/* What a frame of a generator does. */
struct generator {
    addr_t frame; /* 0: it has finished */
    unsigned char bytes[FRAME_MAX];
    struct raw_frame raw;
    bool created, executing, finished;
    int8_t state; /* 3.11+ */
};

static int read_frame(struct repr *v, struct generator *g)
{
    const struct layout *l = &v->py.layout;
    int r = l->fr_size > FRAME_MAX ? ERR_BOUNDS : repr_read(v, g->frame, g->bytes, (size_t)l->fr_size);

    if (r == 0)
        frames_parse(l, g->frame, g->bytes, &g->raw);
    return r;
}

static int generator_read(struct repr *v, addr_t object, struct generator *g)
{
    const struct layout *l = &v->py.layout;
    int r = 0;

    *g = (struct generator){.frame = object + (addr_t)l->ge_frame};
    if (l->ge_state == NO)
        r = repr_word(v, object + (addr_t)l->ge_frame, &g->frame);
    else
        r = repr_read(v, object + (addr_t)l->ge_state, &g->state, 1);
    if (r < 0 || !g->frame) {
        g->finished = true;
        return r;
    }
    r = read_frame(v, g);
    if (r < 0)
        return r;
    g->executing = l->ge_state == NO ? g->raw.executing : g->state == l->ge_executing;
    g->created = l->ge_state == NO ? g->raw.lasti < 0 : g->state == l->ge_created;
    g->finished = l->ge_state != NO && g->state > l->ge_executing;
    return g->raw.code ? 0 : ERR_READ;
}

/* True if the suspended frame awaits an object, rather than having yielded a value of its own. */
static bool delegates(struct repr *v, const struct generator *g)
{
    const struct layout *l = &v->py.layout;
    unsigned char byte;
    addr_t code;

    if (l->ge_state != NO && l->ge_delegates != l->ge_suspended)
        return g->state >= l->ge_delegates && g->state < l->ge_executing;
    if (l->ge_state != NO) /* the next instruction is RESUME; `instr` is the last one */
        return repr_read(v, g->raw.instr + 3, &byte, 1) == 0 && (byte & RESUME_MASK) >= RESUME_AFTER;
    if (repr_word(v, g->raw.code + (addr_t)l->co_code, &code) < 0)
        return false;
    code += (addr_t)l->by_data + (addr_t)frames_make(l, &g->raw).at + 2;
    return repr_read(v, code, &byte, 1) == 0 && byte == YIELD_FROM;
}

/* The end of the value stack of a suspended frame. What is below it are values, and further down the variables. */
static int stack_top(const struct layout *l, const struct generator *g, addr_t *ret)
{
    addr_t base = g->frame + (addr_t)l->fr_slots;
    int32_t n;

    if (l->fr_stacktop_is_pointer) {
        *ret = frames_addr_at(g->bytes, l->fr_stacktop);
        return 0;
    }
    if (l->fr_valuestack)
        base = frames_addr_at(g->bytes, l->fr_valuestack);
    memcpy(&n, g->bytes + l->fr_stacktop, sizeof(n));
    if (n < 1 || n > STACK_MAX)
        return ERR_BOUNDS;
    *ret = base + (addr_t)n * 8;
    return 0;
}

/* The object on top of the value stack. */
static int awaited_object(struct repr *v, const struct generator *g, addr_t *ret)
{
    const struct layout *l = &v->py.layout;
    addr_t top;
    int r = stack_top(l, g, &top);

    if (r == 0)
        r = repr_word(v, top - (addr_t)l->fr_awaited, ret);
    if (r == 0 && l->repr_flags & REPR_TAGGED_LOCALS)
        *ret &= ~3ull;
    return r;
}

size_t coroutines_values(struct repr *v, addr_t frame, addr_t *values, size_t max)
{
    const struct layout *l = &v->py.layout;
    struct generator g = {.frame = frame};
    addr_t top, base = frame + (addr_t)l->fr_slots;
    size_t n = max;

    if (read_frame(v, &g) < 0 || stack_top(l, &g, &top) < 0)
        return 0;
    if (l->fr_valuestack)
        base = frames_addr_at(g.bytes, l->fr_valuestack);
    if (top <= base || top - base > STACK_MAX * 8ull || (top - base) & 7)
        return 0;
    if (n > (top - base) / 8)
        n = (size_t)(top - base) / 8;
    if (repr_read(v, top - n * 8, values, n * 8) < 0)
        return 0;
    for (size_t i = 0; i < n && l->repr_flags & REPR_TAGGED_LOCALS; i++)
        values[i] &= ~3ull;
    return n;
}

addr_t coroutines_suspended_frame(struct repr *v, addr_t object)
{
    struct generator g;

    return awaitable_of(v, object) == AWAITABLE_FRAME && generator_read(v, object, &g) == 0 && !g.finished &&
                   !g.executing && !g.created
               ? g.frame
               : 0;
}

static int add_frame(struct coroutines *c, const struct layout *l, const struct raw_frame *raw)
{
    if (c->n == COROUTINES_MAX_FRAMES) {
        c->cut = true;
        return 0;
    }
    if (grow_array((void **)&c->frames, &c->cap, c->n + 1, sizeof(*c->frames)) < 0)
        return ERR_NOMEM;
    c->frames[c->n++] = frames_make(l, raw);
    return 0;
}

/* Adds the frame, and moves `*object` to what it awaits; 0: nothing. */
static int follow_frame(struct coroutines *c, struct repr *v, addr_t *object)
{
    struct generator g;
    int r = generator_read(v, *object, &g);

    *object = 0;
    if (r < 0 || g.finished)
        return r;
    r = add_frame(c, &v->py.layout, &g.raw);
    if (c->n == 1) {
        c->executing = g.executing;
        c->created = g.created;
    }
    if (r == 0 && !g.executing && !g.created && delegates(v, &g))
        r = awaited_object(v, &g, object);
    return r;
}

int coroutines_read(struct coroutines *c, struct repr *v, addr_t object)
{
    addr_t passed = 0;
    size_t wrappers = 0;
    int r = 0;

    *c = (struct coroutines){.frames = c->frames, .cap = c->cap};
    for (size_t i = 0; r == 0 && object && !c->cut; i++) {
        enum awaitable kind = awaitable_of(v, object);

        if (kind == AWAITABLE_OTHER) {
            c->leaf = object;
            return 0;
        }
        if (object == passed || i == STEPS_MAX) { /* a cycle: Brent's algorithm */
            c->cut = true;
            return 0;
        }
        if (!(i & (i + 1)))
            passed = object;
        if (kind == AWAITABLE_FRAME)
            r = follow_frame(c, v, &object);
        else if (kind == AWAITABLE_WRAPPER)
            r = repr_word(v, object + WRAPPED, &object);
        else if (++wrappers > WRAPPERS_MAX)
            c->cut = true;
        else
            r = objects_attr_get(&v->py, object, "_GeneratorWrapper__wrapped", &object);
    }
    return r;
}

void coroutines_free(struct coroutines *c)
{
    free(c->frames);
    *c = (struct coroutines){0};
}
