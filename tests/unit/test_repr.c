/*
 * Values of local variables from synthetic memory, for every version: each kind once, inconsistent objects, and a whole
 * graph of objects with one word after the other damaged. The text is always short and valid UTF-8.
 */
#include "base/err.h"
#include "base/utf8.h"
#include "fake_python.h"
#include "python/repr/locals.h"
#include "python/repr/numbers.h"
#include "python/repr/printable.h"
#include "python/repr/secrets.h"
#include "target/mem_cached.h"
#include "test.h"

#include <math.h>

#define ROOM      (1u << 20)
#define TYPE_SIZE 1024
#define HEAP_TYPE (1ull << 9)
#define CHARS     256
#define SLACK     1024 /* closing brackets and one name, beyond the limit */

struct fixture {
    struct fake_python p;
    struct repr *v;
    addr_t type, object; /* the types `type` and `object` */
    addr_t list, tuple, dict, str, integer, real, range, set, none, plain;
};

static void put(struct fixture *w, addr_t at, int offset, uint64_t value)
{
    fake_mem_put(w->p.mem, at + (addr_t)offset, value);
}

static addr_t make_type(struct fixture *w, const char *name, addr_t base, uint64_t flags)
{
    const struct layout *l = &w->p.py.layout;
    addr_t t = fake_alloc(&w->p, TYPE_SIZE), text = fake_alloc(&w->p, strlen(name) + 1);

    fake_mem_put_bytes(w->p.mem, text, name, strlen(name) + 1);
    put(w, t, 8, w->type ? w->type : t);
    put(w, t, l->ty_name, text);
    put(w, t, l->ty_flags, flags);
    put(w, t, l->ty_base, base);
    put(w, t, l->ty_basicsize, 48);
    return t;
}

static addr_t typed(struct fixture *w, addr_t object, addr_t type)
{
    put(w, object, 8, type);
    return object;
}

static addr_t make_str(struct fixture *w, const char *text)
{
    return typed(w, fake_str(&w->p, text), w->str);
}

static addr_t make_int(struct fixture *w, uint64_t value)
{
    return typed(w, fake_int(&w->p, value), w->integer);
}

static addr_t make_list(struct fixture *w, const addr_t *items, size_t n)
{
    addr_t list = typed(w, fake_alloc(&w->p, 48), w->list), at = fake_alloc(&w->p, n * 8 + 8);

    put(w, list, 16, n);
    put(w, list, w->p.py.layout.li_items, at);
    for (size_t i = 0; i < n; i++)
        put(w, at, (int)i * 8, items[i]);
    return list;
}

static addr_t make_tuple(struct fixture *w, const addr_t *items, size_t n)
{
    addr_t tuple = typed(w, fake_alloc(&w->p, 48 + n * 8), w->tuple);

    put(w, tuple, 16, n);
    for (size_t i = 0; i < n; i++)
        put(w, tuple, w->p.py.layout.tu_items + (int)i * 8, items[i]);
    return tuple;
}

static addr_t make_dict(struct fixture *w, const addr_t *keys, const addr_t *values, size_t n)
{
    return typed(w, fake_dict(&w->p, keys, values, n, false), w->dict);
}

static addr_t make_three(struct fixture *w, addr_t type, addr_t a, addr_t b, addr_t c)
{
    addr_t object = typed(w, fake_alloc(&w->p, 64), type);

    put(w, object, 16, a);
    put(w, object, 24, b);
    put(w, object, 32, c);
    return object;
}

static void begin(struct fixture *w)
{
    repr_begin(w->v, &w->p.py, &(struct repr_limits){.chars = CHARS, .depth = 5, .attributes = true});
}

static void fixture_init(struct fixture *w, const struct layout *l)
{
    *w = (struct fixture){.v = repr_new()};
    fake_python_init(&w->p, l->major, l->minor, ROOM);
    w->type = make_type(w, "type", 0, 0);
    w->object = make_type(w, "object", 0, 0);
    put(w, w->type, l->ty_base, w->object);
    w->list = make_type(w, "list", w->object, 0);
    w->tuple = make_type(w, "tuple", w->object, 0);
    w->dict = make_type(w, "dict", w->object, 0);
    w->str = make_type(w, "str", w->object, 0);
    w->integer = make_type(w, "int", w->object, 0);
    w->real = make_type(w, "float", w->object, 0);
    w->range = make_type(w, l->major == 2 ? "slice" : "range", w->object, 0);
    w->set = make_type(w, "set", w->object, 0);
    w->none = typed(w, fake_alloc(&w->p, 16), make_type(w, "NoneType", w->object, 0));
    w->plain = make_type(w, "Plain", w->object, HEAP_TYPE);
    begin(w);
}

static void fixture_free(struct fixture *w)
{
    repr_free(w->v);
    fake_python_free(&w->p);
}

static const char *show(struct fixture *w, addr_t object)
{
    begin(w);
    return repr_text(w->v, repr_add(w->v, object, NULL));
}

static bool is_short_utf8(const char *text)
{
    size_t len = strlen(text), at = 0;

    while (at < len) {
        uint32_t cp;
        size_t n = utf8_decode(text + at, len - at, &cp);

        if (cp == UTF8_REPLACEMENT && n == 1)
            return false;
        at += n;
    }
    return len > 0 && len <= CHARS + SLACK;
}

/* ---- each kind ---- */

static void check_kinds(struct fixture *w)
{
    addr_t items[3] = {make_int(w, 1), make_str(w, "it's"), w->none}, list = make_list(w, items, 3), one;
    double real = 0.1;
    addr_t number = typed(w, fake_alloc(&w->p, 32), w->real);

    fake_mem_put_bytes(w->p.mem, number + 16, &real, sizeof(real));
    CHECK_STR(show(w, w->none), "None");
    CHECK_STR(show(w, make_int(w, 1234567890123)), "1234567890123");
    CHECK_STR(show(w, number), "0.1");
    CHECK_STR(show(w, list), "[1, \"it's\", None]");
    CHECK_STR(show(w, make_tuple(w, items, 1)), "(1,)");
    CHECK_STR(show(w, make_dict(w, items + 1, &list, 1)), "{\"it's\": [1, \"it's\", None]}");
    one = make_list(w, items, 1);
    typed(w, one, make_type(w, "Mine", w->list, HEAP_TYPE));
    CHECK_STR(show(w, one), "Mine([1])");
    CHECK_STR(show(w, make_str(w, "a\x1b\n")), "'a\\x1b\\n'");
}

/* The layouts from 3.6 on, then 2.7, then NULL. */
static const struct layout *nth_layout(size_t i)
{
    const struct layout *l = layout_of(3, 6 + (int)i);

    if (l || !layout_of(3, 5 + (int)i))
        return l;
    return layout_of(2, 7);
}

static void test_kinds(void)
{
    const struct layout *l;

    for (size_t i = 0; (l = nth_layout(i)); i++) {
        struct fixture w;

        fixture_init(&w, l);
        check_kinds(&w);
        fixture_free(&w);
    }
}

static void test_masks(void)
{
    struct fixture w;
    addr_t keys[2], values[2];

    fixture_init(&w, layout_of(3, 12));
    keys[0] = make_str(&w, "db_password");
    keys[1] = make_str(&w, "user");
    values[0] = values[1] = make_str(&w, "s");
    CHECK_STR(show(&w, make_dict(&w, keys, values, 2)), "{'db_password': <masked>, 'user': 's'}");
    begin(&w);
    CHECK_STR(repr_text(w.v, repr_add(w.v, values[0], "api_key")), "<masked>");
    CHECK_STR(repr_text(w.v, repr_add(w.v, w.none, "api_key")), "None");
    repr_begin(w.v, &w.p.py, &(struct repr_limits){.chars = CHARS, .depth = 5, .show_secrets = true});
    CHECK_STR(repr_text(w.v, repr_add(w.v, values[0], "api_key")), "'s'");
    fixture_free(&w);
}

/* ---- inconsistent objects ---- */

/* A list of a list of a list … */
static addr_t make_deep(struct fixture *w, size_t n)
{
    addr_t list = make_list(w, NULL, 0);

    for (size_t i = 0; i < n; i++)
        list = make_list(w, &list, 1);
    return list;
}

static void check_cycles(struct fixture *w)
{
    addr_t item = w->none, list = make_list(w, &item, 1), tuple, range;

    put(w, fake_mem_get(w->p.mem, list + (addr_t)w->p.py.layout.li_items), 0, list);
    CHECK_STR(show(w, list), "[[...]]");
    tuple = make_tuple(w, &item, 1);
    put(w, tuple, w->p.py.layout.tu_items, tuple);
    CHECK_STR(show(w, tuple), "((...),)");
    range = make_three(w, w->range, 0, 0, 0);
    for (int i = 16; i <= 32; i += 8)
        put(w, range, i, range);
    CHECK(is_short_utf8(show(w, range)));
    CHECK_STR(show(w, make_deep(w, 2000)), "[[[[[[...]]]]]]");
}

static void check_inconsistent_objects(struct fixture *w)
{
    const struct layout *l = &w->p.py.layout;
    addr_t item = w->none, list = make_list(w, &item, 1), type = make_type(w, "Odd", 0, 0);
    addr_t odd = typed(w, fake_alloc(&w->p, 64), type), text = make_str(w, "abc");

    put(w, type, 8, type);
    put(w, type, l->ty_base, type);
    CHECK(strstr(show(w, odd), "<Odd at 0x") != NULL);
    CHECK(strstr(show(w, type), "Odd") != NULL);
    typed(w, odd, odd);
    CHECK(is_short_utf8(show(w, odd)));
    for (int shift = 20; shift < 64; shift++) {
        put(w, list, 16, 1ull << shift);
        CHECK(is_short_utf8(show(w, list)));
        put(w, text, l->str_length, 1ull << shift);
        CHECK(is_short_utf8(show(w, text)));
    }
    typed(w, list, w->dict);
    CHECK(is_short_utf8(show(w, list)));
    typed(w, list, w->set);
    CHECK(is_short_utf8(show(w, list)));
    CHECK_STR(show(w, 0x10), "<unreadable>");
    CHECK_STR(show(w, 0x13), "<unreadable>");
    CHECK_STR(show(w, UINT64_MAX - 7), "<unreadable>");
}

static void test_inconsistent_objects(void)
{
    const struct layout *l;

    for (size_t i = 0; (l = nth_layout(i)); i++) {
        struct fixture w;

        fixture_init(&w, l);
        check_cycles(&w);
        check_inconsistent_objects(&w);
        fixture_free(&w);
    }
}

/* ---- a frame ---- */

#define N_NAMES 3

/* A code object with the arguments `a` and `b` and the local `c`, and a frame of it. */
static struct py_frame make_frame(struct fixture *w, const addr_t *values)
{
    const struct layout *l = &w->p.py.layout;
    addr_t names[N_NAMES] = {make_str(w, "a"), make_str(w, "b"), make_str(w, "c")};
    struct py_frame frame = {.code = fake_alloc(&w->p, 512), .addr = fake_alloc(&w->p, 512)};
    uint32_t two = 2;

    put(w, frame.code, l->co_varnames, make_tuple(w, names, N_NAMES));
    fake_mem_put_bytes(w->p.mem, frame.code + (addr_t)l->co_argcount, &two, sizeof(two));
    if (l->co_kinds != NO)
        put(w, frame.code, l->co_kinds, fake_bytes(&w->p, "   ", N_NAMES));
    if (l->co_cellvars != NO) {
        put(w, frame.code, l->co_cellvars, make_tuple(w, NULL, 0));
        put(w, frame.code, l->co_freevars, make_tuple(w, NULL, 0));
    }
    for (int i = 0; i < N_NAMES; i++)
        put(w, frame.addr, l->fr_slots + i * 8, values[i]);
    return frame;
}

static bool is_var(const struct locals *l, size_t i, const char *name, const char *value, bool is_arg)
{
    return l->n > i && strcmp(l->items[i].name, name) == 0 && strcmp(locals_text(l, &l->items[i]), value) == 0 &&
           l->items[i].is_arg == is_arg;
}

static void check_frame(struct fixture *w)
{
    struct locals_options options = {.level = 1};
    addr_t values[N_NAMES] = {make_int(w, 7), 0, w->none};
    struct py_frame frames[2] = {make_frame(w, values)};
    struct locals l = {0};

    frames[1] = frames[0];
    CHECK_INT(locals_read(&l, &w->p.py, frames, 2, &options), 0);
    CHECK_INT(l.n, 4);
    CHECK(is_var(&l, 0, "a", "7", true) && is_var(&l, 1, "c", "None", false));
    CHECK(l.first[0] == 0 && l.first[1] == 2 && l.first[2] == 4);
    locals_drop(&l, 0);
    CHECK(l.n == 2 && l.first[1] == 0 && l.first[2] == 2 && is_var(&l, 0, "a", "7", true));
    if (w->p.py.layout.repr_flags & REPR_TAGGED_LOCALS) {
        put(w, frames[0].addr, w->p.py.layout.fr_slots, values[0] | 1); /* borrowed */
        put(w, frames[0].addr, w->p.py.layout.fr_slots + 8, 1);         /* NULL */
        put(w, frames[0].addr, w->p.py.layout.fr_slots + 16, 7);        /* a tagged int without an object */
        CHECK_INT(locals_read(&l, &w->p.py, frames, 1, &options), 0);
        CHECK(l.n == 1 && is_var(&l, 0, "a", "7", true));
    }
    frames[0].code = 0x10;
    CHECK_INT(locals_read(&l, &w->p.py, frames, 1, &options), 0);
    CHECK_INT(l.n, 0);
    locals_free(&l);
}

static void test_frame(void)
{
    const struct layout *l;

    for (size_t i = 0; (l = nth_layout(i)); i++) {
        struct fixture w;

        fixture_init(&w, l);
        check_frame(&w);
        fixture_free(&w);
    }
}

/* ---- damage ---- */

/* Some of each kind, referring to each other. */
static addr_t make_graph(struct fixture *w)
{
    static const char *const three[] = {"slice",
                                        "range",
                                        "method",
                                        "builtin_function_or_method",
                                        "bytearray",
                                        "datetime.time",
                                        "BaseException",
                                        "datetime.timezone",
                                        "numpy.ndarray",
                                        "decimal.Decimal",
                                        "collections.deque",
                                        "array.array",
                                        "mappingproxy",
                                        "generator",
                                        "function",
                                        "member_descriptor"};
    addr_t items[24] = {make_int(w, 5), make_str(w, "text"), w->none, w->plain, w->object}, pair[2];
    size_t n = 5;

    for (size_t i = 0; i < sizeof(three) / sizeof(three[0]); i++)
        items[n++] = make_three(w, make_type(w, three[i], w->object, 0), items[0], items[1], items[2]);
    pair[0] = make_list(w, items, n);
    pair[1] = make_tuple(w, items, 2);
    items[0] = make_dict(w, items + 1, pair, 2);
    items[1] = make_three(w, w->set, 1, 1, 0);
    put(w, items[1], 40, pair[1]);
    items[2] = make_three(w, w->plain, 0, 0, 0);
    items[3] = pair[0];
    return make_list(w, items, 4);
}

static unsigned damage_one(struct fixture *w, addr_t root, addr_t at, uint64_t value)
{
    uint64_t before = fake_mem_get(w->p.mem, at);
    unsigned bad;

    fake_mem_put(w->p.mem, at, value);
    bad = !is_short_utf8(show(w, root));
    fake_mem_put(w->p.mem, at, before);
    return bad;
}

static unsigned damage(struct fixture *w, addr_t root)
{
    struct fake_mem *m = w->p.mem;
    struct fake_region *r = m->regions;
    unsigned bad = 0;

    while (r->start != FAKE_HEAP)
        r++;
    bad += !is_short_utf8(show(w, root));
    for (size_t i = 0; i < r->used / 8; i++) {
        addr_t at = r->start + 8 * i;
        const uint64_t values[] = {0, 1, UINT64_MAX, 1ull << 31, 1ull << 62, at, w->list, w->type, root};

        /* Most words of a type are 0, and never read. */
        for (size_t k = fake_mem_get(m, at) ? 0 : 8; k < sizeof(values) / sizeof(values[0]); k++)
            bad += damage_one(w, root, at, values[k]);
    }
    return bad;
}

static void test_damaged_objects(void)
{
    const struct layout *l;

    for (size_t i = 0; (l = nth_layout(i)); i++) {
        struct fixture w;
        addr_t root;

        fixture_init(&w, l);
        root = make_graph(&w);
        CHECK_INT(damage(&w, root), 0);
        fixture_free(&w);
    }
}

/* ---- parts ---- */

static void check_float(double value, int digits, const char *want)
{
    char text[NUMBERS_FLOAT_MAX];

    numbers_print_float(text, value, digits, ".0");
    CHECK_STR(text, want);
}

static void test_floats(void)
{
    check_float(0, 17, "0.0");
    check_float(-0.0, 17, "-0.0");
    check_float(1e16, 17, "1e+16");
    check_float(1e15, 17, "1000000000000000.0");
    check_float(0.0001, 17, "0.0001");
    check_float(0.00001, 17, "1e-05");
    check_float(123456.789, 17, "123456.789");
    check_float(5e-324, 17, "5e-324");
    check_float(1.7976931348623157e308, 17, "1.7976931348623157e+308");
    check_float(ldexp(1, 172), 17, "5.986310706507379e+51"); /* the nearest number of 16 digits is not exact */
    check_float((double)0.1f, 9, "0.1");
    check_float((double)NAN, 17, "nan");
    check_float(-(double)INFINITY, 17, "-inf");
}

static void test_secrets(void)
{
    static const char *const yes[] = {"password",    "PASSWORD",      "userPassword", "passwd", "api_key",
                                      "apikey",      "APIKey",        "key",          "keys",   "token",
                                      "auth_tokens", "client_secret", "credentials",  "_key_",  "aws_secret_access_key",
                                      "monkey_key",  "passphrase"};
    static const char *const no[] = {"", "x", "user", "monkey", "keyboard", "keyword", "tokenizer", "pass", "turkeys"};

    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
        CHECK(secrets_match(yes[i]));
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        CHECK(!secrets_match(no[i]));
}

static void test_printable(void)
{
    CHECK(printable_is(0xe9) && printable_is(0x4e2d) && printable_is(0x1f600) && printable_is(0xa1));
    CHECK(!printable_is(0x80) && !printable_is(0xa0) && !printable_is(0xad) && !printable_is(0x202e));
    CHECK(!printable_is(0xd800) && !printable_is(0xe000) && !printable_is(0x10ffff) && !printable_is(0x110000));
}

static void test_cached(void)
{
    struct fake_mem *m = fake_mem_new();
    struct mem_cached *c = mem_cached_new();
    addr_t at = fake_mem_add(m, 0x10000, 3 * 4096 + 64);
    uint64_t value = 0;

    for (size_t i = 0; i < 3 * 4096 + 64; i += 8)
        fake_mem_put(m, at + i, i);
    mem_cached_begin(c, &m->mem, 4);
    CHECK(mem_read(mem_cached_mem(c), at + 8, &value, 8) == 0 && value == 8);
    CHECK(mem_read(mem_cached_mem(c), at + 4096 - 4, &value, 8) == 0 && value >> 32 == 4096);
    CHECK_INT(m->reads, 2);
    fake_mem_put(m, at + 8, 99);
    CHECK(mem_read(mem_cached_mem(c), at + 8, &value, 8) == 0 && value == 8);
    CHECK(mem_read(mem_cached_mem(c), at + 3 * 4096, &value, 8) == 0 && value == 3 * 4096); /* part of a page */
    CHECK(!mem_cached_spent(c));
    CHECK(mem_read(mem_cached_mem(c), at + 2 * 4096, &value, 8) < 0 && mem_cached_spent(c));
    mem_cached_begin(c, &m->mem, 1);
    CHECK(mem_read(mem_cached_mem(c), at + 8, &value, 8) == 0 && value == 99 && !mem_cached_spent(c));
    mem_cached_free(c);
    mem_close(&m->mem);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_kinds);
    TEST_RUN(test_masks);
    TEST_RUN(test_inconsistent_objects);
    TEST_RUN(test_frame);
    TEST_RUN(test_damaged_objects);
    TEST_RUN(test_floats);
    TEST_RUN(test_secrets);
    TEST_RUN(test_printable);
    TEST_RUN(test_cached);
    return test_finish("test_repr");
}
