/*
 * python/code and python/strings: code objects, read once and checked at each use; strings of every kind.
 */
#include "base/err.h"
#include "cost.h"
#include "fake_python.h"
#include "python/code.h"
#include "python/strings.h"
#include "test.h"

#define ROOM ((size_t)1 << 20)

/* One code object, in a sample of its own. */
static const struct code *get(struct code_cache *cache, const struct fake_python *p, addr_t addr)
{
    const struct code *code = NULL;

    code_cache_round(cache, false);
    CHECK_INT(code_cache_get(cache, &p->py, &addr, 1, &code), 0);
    return code;
}

/* Many code objects that share one large line table: memory and time stay bounded. Runs first, because it checks the
 * peak memory of the process. */
static void test_many_tables(void)
{
    const size_t len = 4 << 20;
    struct fake_python p;
    struct code_cache *cache = code_cache_new(false);
    const struct code *ret[64];
    addr_t addrs[64], name, file, big = 0x7f4400000000;
    double begin;
    size_t before;

    fake_python_init(&p, 3, 12, ROOM);
    name = fake_str(&p, "f");
    file = fake_str(&p, "/a.py");
    fake_mem_add(p.mem, big, len + 64);
    fake_mem_put(p.mem, big + (addr_t)p.py.layout.by_size, len);
    for (size_t at = 0; at + 3 <= len; at += 3)
        fake_mem_put_bytes(p.mem, big + (addr_t)p.py.layout.by_data + at, "\xd8\0\0", 3);
    for (size_t i = 0; i < 64; i++)
        addrs[i] = fake_code_of(&p, name, file, (int)i, big);
    before = cost_resident_mb();
    begin = cost_seconds();
    code_cache_round(cache, false);
    CHECK_INT(code_cache_get(cache, &p.py, addrs, 64, ret), 0);
    for (size_t i = 0; i < 64; i++)
        CHECK(ret[i] != NULL && ret[i]->name != NULL);
    if (!CHECK(cost_resident_mb() - before <= 64))
        fprintf(stderr, "    %zu MB\n", cost_resident_mb() - before);
    if (!CHECK(cost_seconds() - begin < COST_MAX))
        fprintf(stderr, "    %.1f s\n", cost_seconds() - begin);
    code_cache_free(cache);
    fake_python_free(&p);
}

static void test_code(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct code_cache *cache = code_cache_new(false);
        struct fake_python p;
        const struct code *code, *both[3];
        addr_t addrs[3];

        fake_python_init_nth(&p, i, ROOM);
        addrs[0] = addrs[2] = fake_code(&p, "A.method", "/srv/app/main.py", 10);
        addrs[1] = fake_code(&p, "other", "/srv/app/other.py", 100);
        code = get(cache, &p, addrs[0]);
        CHECK_STR(code ? code->name : NULL, "A.method");
        CHECK_STR(code ? code->filename : NULL, "/srv/app/main.py");
        CHECK_INT(code ? code->first_line : 0, 10);
        for (int line = 0; code && line < 16; line++) {
            CHECK_INT(code_line(code, 4 * line), 10 + line);
            CHECK_INT(code_line(code, 4 * line + 2), 10 + line);
        }
        CHECK_INT(code ? code_line(code, -2) : 0, 10);
        code_cache_round(cache, false);
        CHECK_INT(code_cache_get(cache, &p.py, addrs, 3, both), 0);
        CHECK(both[0] == code && both[2] == code && both[1] && strcmp(both[1]->name, "other") == 0);
        CHECK(both[0]->func == NULL);
        code_set_func(both[0], &p);
        code = get(cache, &p, addrs[0]);
        CHECK(code && code->func == &p); /* unchanged: the caller's note stays */
        code_cache_free(cache);
        fake_python_free(&p);
    }
    CHECK(code_cache_free(NULL) == NULL);
}

/* Another code object is allocated at the same address. */
static void test_reuse(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct code_cache *cache = code_cache_new(false);
        struct fake_python p;
        const struct layout *l = &p.py.layout;
        const struct code *code;
        int name_at, first = 40;
        addr_t addr, name;

        fake_python_init_nth(&p, i, ROOM);
        name_at = l->co_qualname != NO ? l->co_qualname : l->co_name;
        addr = fake_code(&p, "first", "/srv/app/main.py", 10);
        code = get(cache, &p, addr);
        code_set_func(code, &p);
        /* Another name object, and another line. */
        fake_mem_put(p.mem, addr + (addr_t)name_at, fake_str(&p, "other"));
        fake_mem_put_bytes(p.mem, addr + (addr_t)l->co_firstline, &first, sizeof(first));
        code = get(cache, &p, addr);
        CHECK_STR(code ? code->name : NULL, "other");
        CHECK_INT(code ? code_line(code, 8) : 0, 42);
        CHECK(code && code->func == NULL);
        /* The name's memory is reused, with a text of the same length. */
        name = fake_mem_get(p.mem, addr + (addr_t)name_at);
        fake_mem_put_bytes(p.mem, name + (addr_t)l->str_ascii, "third", 5);
        fake_mem_put(p.mem, name + (addr_t)l->str_length + 8, 12345); /* its hash */
        CHECK_STR((code = get(cache, &p, addr)) ? code->name : NULL, "third");
        /* So is the file's, which need not be hashed. */
        name = fake_mem_get(p.mem, addr + (addr_t)l->co_filename);
        fake_mem_put_bytes(p.mem, name + (addr_t)l->str_ascii, "/srv/app/MAIN.py", 16);
        CHECK_STR((code = get(cache, &p, addr)) ? code->filename : NULL, "/srv/app/MAIN.py");
        /* And the line table's. */
        name = fake_mem_get(p.mem, addr + (addr_t)l->co_lines);
        fake_mem_put(p.mem, name + (addr_t)l->by_size, 0);
        CHECK_INT((code = get(cache, &p, addr)) ? code_line(code, 8) : 0, 40);
        code_cache_free(cache);
        fake_python_free(&p);
    }
}

static void test_unreadable(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct code_cache *cache = code_cache_new(false);
        struct fake_python p;
        const struct layout *l = &p.py.layout;
        const struct code *got[3];
        addr_t addrs[3], bad_name, good_name;

        fake_python_init_nth(&p, i, ROOM);
        good_name = fake_str(&p, "good");
        bad_name = fake_alloc(&p, 64);
        fake_mem_put(p.mem, bad_name + (addr_t)l->str_length, UINT64_MAX);
        addrs[0] = fake_code(&p, "good", "/a.py", 10);
        addrs[1] = 0x7f9900000000;                                   /* nothing there */
        addrs[2] = fake_code_of(&p, bad_name, good_name, 1, p.none); /* an impossible length */
        code_cache_round(cache, false);
        CHECK_INT(code_cache_get(cache, &p.py, addrs, 3, got), 0);
        CHECK(got[0] && !got[1] && !got[2]);
        fake_mem_put(p.mem, addrs[2] + (addr_t)(l->co_qualname != NO ? l->co_qualname : l->co_name), good_name);
        code_cache_round(cache, false);
        CHECK_INT(code_cache_get(cache, &p.py, addrs, 3, got), 0);
        CHECK(got[0] && !got[1] && got[2] && strcmp(got[2]->name, "good") == 0);
        /* With an unreadable line table, the first line is used. */
        fake_mem_put(p.mem, addrs[0] + (addr_t)l->co_lines, 0x7f9900000000);
        code_cache_round(cache, false);
        CHECK_INT(code_cache_get(cache, &p.py, addrs, 3, got), 0);
        CHECK(!got[0] || code_line(got[0], 8) == 10);
        code_cache_free(cache);
        fake_python_free(&p);
    }
}

/* An unreadable code object in many frames of one stack is read once. */
static void test_unreadable_once(void)
{
    struct code_cache *cache = code_cache_new(false);
    struct fake_python p;
    const struct code *got[200];
    addr_t addrs[200], file;
    uint64_t reads;

    fake_python_init(&p, 3, 12, ROOM);
    file = fake_str(&p, "/a.py");
    addrs[0] = fake_code(&p, "f", "/a.py", 1);
    fake_mem_put(p.mem, addrs[0] + (addr_t)p.py.layout.co_filename, file);
    fake_mem_put(p.mem, file + (addr_t)p.py.layout.str_length, 1ull << 40); /* its end is unmapped */
    for (size_t i = 1; i < 200; i++)
        addrs[i] = addrs[0];
    reads = p.mem->reads;
    code_cache_round(cache, false);
    CHECK_INT(code_cache_get(cache, &p.py, addrs, 200, got), 0);
    CHECK(!got[0] && !got[199]);
    CHECK(p.mem->reads - reads < 50);
    code_cache_free(cache);
    fake_python_free(&p);
}

static void test_huge_table(void)
{
    const size_t len = 40 << 20;
    struct fake_python p;
    struct code_cache *cache = code_cache_new(false);
    const struct code *code;
    addr_t addr, big = 0x7f4400000000;

    fake_python_init(&p, 3, 11, ROOM);
    fake_mem_add(p.mem, big, len + 64);
    fake_mem_put(p.mem, big + (addr_t)p.py.layout.by_size, len);
    addr = fake_code_of(&p, fake_str(&p, "f"), fake_str(&p, "/a.py"), 77, big);
    code = get(cache, &p, addr);
    CHECK_STR(code ? code->name : NULL, "f");
    CHECK_INT(code ? code_line(code, 8) : 0, 77);
    CHECK(get(cache, &p, addr) == code);
    code_cache_free(cache);
    fake_python_free(&p);
}

/* A line table as large as in a real program is not truncated: 300 KB, and the last line is right. */
static void test_large_table(void)
{
    const size_t n = 100000;
    struct fake_python p;
    struct code_cache *cache = code_cache_new(false);
    const struct code *code;
    unsigned char *table = malloc(n * 3);

    if (!table)
        abort();
    for (size_t i = 0; i < n; i++)
        memcpy(table + 3 * i, "\xd8\0\0", 3); /* one code unit, the next line */
    fake_python_init(&p, 3, 11, ROOM);
    code = get(cache, &p, fake_code_of(&p, fake_str(&p, "f"), fake_str(&p, "/a.py"), 1, fake_bytes(&p, table, n * 3)));
    CHECK_INT(code ? code_line(code, 2 * (int64_t)n - 2) : 0, n + 1);
    free(table);
    code_cache_free(cache);
    fake_python_free(&p);
}

/* Columns, if the cache is to have them. Those of a huge table are left out, its lines are not. */
static void test_positions(void)
{
    static const unsigned char table[] = {0xd8, 4, 9, 0xe8,
                                          2}; /* line + 1, columns 4 to 9; then line + 1, no columns */
    const size_t large = 3 << 19;
    unsigned char *bytes = malloc(large);
    struct fake_python p;
    const struct code *code;
    struct position at;

    if (!bytes)
        abort();
    for (size_t i = 0; i < large; i++)
        bytes[i] = table[i % 3];
    fake_python_init(&p, 3, 13, 4 << 20);
    for (int with = 0; with < 2; with++) {
        struct code_cache *cache = code_cache_new(with);
        addr_t name = fake_str(&p, "f"), file = fake_str(&p, "/a.py");

        code = get(cache, &p, fake_code_of(&p, name, file, 10, fake_bytes(&p, table, sizeof(table))));
        CHECK_INT(code ? code_line(code, 0) : 0, 11);
        CHECK_INT(code && code_position(code, 0, &at), with);
        if (with) {
            CHECK(at.line == 11 && at.end_line == 11 && at.column == 4 && at.end_column == 9);
            CHECK(code && code_position(code, 2, &at) && at.line == 12 && at.end_line == 0 && at.column == -1);
            CHECK(code && !code_position(code, -2, &at));
        }
        code = get(cache, &p, fake_code_of(&p, name, file, 10, fake_bytes(&p, bytes, large)));
        CHECK_INT(code ? code_line(code, 2) : 0, 12);
        CHECK(code && !code_position(code, 2, &at));
        code_cache_free(cache);
    }
    free(bytes);
    fake_python_free(&p);
}

/* More code objects than fit in a batch, and more than the initial table holds. */
static void test_many_codes(void)
{
    const size_t n = 3000;
    struct fake_python p;
    struct code_cache *cache = code_cache_new(false);
    const struct code *ret[3000];
    addr_t addrs[3000];
    char name[32];

    fake_python_init(&p, 3, 8, 4 << 20);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "f%zu", i);
        addrs[i] = fake_code(&p, name, "/a.py", (int)i);
    }
    for (int round = 0; round < 3; round++) {
        size_t wrong = 0;

        code_cache_round(cache, false);
        CHECK_INT(code_cache_get(cache, &p.py, addrs, n, ret), 0);
        for (size_t i = 0; i < n; i++)
            wrong += !ret[i] || ret[i]->addr != addrs[i] || ret[i]->first_line != (int)i;
        CHECK_INT(wrong, 0);
    }
    code_cache_free(cache);
    fake_python_free(&p);
}

/* More code objects in one stack than the cache holds. Those of another stack make room in the next round. */
static void test_too_many_codes(void)
{
    const size_t n = 40000;
    struct fake_python p;
    struct code_cache *cache = code_cache_new(false);
    const struct code **ret = calloc(n, sizeof(*ret));
    addr_t *addrs = calloc(n, sizeof(*addrs));

    if (!ret || !addrs)
        abort();
    fake_python_init(&p, 3, 8, 64 << 20);
    for (size_t i = 0; i < n; i++)
        addrs[i] = fake_code(&p, "f", "/a.py", (int)i);
    code_cache_round(cache, false);
    CHECK_INT(code_cache_get(cache, &p.py, addrs, n, ret), ERR_TOO_MANY_CODES);
    CHECK(ret[0] && !ret[n - 1]);
    code_cache_round(cache, false);
    CHECK_INT(code_cache_get(cache, &p.py, addrs, n / 2, ret), 0);
    CHECK_INT(code_cache_get(cache, &p.py, addrs + n / 2, n / 2, ret), ERR_TOO_MANY_CODES);
    code_cache_round(cache, false);
    CHECK_INT(code_cache_get(cache, &p.py, addrs + n / 2, n / 2, ret), 0);
    CHECK(ret[0] && ret[n / 2 - 1]);
    free(ret);
    free(addrs);
    code_cache_free(cache);
    fake_python_free(&p);
}

static const char *read_str(const struct fake_python *p, addr_t object)
{
    const char *text = "failed";

    strings_read(&p->py, object, &text);
    return text;
}

static void test_strings(void)
{
    static const uint32_t latin[] = {'c', 'a', 'f', 0xe9}, wide[] = {0x4f60, 0x597d, 0xd800, 'x', 0xffff};
    static const uint32_t astral[] = {0x1f40d, 'a', 0x10ffff, 0x110000, 0xffffffff, 0};

    for (size_t i = fake_version_index(3, 6); i < N_VERSIONS; i++) {
        struct fake_python p;

        fake_python_init_nth(&p, i, ROOM);
        CHECK_STR(read_str(&p, fake_str(&p, "plain")), "plain");
        CHECK_STR(read_str(&p, fake_str(&p, "")), "");
        CHECK_STR(read_str(&p, fake_str_wide(&p, latin, 4, 1)), "caf\xc3\xa9");
        CHECK_STR(read_str(&p, fake_str_wide(&p, wide, 5, 2)), "\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbf\xbdx\xef\xbf\xbf");
        CHECK_STR(read_str(&p, fake_str_wide(&p, astral, 6, 4)),
                  "\xf0\x9f\x90\x8d"
                  "a\xf4\x8f\xbf\xbf\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
        CHECK(read_str(&p, fake_str(&p, "same")) == read_str(&p, fake_str(&p, "same"))); /* interned */
        CHECK(strings_equal(&p.py, fake_str(&p, "key"), "key"));
        CHECK(!strings_equal(&p.py, fake_str(&p, "key"), "kez"));
        CHECK(!strings_equal(&p.py, fake_str(&p, "key"), "keys"));
        CHECK(!strings_equal(&p.py, fake_str_wide(&p, wide, 5, 2), "key"));
        CHECK(!strings_equal(&p.py, 0, "key") && !strings_equal(&p.py, 0x10, "key"));
        fake_python_free(&p);
    }
}

static void test_strings_27(void)
{
    struct fake_python p;

    fake_python_init(&p, 2, 7, ROOM);
    CHECK_STR(read_str(&p, fake_str(&p, "plain")), "plain");
    CHECK_STR(read_str(&p, fake_str(&p, "caf\xc3\xa9 \xff")), "caf\xc3\xa9 \xef\xbf\xbd");
    CHECK(strings_equal(&p.py, fake_str(&p, "key"), "key"));
    fake_python_free(&p);
}

/* Longer than the limit: truncated with an ellipsis, for every character width, and never within a character. */
static void test_strings_long(void)
{
    static const char ellipsis[] = "\xe2\x80\xa6";
    uint32_t characters[PY_MAX_NAME + 1];
    struct fake_python p;

    for (int kind = 1; kind <= 4; kind *= 2)
        for (size_t n = PY_MAX_NAME - 1; n <= PY_MAX_NAME + 1; n++) {
            const char *text;
            size_t width = kind == 1 ? 2 : kind == 2 ? 3 : 4;

            fake_python_init(&p, 3, 12, ROOM);
            for (size_t i = 0; i < n; i++)
                characters[i] = kind == 1 ? 0xe9 : kind == 2 ? 0x4f60 : 0x1f40d;
            text = read_str(&p, fake_str_wide(&p, characters, n, kind));
            CHECK_INT(strlen(text), n <= PY_MAX_NAME ? n * width : PY_MAX_NAME * width + 3);
            CHECK_INT(strcmp(text + strlen(text) - 3, ellipsis) == 0, n > PY_MAX_NAME);
            fake_python_free(&p);
        }
    fake_python_init(&p, 2, 7, ROOM);
    {
        char *bytes = malloc(PY_MAX_NAME + 2);
        const char *text;

        if (!bytes)
            abort();
        memset(bytes, 0xff, PY_MAX_NAME + 1);
        bytes[PY_MAX_NAME + 1] = '\0';
        text = read_str(&p, fake_str(&p, bytes));
        CHECK_INT(strlen(text), PY_MAX_NAME * 3 + 3);
        free(bytes);
    }
    fake_python_free(&p);
}

static void test_strings_bad(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fake_python p;
        const struct layout *l = &p.py.layout;
        const char *text = "untouched";
        addr_t s;

        fake_python_init_nth(&p, i, ROOM);
        CHECK(strings_read(&p.py, 0, &text) < 0);
        CHECK(strings_read(&p.py, 0x10, &text) < 0);
        CHECK(strings_read(&p.py, UINT64_MAX - 8, &text) < 0);
        s = fake_str(&p, "text");
        fake_mem_put(p.mem, s + (addr_t)l->str_length, UINT64_MAX);
        CHECK_INT(strings_read(&p.py, s, &text), ERR_BOUNDS);
        fake_mem_put(p.mem, s + (addr_t)l->str_length, 1ull << 63);
        CHECK_INT(strings_read(&p.py, s, &text), ERR_BOUNDS);
        for (int state = 0; l->str_state != NO && state < 256; state++) {
            unsigned char byte = (unsigned char)state;
            bool compact = state & 32, width = (state >> 2 & 7) == 1 || (state >> 2 & 7) == 2 || (state >> 2 & 7) == 4;
            const char *out;

            fake_mem_put(p.mem, s + (addr_t)l->str_length, 1);
            fake_mem_put_bytes(p.mem, s + (addr_t)l->str_state, &byte, 1);
            if (!compact || !width)
                CHECK_INT(strings_read(&p.py, s, &out), ERR_BOUNDS);
            else
                CHECK_INT(strings_read(&p.py, s, &out), 0);
        }
        /* At the end of mapped memory. */
        fake_mem_add(p.mem, 0x7f4400000000, 64);
        CHECK(strings_read(&p.py, 0x7f4400000000 + 56, &text) < 0);
        CHECK_STR(text, "untouched");
        fake_python_free(&p);
    }
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_many_tables);
    TEST_RUN(test_code);
    TEST_RUN(test_reuse);
    TEST_RUN(test_unreadable);
    TEST_RUN(test_unreadable_once);
    TEST_RUN(test_huge_table);
    TEST_RUN(test_large_table);
    TEST_RUN(test_positions);
    TEST_RUN(test_many_codes);
    TEST_RUN(test_too_many_codes);
    TEST_RUN(test_strings);
    TEST_RUN(test_strings_27);
    TEST_RUN(test_strings_long);
    TEST_RUN(test_strings_bad);
    return test_finish("test_code");
}
