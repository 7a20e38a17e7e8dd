/*
 * python/greenlets on synthetic interpreters: every version, with each way in which the package greenlet keeps its state; and memory that
 * makes no sense.
 */
#include "base/err.h"
#include "fake_python.h"
#include "python/greenlets.h"
#include "test.h"

#include <string.h>

#define ROOM     ((size_t)1 << 20)
#define N_FRAMES 4
#define C_MOVED  0x2000 /* bytes of the C stack */

enum form { IN_OBJECT, WITHOUT_SELF, WITH_SELF, N_FORMS };

struct green {
    struct fake_python p;
    enum form form;
    addr_t interp, base, derived, frame_type, top; /* `top`: of an entry from C and N_FRAMES - 1 frames */
    struct greenlet_types types;
    struct greenlets_found found;
};

static addr_t add_type(struct green *g, const char *name, uint64_t size)
{
    addr_t type = fake_alloc(&g->p, 512), text = fake_alloc(&g->p, 256);

    fake_mem_put_bytes(g->p.mem, text, name, strlen(name) + 1);
    fake_mem_put(g->p.mem, type + (addr_t)g->p.py.layout.ty_name, text);
    fake_mem_put(g->p.mem, type + (addr_t)g->p.py.layout.ty_basicsize, size);
    return type;
}

/* tp_subclasses, which has the type itself as well. */
static void put_subclasses(struct green *g)
{
    const struct layout *l = &g->p.py.layout;
    addr_t types[] = {g->derived, g->base}, keys[2], refs[2], items = fake_alloc(&g->p, 16),
           list = fake_alloc(&g->p, 48);

    for (int i = 0; i < 2; i++) {
        keys[i] = fake_int(&g->p, types[i]);
        refs[i] = fake_alloc(&g->p, 64);
        fake_mem_put(g->p.mem, refs[i] + 16, types[i]);
        fake_mem_put(g->p.mem, items + (addr_t)i * 8, refs[i]);
    }
    fake_mem_put(g->p.mem, list + 16, 2);
    fake_mem_put(g->p.mem, list + (addr_t)l->li_items, items);
    fake_mem_put(g->p.mem, g->base + (addr_t)l->ty_dictoffset + 72,
                 l->major == 2 ? list : fake_dict(&g->p, keys, refs, 2, false));
}

/* sys.modules["greenlet"].greenlet */
static void put_module(struct green *g)
{
    addr_t name = fake_str(&g->p, "greenlet"), module = fake_alloc(&g->p, 64);

    fake_mem_put(g->p.mem, module + 16, fake_dict(&g->p, &name, &g->base, 1, false));
    fake_mem_put(g->p.mem, g->interp + (addr_t)g->p.py.layout.in_modules, fake_dict(&g->p, &name, &module, 1, false));
}

/* A stack, and the frame object of the innermost frame. */
static void put_frames(struct green *g)
{
    struct fake_thread t = fake_thread_add(&g->p, g->interp, 0x1000, 1);
    addr_t code = fake_code(&g->p, "f", "/a.py", 10);

    fake_entry_push(&g->p, &t);
    for (int i = 0; i < N_FRAMES; i++) {
        if (i == N_FRAMES / 2)
            fake_entry_push(&g->p, &t);
        g->top = fake_frame_push(&g->p, &t, code, 4, FAKE_PLAIN);
    }
    if (g->p.py.layout.fr_owner != NO) {
        addr_t object = fake_alloc(&g->p, 64);

        fake_mem_put(g->p.mem, object + 24, g->top);
        g->top = object;
    }
    fake_mem_put(g->p.mem, g->top + 8, g->frame_type);
}

static void green_init(struct green *g, size_t version, enum form form)
{
    *g = (struct green){.form = form};
    fake_python_init_nth(&g->p, version, ROOM);
    g->interp = fake_interp_add(&g->p);
    g->base = add_type(g, "greenlet.greenlet", form == IN_OBJECT ? 160 : 40);
    g->derived = add_type(g, "gevent._greenlet.Greenlet", 240);
    g->frame_type = add_type(g, "frame", 400);
    put_subclasses(g);
    put_module(g);
    put_frames(g);
    CHECK_INT(greenlets_find_types(&g->p.py, g->interp, &g->types), 0);
}

static void green_free(struct green *g)
{
    greenlets_found_free(&g->found);
    fake_python_free(&g->p);
}

/* Where the four words about the stack are, and the frame; and the main greenlet. */
static void places(const struct green *g, addr_t pimpl, addr_t *ret_stack, addr_t *ret_frame, addr_t *ret_main)
{
    const struct layout *l = &g->p.py.layout;
    bool old = l->major == 2 || l->minor <= 6;
    size_t exception = old || l->minor >= 11 ? 3 : 5, words = 1u + (g->form == WITH_SELF) + exception + 2;

    *ret_stack = pimpl + words * 8;
    *ret_frame = *ret_stack + (old ? 40 : 48);
    *ret_main = *ret_frame + 32; /* somewhere behind it, depending on the versions */
}

/* A greenlet with this stack and frame, and its C++ object if it has one. */
static addr_t add_greenlet(struct green *g, addr_t type, const addr_t stack[4], addr_t frame, addr_t parent)
{
    addr_t object = fake_alloc(&g->p, 256), pimpl = fake_alloc(&g->p, 512), at_stack = object + 16,
           at_frame = object + 72, at_main;

    fake_mem_put(g->p.mem, object, 2);
    fake_mem_put(g->p.mem, object + 8, type);
    if (g->form == IN_OBJECT) {
        fake_mem_put(g->p.mem, object + 56, parent);
    } else {
        fake_mem_put(g->p.mem, object + 32, pimpl);
        places(g, pimpl, &at_stack, &at_frame, &at_main);
        fake_mem_put(g->p.mem, pimpl, 0x7f1000001000);
        if (g->form == WITH_SELF)
            fake_mem_put(g->p.mem, pimpl + 8, object);
        else
            fake_mem_put(g->p.mem, at_main - 8, object);
        fake_mem_put(g->p.mem, at_main, parent);
        fake_mem_put(g->p.mem, at_main + 16, parent);
    }
    for (size_t i = 0; i < 4; i++)
        fake_mem_put(g->p.mem, at_stack + i * 8, stack[i]);
    fake_mem_put(g->p.mem, at_frame, frame);
    return object;
}

static void search(struct green *g)
{
    struct addr_range range = {FAKE_HEAP, FAKE_HEAP + ROOM};
    struct addr_ranges ranges = {.items = &range, .n = 1, .bytes = ROOM};

    CHECK_INT(greenlets_search(&g->p.py, &g->types, &ranges, &g->found), 0);
    CHECK_INT(g->found.searched, ROOM);
    greenlets_find_layout(&g->p.py, &g->found, &g->types);
}

static bool is_found(const struct green *g, addr_t object)
{
    for (size_t i = 0; i < g->found.n; i++)
        if (g->found.items[i] == object)
            return true;
    return false;
}

static int read_frames(struct green *g, const struct greenlet *x, struct frames *f)
{
    struct greenlet_reader *reader = greenlet_reader_new(&g->p.py);
    int r = greenlet_frames(reader, x, f);

    greenlet_reader_free(reader);
    return r;
}

static const addr_t main_stack[] = {FAKE_C + 0x9000, UINT64_MAX, 0, 0};
static const addr_t new_stack[4];
static const addr_t dead_stack[] = {0, FAKE_C + 0x9000, 0, 0};
static const addr_t plain_stack[] = {FAKE_C + 0x100, FAKE_C + 0x9000, 0, 0};

static void check_states(size_t version, enum form form)
{
    static const addr_t *const stacks[] = {main_stack, new_stack, dead_stack, plain_stack, plain_stack};
    static const enum greenlet_state states[] = {GREENLET_RUNNING, GREENLET_NEW, GREENLET_DEAD, GREENLET_RUNNING,
                                                 GREENLET_SUSPENDED};
    struct green g;
    addr_t object[5] = {0};
    struct frames f = {0};

    green_init(&g, version, form);
    CHECK_INT(g.types.n, 2);
    CHECK_INT(g.types.has_pimpl, form != IN_OBJECT);
    for (int i = 0; i < 5; i++)
        object[i] = add_greenlet(&g, i == 4 ? g.derived : g.base, stacks[i], i == 4 ? g.top : 0, object[0]);
    search(&g);
    for (int i = 0; i < 5; i++) {
        struct greenlet x = {0};

        CHECK(is_found(&g, object[i]));
        CHECK_INT(greenlet_read(&g.p.py, &g.types, object[i], &x), 0);
        greenlet_find_parent(&g.p.py, &g.found, &x);
        CHECK_INT(x.state, states[i]);
        CHECK_INT(x.is_main, i == 0);
        CHECK(i == 0 || x.parent == object[0]);
        CHECK_STR(greenlet_type_name(&g.types, &x), i == 4 ? "Greenlet" : "greenlet");
        if (i == 4) {
            CHECK_INT(read_frames(&g, &x, &f), 0);
            CHECK_INT(f.n, N_FRAMES);
        }
    }
    frames_free(&f);
    green_free(&g);
}

static void test_states(void)
{
    for (size_t version = 0; version < N_VERSIONS; version++)
        for (enum form form = IN_OBJECT; form < N_FORMS; form++)
            check_states(version, form);
}

/* From 3.12 on, entry frames are on the C stack, of which a part was moved. */
static void test_moved_stack(void)
{
    static unsigned char bytes[C_MOVED];

    for (size_t version = fake_version_index(3, 12); version < N_VERSIONS; version++) {
        struct green g;
        struct greenlet x = {0};
        struct frames f = {0};
        addr_t copy, object, stack[4] = {FAKE_C, FAKE_C + 0x9000, 0, C_MOVED};

        green_init(&g, version, WITHOUT_SELF);
        copy = stack[2] = fake_alloc(&g.p, C_MOVED);
        memcpy(bytes, fake_mem_at(g.p.mem, FAKE_C, C_MOVED), C_MOVED);
        fake_mem_put_bytes(g.p.mem, copy, bytes, C_MOVED);
        memset(fake_mem_at(g.p.mem, FAKE_C, C_MOVED), 0xff, C_MOVED);
        object = add_greenlet(&g, g.base, stack, g.top, 0);
        CHECK_INT(greenlet_read(&g.p.py, &g.types, object, &x), 0);
        CHECK_INT(read_frames(&g, &x, &f), 0);
        CHECK_INT(f.n, N_FRAMES);
        frames_free(&f);
        green_free(&g);
    }
}

static void test_hostile(void)
{
    static const addr_t bad[][4] = {
        {FAKE_C, FAKE_C + 0x9000, 0, 64},                 /* moved to nowhere */
        {FAKE_C, FAKE_C + 0x9000, FAKE_HEAP, UINT64_MAX}, /* more than there is */
        {FAKE_C, FAKE_C + 0x100, FAKE_HEAP, 0x200},       /* more than it had */
        {FAKE_C + 0x9000, FAKE_C, 0, 0},                  /* upside down */
    };

    for (enum form form = IN_OBJECT; form < N_FORMS; form++) {
        struct green g;
        struct greenlet x = {0};
        struct frames f = {0};
        addr_t object;
        int back;

        green_init(&g, fake_version_index(3, 11), form);
        object = add_greenlet(&g, g.base, plain_stack, g.top, 0);
        search(&g);
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
            CHECK_INT(greenlet_read(&g.p.py, &g.types, add_greenlet(&g, g.base, bad[i], g.top, 0), &x), ERR_BOUNDS);
        /* The frame is none, or unreadable; the block was freed. */
        CHECK(greenlet_read(&g.p.py, &g.types, add_greenlet(&g, g.base, plain_stack, g.base, 0), &x) < 0);
        CHECK(greenlet_read(&g.p.py, &g.types, add_greenlet(&g, g.base, plain_stack, 0x7777777000, 0), &x) < 0);
        CHECK_INT(greenlet_read(&g.p.py, &g.types, object, &x), 0);
        back = g.p.py.layout.fr_back;
        fake_mem_put(g.p.mem, x.frame + (addr_t)back, x.frame);
        CHECK_INT(read_frames(&g, &x, &f), ERR_CYCLE);
        fake_mem_put(g.p.mem, x.frame + (addr_t)back, 0x7777777000);
        CHECK_INT(read_frames(&g, &x, &f), ERR_TORN);
        fake_mem_put(g.p.mem, object, 0);
        CHECK_INT(greenlet_read(&g.p.py, &g.types, object, &x), ERR_BOUNDS);
        CHECK(greenlet_read(&g.p.py, &g.types, 0x7777777000, &x) < 0);
        if (form != IN_OBJECT) {
            fake_mem_put(g.p.mem, object, 1);
            fake_mem_put(g.p.mem, object + 32, 0x7777777001);
            CHECK_INT(greenlet_read(&g.p.py, &g.types, object, &x), ERR_BOUNDS);
        }
        frames_free(&f);
        green_free(&g);
    }
}

/* Memory full of pointers to the type; pools that claim anything; memory that is gone. */
static void test_search_bounds(void)
{
    struct green g;
    struct addr_range range[] = {{FAKE_HEAP, FAKE_HEAP + ROOM}, {0x660000000000, 0x660000200000}};
    struct addr_ranges ranges = {.items = range, .n = 2, .bytes = ROOM + 0x200000};
    addr_t room, object;
    size_t n = 0;

    green_init(&g, fake_version_index(3, 9), WITH_SELF);
    room = fake_alloc(&g.p, 0x40000);
    for (addr_t at = room; at < room + 0x40000; at += 8)
        fake_mem_put(g.p.mem, at, at % 4096 == 40 ? 0x0000000f00000001 : g.base);
    object = add_greenlet(&g, g.base, new_stack, 0, 0);
    CHECK_INT(greenlets_search(&g.p.py, &g.types, &ranges, &g.found), 0);
    CHECK(is_found(&g, object));
    greenlets_find_layout(&g.p.py, &g.found, &g.types);
    for (size_t i = 0; i < g.found.n; i++) {
        struct greenlet x;

        n += greenlet_read(&g.p.py, &g.types, g.found.items[i], &x) == 0;
    }
    CHECK_INT(n, 1);
    green_free(&g);
}

/* A pool of blocks of another size is skipped, one of the same size is not (Objects/obmalloc.c). */
static void test_pools(void)
{
    for (uint32_t blocks = 3; blocks <= 5; blocks++) {
        struct green g;
        addr_t pool, object;
        uint32_t header[12] = {4, 0, 0, 0, 0, 0, 0, 0, 1, blocks, 0, 0}, size = (blocks + 1) * 16;

        green_init(&g, fake_version_index(3, 9), WITH_SELF);
        pool = (fake_alloc(&g.p, 4096 * 3) + 4095) / 4096 * 4096;
        header[10] = 4096;
        header[11] = 4096 - size;
        fake_mem_put_bytes(g.p.mem, pool, header, sizeof(header));
        fake_mem_put(g.p.mem, pool + 16, FAKE_HEAP);
        fake_mem_put(g.p.mem, pool + 24, FAKE_HEAP);
        object = pool + 48 + 16;
        fake_mem_put(g.p.mem, object, 1);
        fake_mem_put(g.p.mem, object + 8, g.base);
        search(&g);
        CHECK_INT(is_found(&g, object), size == 64); /* 40 bytes, and 16 in front of them */
        green_free(&g);
    }
}

int main(void)
{
    TEST_RUN(test_states);
    TEST_RUN(test_moved_stack);
    TEST_RUN(test_hostile);
    TEST_RUN(test_search_bounds);
    TEST_RUN(test_pools);
    return test_finish("test_greenlets");
}
