/*
 * sample/merge_frames.c: native and Python frames of one instant, merged as each version requires; stacks that do not
 * match; and sample/hidden_functions.c: which functions are hidden.
 */
#include "fake_python.h"
#include "sample/hidden_functions.h"
#include "sample/merge_frames.h"
#include "test.h"

#define STACK 0x7ffd00000000ull
#define SLOT  128 /* bytes of each native frame */
#define MAX   64
#define FRAME 0x55550000ull /* Python frames */

/* The kind of a native function. */
enum { PLAIN, EVAL, HIDDEN, AT_ROOT, CYTHON_WRAPPER_OF, CYTHON_FUNCTION };

struct fixture {
    struct sampler *s;
    struct native n;
    struct native_frame native[MAX];
    struct pc_entry places[MAX];
    struct module interpreter, other, generated;
    unsigned char bytes[MAX * SLOT];
    struct frames frames;
    struct py_frame py_frames[MAX];
    struct frame shown[MAX];
    struct python py;
    struct merged_frames w;
    addr_t cframe;
    size_t last_eval; /* the last one that was added */
    char text[4096];
};

static struct fixture *fixture_new(int major, int minor)
{
    struct sampler_options options = {.native = true};
    struct fixture *w = calloc(1, sizeof(*w));
    const struct layout *l = layout_of(major, minor);

    if (!w || !l || !(w->s = sampler_new(&options)))
        abort();
    w->py.layout = *l;
    w->py.major = major;
    w->py.minor = minor;
    w->interpreter = (struct module){.start = 0x400000, .is_elf = true};
    w->other = (struct module){.start = 0x800000, .is_elf = true};
    w->n = (struct native){.sampler = w->s, .captured = true};
    w->n.copy = (struct stack_copy){.addr = STACK, .bytes = w->bytes, .len = sizeof(w->bytes)};
    w->n.names.interpreter = w->interpreter.start;
    w->n.stack.items = w->native;
    w->n.stack.complete = true;
    w->frames.items = w->py_frames;
    return w;
}

static void fixture_free(struct fixture *w)
{
    for (size_t i = 0; i < w->n.stack.n; i++)
        free((void *)(uintptr_t)w->places[i].user);
    merge_frames_free(&w->w);
    sampler_free(w->s);
    free(w);
}

static const struct func *func(struct fixture *w, const char *name)
{
    struct func key = {.name = intern_str(w->s->names, name),
                       .filename = intern_str(w->s->names, "f"),
                       .short_filename = intern_str(w->s->names, "f")};

    return sampler_func(w->s, &key);
}

static void put(struct fixture *w, addr_t at, uint64_t value)
{
    memcpy(w->bytes + (at - STACK), &value, sizeof(value));
}

static struct native_func native_func(struct fixture *w, const char *name, int kind)
{
    struct native_func f = {
        .func = func(w, name), .is_eval = kind == EVAL, .hidden = kind == HIDDEN, .hidden_at_root = kind == AT_ROOT};

    if (kind == CYTHON_WRAPPER_OF || kind == CYTHON_FUNCTION)
        f.symbols_id =
            (struct symbols_name){.name = f.func->name, .layer = kind == CYTHON_FUNCTION ? CYTHON_DEF : CYTHON_WRAPPER};
    else
        f.symbols_id = (struct symbols_name){.name = f.func->name};
    return f;
}

/* Adds the next native frame outwards. `inlined` is a second function at the same address, around the first, or
 * NULL. */
static size_t add_chain(struct fixture *w, const char *name, int kind, const char *inlined, int inlined_kind)
{
    size_t i = w->n.stack.n++, n = inlined ? 2 : 1;
    struct native_chain *c = calloc(1, sizeof(*c) + 2 * sizeof(c->items[0]));

    if (!c || i >= MAX)
        abort();
    c->n = n;
    c->items[0] = native_func(w, name, kind);
    if (inlined)
        c->items[1] = native_func(w, inlined, inlined_kind);
    w->places[i] = (struct pc_entry){.module = kind == PLAIN ? &w->other : &w->interpreter, .user = c};
    w->native[i] =
        (struct native_frame){.pc_entry = &w->places[i], .sp = STACK + SLOT * i, .cfa = STACK + SLOT * (i + 1)};
    return i;
}

static size_t add(struct fixture *w, const char *name, int kind)
{
    return add_chain(w, name, kind, NULL, 0);
}

/* Where a loop keeps the marker of its group. */
static addr_t spot(size_t eval)
{
    return STACK + SLOT * eval + 32;
}

/* Adds a Python frame outwards; `ends`: C called it, through the loop `eval`. NONE: through a loop that is not
 * there. */
#define NONE SIZE_MAX
static void python(struct fixture *w, const char *name, bool ends, size_t eval)
{
    size_t i = w->frames.n++;
    struct py_frame *f = &w->py_frames[i];

    *f = (struct py_frame){.addr = FRAME + 0x100 * i, .is_entry = ends, .is_shim_entry = ends};
    w->shown[i] = (struct frame){.func = func(w, name), .line = (int)i + 1};
    if (w->py.layout.fr_owner == NO) {
        f->is_entry = true;
        if (eval != NONE)
            put(w, spot(eval), f->addr);
    } else if (w->py.layout.fr_is_entry == NO && ends) {
        f->entry = eval == NONE ? STACK + 2 * MAX * SLOT : spot(eval);
    }
}

/* 3.11: the chain of _PyCFrame, from the innermost loop outwards; each points to the first frame of its group. */
static void link_cframes(struct fixture *w, const size_t *evals, const size_t *firsts, size_t n)
{
    const struct layout *l = &w->py.layout;

    for (size_t i = 0; i < n; i++) {
        put(w, spot(evals[i]) + (addr_t)l->cf_frame, firsts[i] == NONE ? 0 : w->py_frames[firsts[i]].addr);
        put(w, spot(evals[i]) + (addr_t)l->cf_previous, i + 1 < n ? spot(evals[i + 1]) : 0);
    }
    w->cframe = n ? spot(evals[0]) : 0;
}

static void check(struct fixture *w, const char *want, bool failed)
{
    size_t len = 0;

    CHECK_INT(merge_frames(&w->w, &w->n, &w->py, &w->frames, w->shown, w->cframe), 0);
    w->text[0] = '\0';
    for (size_t i = 0; i < w->w.n && len < sizeof(w->text); i++)
        len += (size_t)snprintf(w->text + len, sizeof(w->text) - len, "%s%s", i ? " " : "", w->w.items[i].func->name);
    CHECK_STR(w->text, want);
    CHECK(w->w.failed == failed);
}

/* a calls b, which calls a C function; the thread begins in libc. */
static void fill_usual(struct fixture *w)
{
    size_t inner, outer;

    add(w, "c_leaf", PLAIN);
    add(w, "c_func", PLAIN);
    add(w, "PyObject_Call", HIDDEN);
    inner = add(w, "eval", EVAL);
    add(w, "PyObject_Call", HIDDEN);
    add(w, "c_middle", PLAIN);
    outer = add(w, "eval", EVAL);
    add(w, "pymain_run", HIDDEN);
    add(w, "libc.so+0x1", AT_ROOT);
    python(w, "b", true, inner);
    python(w, "a", true, outer);
    if (w->py.layout.fr_is_entry != NO && w->py.layout.fr_owner != NO)
        link_cframes(w, (size_t[]){inner, outer}, (size_t[]){0, 1}, 2);
}

static void test_usual(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fixture *w = fixture_new(fake_versions[i].major, fake_versions[i].minor);

        fill_usual(w);
        check(w, "c_leaf c_func b c_middle a", false);
        CHECK(w->w.items[2].line == 1 && w->w.items[4].line == 2);
        w->s->options.native_all = true;
        check(w, "c_leaf c_func PyObject_Call b eval PyObject_Call c_middle a eval pymain_run libc.so+0x1", false);
        fixture_free(w);
    }
}

/* From 3.11 on one loop runs several Python frames. */
static void test_groups(void)
{
    for (size_t i = fake_version_index(3, 11); i < N_VERSIONS; i++) {
        struct fixture *w = fixture_new(fake_versions[i].major, fake_versions[i].minor);
        size_t inner, outer;

        inner = add(w, "eval", EVAL);
        add(w, "c_middle", PLAIN);
        outer = add(w, "eval", EVAL);
        add(w, "main", HIDDEN);
        python(w, "e", false, NONE);
        python(w, "d", true, inner);
        python(w, "c", false, NONE);
        python(w, "b", false, NONE);
        python(w, "a", true, outer);
        link_cframes(w, (size_t[]){inner, outer}, (size_t[]){0, 2}, 2);
        check(w, "e d c_middle c b a", false);
        /* A loop that was just entered has no frame yet. */
        w->py_frames[1].entry = w->py_frames[4].entry;
        if (w->py.layout.fr_is_entry == NO) {
            w->frames.n = 0;
            python(w, "c", false, NONE);
            python(w, "b", false, NONE);
            python(w, "a", true, outer);
            check(w, "c_middle c b a", false);
        }
        fixture_free(w);
    }
}

/* One loop more than Python frames: it is just starting or returning. */
static void test_extra_loop(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fixture *w = fixture_new(fake_versions[i].major, fake_versions[i].minor);
        size_t empty, inner, outer;

        empty = add(w, "eval", EVAL);
        add(w, "c_one", PLAIN);
        inner = add(w, "eval", EVAL);
        add(w, "c_two", PLAIN);
        outer = add(w, "eval", EVAL);
        python(w, "b", true, inner);
        python(w, "a", true, outer);
        if (w->py.layout.fr_is_entry != NO && w->py.layout.fr_owner != NO)
            link_cframes(w, (size_t[]){empty, inner, outer}, (size_t[]){NONE, 0, 1}, 3);
        check(w, "c_one b c_two a", false);
        fixture_free(w);
    }
}

/* A native stack that ends too early: its part is merged, the rest follows the placeholder. */
static void test_truncated(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fixture *w = fixture_new(fake_versions[i].major, fake_versions[i].minor);

        fill_usual(w);
        w->n.stack.complete = false;
        w->n.stack.n = 5; /* not as far as the outer loop */
        check(w, "c_leaf c_func b [missing native frames] a", true);
        w->n.stack.n = 2;
        check(w, "c_leaf c_func [missing native frames] b a", true);
        w->n.stack.n = 0;
        check(w, "[missing native frames] b a", true);
        w->n.stack.n = 8; /* all Python frames are there */
        check(w, "c_leaf c_func b c_middle a", false);
        w->places[7].module = &w->generated; /* its caller is unknown, and would be shown */
        check(w, "c_leaf c_func b c_middle a [missing native frames]", false);
        w->places[7].module = &w->interpreter;
        w->s->options.native_all = true;
        check(w,
              "c_leaf c_func PyObject_Call b eval PyObject_Call c_middle a eval pymain_run "
              "[missing native frames]",
              false);
        w->n.stack.n = 9;
        fixture_free(w);
    }
}

static void test_empty(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fixture *w = fixture_new(fake_versions[i].major, fake_versions[i].minor);

        check(w, "", false);
        /* A thread without Python frames: libc is not hidden. */
        add(w, "worker", PLAIN);
        add(w, "libc.so+0x1", AT_ROOT);
        add(w, "start_thread", HIDDEN);
        check(w, "worker libc.so+0x1", false);
        w->s->options.native_all = true;
        check(w, "worker libc.so+0x1 start_thread", false);
        fixture_free(w);
    }
}

/* libc is shown between Python frames, but not below all of them. */
static void test_root(void)
{
    struct fixture *w = fixture_new(3, 12);
    size_t inner, outer;

    inner = add(w, "eval", EVAL);
    add(w, "libc.so+0x1", AT_ROOT);
    outer = add(w, "eval", EVAL);
    add(w, "libc.so+0x2", AT_ROOT);
    add(w, "embedder", PLAIN);
    python(w, "b", true, inner);
    python(w, "a", true, outer);
    check(w, "b libc.so+0x1 a embedder", false);
    fixture_free(w);
}

/* A signal handler runs on its own stack, above or below the interrupted one. */
static void test_other_stack(void)
{
    for (int below = 0; below < 2; below++) {
        struct fixture *w = fixture_new(3, 12);
        size_t inner, outer;

        add(w, "handler", PLAIN);
        add(w, "restorer", HIDDEN);
        add(w, "c_func", PLAIN);
        inner = add(w, "eval", EVAL);
        add(w, "c_middle", PLAIN);
        outer = add(w, "eval", EVAL);
        python(w, "b", true, inner);
        python(w, "a", true, outer);
        for (size_t i = 0; i < 2; i++) {
            w->native[i].sp = (below ? STACK - 0x10000 : STACK + 0x10000) + SLOT * i;
            w->native[i].cfa = w->native[i].sp + SLOT;
        }
        check(w, "handler c_func b c_middle a", false);
        fixture_free(w);
    }
}

/* Markers outside of all frames, or in the wrong order: each Python frame appears exactly once. */
static void test_invalid_markers(void)
{
    struct fixture *w = fixture_new(3, 13);
    size_t inner, outer;

    inner = add(w, "eval", EVAL);
    add(w, "c_middle", PLAIN);
    outer = add(w, "eval", EVAL);
    python(w, "b", true, NONE);
    python(w, "a", true, NONE);
    check(w, "c_middle [missing native frames] b a", true);
    w->py_frames[0].entry = spot(outer);
    w->py_frames[1].entry = spot(inner);
    CHECK_INT(merge_frames(&w->w, &w->n, &w->py, &w->frames, w->shown, 0), 0);
    for (const char *name = "ab"; *name; name++) {
        size_t seen = 0;

        for (size_t i = 0; i < w->w.n; i++)
            seen += w->w.items[i].func->name[0] == *name && w->w.items[i].func->name[1] == '\0';
        CHECK_INT(seen, 1);
    }
    CHECK(w->w.failed);
    fixture_free(w);
}

/* 3.11: a chain that points nowhere, back, or in a circle. */
static void test_wrong_chain(void)
{
    struct fixture *w = fixture_new(3, 11);
    const struct layout *l = &w->py.layout;

    fill_usual(w);
    w->cframe = 0;
    check(w, "c_leaf c_func c_middle libc.so+0x1 [missing native frames] b a", true);
    w->cframe = 0xdeadbeef;
    check(w, "c_leaf c_func c_middle libc.so+0x1 [missing native frames] b a", true);
    w->cframe = spot(3);
    put(w, spot(3) + (addr_t)l->cf_previous, spot(3)); /* to itself */
    check(w, "c_leaf c_func b c_middle libc.so+0x1 [missing native frames] a", true);
    put(w, spot(3) + (addr_t)l->cf_frame, 0);
    check(w, "c_leaf c_func c_middle libc.so+0x1 [missing native frames] b a", true);
    put(w, spot(3) + (addr_t)l->cf_previous, STACK + sizeof(w->bytes) - 4); /* outside of the copy */
    check(w, "c_leaf c_func c_middle libc.so+0x1 [missing native frames] b a", true);
    fixture_free(w);
}

/* A call of a Cython function is two or more C functions: shown once. */
static void test_cython(void)
{
    struct fixture *w = fixture_new(3, 12);
    size_t inner, outer;

    add(w, "mod.f", CYTHON_FUNCTION);
    add(w, "mod.f", CYTHON_WRAPPER_OF);
    inner = add(w, "eval", EVAL);
    add(w, "mod.f", CYTHON_WRAPPER_OF);
    add_chain(w, "mod.g", CYTHON_FUNCTION, "mod.g", CYTHON_WRAPPER_OF);
    add(w, "mod.f", CYTHON_FUNCTION); /* another call of f, by g: not the wrapper */
    add(w, "plain", PLAIN);
    add(w, "mod.f", CYTHON_WRAPPER_OF); /* no longer next to it */
    outer = add(w, "eval", EVAL);
    python(w, "b", true, inner);
    python(w, "a", true, outer);
    check(w, "mod.f b mod.f mod.g mod.f plain mod.f a", false);
    w->s->options.native_all = true;
    check(w, "mod.f mod.f b eval mod.f mod.g mod.g mod.f plain mod.f a eval", false);
    fixture_free(w);
}

/* A function that was inlined into the loop is shown as native code; the loop itself is not shown. */
static void test_inlined(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fixture *w = fixture_new(fake_versions[i].major, fake_versions[i].minor);
        size_t outer;

        add_chain(w, "tiny", PLAIN, "c_func", PLAIN);
        outer = add_chain(w, "do_something", PLAIN, "eval", EVAL);
        w->places[outer].module = &w->interpreter;
        python(w, "a", true, outer);
        if (w->py.layout.fr_is_entry != NO && w->py.layout.fr_owner != NO)
            link_cframes(w, &outer, (size_t[]){0}, 1);
        check(w, "tiny c_func a", false);
        fixture_free(w);
    }
}

/* ---- hidden functions ---- */

static void test_hidden_functions(void)
{
    static const char *const hidden[] = {
        "_start", "__libc_start_main", "__libc_start_call_main",        "start_thread",        "clone",
        "clone3", "__clone3",          "__libc_start_main@@GLIBC_2.34", "start_thread.part.0", "_start_c"};
    static const char *const shown[] = {"clone_table",       "clones",   "_start_server", "start_threads",
                                        "start_thread_pool", "clone2",   "mystart",       "",
                                        "main_loop",         "_started", "clone30"};
    static const char *const in_python[] = {"_PyEval_EvalFrameDefault",
                                            "PyObject_Call",
                                            "_PyObject_MakeTpCall",
                                            "main",
                                            "Py_BytesMain",
                                            "type_call",
                                            "slot_tp_call",
                                            "PyImport_ImportModule"};
    static const char *const work[] = {"list_sort", "long_mul", "PyLong_FromLong", "unicode_concatenate", "gc_collect"};

    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
        if (!CHECK(hidden_functions_match(hidden[i], "/lib/x.so", false) &&
                   hidden_functions_match(hidden[i], "/bin/x", true)))
            fprintf(stderr, "    %s\n", hidden[i]);
    for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
        if (!CHECK(!hidden_functions_match(shown[i], "/lib/x.so", false)))
            fprintf(stderr, "    %s\n", shown[i]);
    for (size_t i = 0; i < sizeof(in_python) / sizeof(in_python[0]); i++) {
        CHECK(hidden_functions_match(in_python[i], "/usr/lib/libpython3.so", true));
        CHECK(!hidden_functions_match(in_python[i], "/usr/lib/libother.so", false));
    }
    for (size_t i = 0; i < sizeof(work) / sizeof(work[0]); i++)
        CHECK(!hidden_functions_match(work[i], "/usr/lib/libpython3.so", true));
    CHECK(hidden_functions_is_greenlet_start("greenlet::UserGreenlet::g_initialstub"));
    CHECK(hidden_functions_is_greenlet_start("g_initialstub"));
    CHECK(!hidden_functions_is_greenlet_start("g_switch") && !hidden_functions_is_greenlet_start(NULL));
    CHECK(hidden_functions_is_greenlet("/x/greenlet/_greenlet.cpython-313-x86_64-linux-gnu.so"));
    CHECK(hidden_functions_is_greenlet("greenlet.so") && !hidden_functions_is_greenlet("/greenlet/libother.so"));
    CHECK(hidden_functions_match("main", "/usr/bin/python3.11", false) &&
          hidden_functions_match("main", "python", false));
    CHECK(!hidden_functions_match("main", "/opt/python/bin/uwsgi", false));
    CHECK(hidden_functions_match(NULL, "/usr/bin/python3", true) && !hidden_functions_match(NULL, "/lib/x.so", false));
}

static void test_libc(void)
{
    static const char *const yes[] = {"/lib/libc.so.6", "/lib/libc-2.31.so",           "/lib/libpthread.so.0",
                                      "libc.so",        "/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"};
    static const char *const no[] = {"/lib/libcrypto.so", "/lib/libc++.so", "/libc.so/x", "", "/usr/bin/python3"};

    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
        CHECK(hidden_functions_is_libc(yes[i]));
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        CHECK(!hidden_functions_is_libc(no[i]));
    CHECK(hidden_functions_is_eval("_PyEval_EvalFrameDefault", false) &&
          !hidden_functions_is_eval("PyEval_EvalFrameEx", false));
    CHECK(hidden_functions_is_eval("PyEval_EvalFrameEx", true) &&
          !hidden_functions_is_eval("_PyEval_EvalFrameDefault", true));
    CHECK(!hidden_functions_is_eval(NULL, false) && !hidden_functions_is_eval("", true));
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_usual);
    TEST_RUN(test_groups);
    TEST_RUN(test_extra_loop);
    TEST_RUN(test_truncated);
    TEST_RUN(test_empty);
    TEST_RUN(test_root);
    TEST_RUN(test_other_stack);
    TEST_RUN(test_invalid_markers);
    TEST_RUN(test_wrong_chain);
    TEST_RUN(test_cython);
    TEST_RUN(test_inlined);
    TEST_RUN(test_hidden_functions);
    TEST_RUN(test_libc);
    return test_finish("test_merge_frames");
}
