/*
 * python/: threads, names, dicts, debug offsets, versions, and the search for an interpreter, on synthetic ones.
 */
#include "base/err.h"
#include "cost.h"
#include "fake_python.h"
#include "python/debug_offsets.h"
#include "python/detect.h"
#include "python/gil.h"
#include "python/names.h"
#include "python/objects.h"
#include "python/search.h"
#include "python/threads.h"
#include "test.h"

#include <unistd.h>

#define ROOM ((size_t)1 << 20)

#define UNKNOWN_MINOR (DEBUG_OFFSETS_FIRST_MINOR + DEBUG_OFFSETS_VERSIONS) /* newer than any supported version */

/* These tests run on all rows of layouts.c. */
static void test_versions(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++)
        CHECK(layout_of(fake_versions[i].major, fake_versions[i].minor) != NULL);
    CHECK_INT(fake_versions[N_VERSIONS - 1].minor, UNKNOWN_MINOR - 1);
    CHECK(layout_of(3, UNKNOWN_MINOR) == NULL);
}

static void test_threads(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fake_python p;
        struct py_threads threads = {0};
        struct fake_thread t[3];
        addr_t interp[2];

        fake_python_init_nth(&p, i, ROOM);
        CHECK_INT(threads_read(&p.py, &threads), ERR_STARTING);
        interp[0] = fake_interp_add(&p);
        CHECK_INT(threads_read(&p.py, &threads), ERR_STARTING);
        t[0] = fake_thread_add(&p, interp[0], 0x7000001, 11);
        t[1] = fake_thread_add(&p, interp[0], 0x7000002, 12);
        interp[1] = fake_interp_add(&p); /* a subinterpreter comes before the main one */
        t[2] = fake_thread_add(&p, interp[1], 0x7000003, 13);
        CHECK_INT(threads_read(&p.py, &threads), 0);
        CHECK_INT(threads.n, 3);
        CHECK(threads.items[0].tstate == t[2].tstate && threads.items[0].interp == interp[1]);
        CHECK(threads.items[1].tstate == t[1].tstate && threads.items[2].tstate == t[0].tstate);
        CHECK_INT(threads.items[2].thread_id, 0x7000001);
        CHECK_INT(threads.items[2].native_id, p.py.layout.ts_native_id == NO ? 0 : 11);
        CHECK(threads_heads_same(&p.py, &threads));
        fake_thread_add(&p, interp[0], 0x7000004, 14);
        CHECK(!threads_heads_same(&p.py, &threads));
        threads_free(&threads);
        fake_python_free(&p);
    }
}

static void test_threads_bad(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fake_python p;
        struct py_threads threads = {0};
        struct fake_thread a, b;
        addr_t interp, next;
        double begin = cost_seconds();

        fake_python_init_nth(&p, i, ROOM);
        interp = fake_interp_add(&p);
        a = fake_thread_add(&p, interp, 1, 11);
        b = fake_thread_add(&p, interp, 2, 12);
        next = (addr_t)p.py.layout.ts_next;
        fake_mem_put(p.mem, a.tstate + next, b.tstate); /* an endless cycle */
        CHECK_INT(threads_read(&p.py, &threads), ERR_CYCLE);
        fake_mem_put(p.mem, a.tstate + next, a.tstate);
        CHECK_INT(threads_read(&p.py, &threads), ERR_CYCLE);
        fake_mem_put(p.mem, a.tstate + next, 0x10);
        CHECK_INT(threads_read(&p.py, &threads), ERR_TORN);
        fake_mem_put(p.mem, a.tstate + next, 0);
        fake_mem_put(p.mem, interp + (addr_t)p.py.layout.in_next, interp);
        CHECK_INT(threads_read(&p.py, &threads), ERR_CYCLE);
        fake_mem_put(p.mem, interp + (addr_t)p.py.layout.in_next, 0);
        fake_mem_put(p.mem, a.tstate + (addr_t)p.py.layout.ts_interp, 0x10); /* of another thread */
        CHECK_INT(threads_read(&p.py, &threads), ERR_TORN);
        fake_mem_put(p.mem, p.interp_head, 0x10);
        CHECK_INT(threads_read(&p.py, &threads), ERR_TORN);
        CHECK(cost_seconds() - begin < COST_MAX);
        threads_free(&threads);
        fake_python_free(&p);
    }
}

static addr_t gil_start(const struct fake_python *p, const struct fake_thread *t)
{
    const struct layout *l = &p->py.layout;

    return l->in_gil == NO ? p->runtime + (addr_t)l->rt_gil_locked
                           : fake_mem_get(p->mem, t->interp + (addr_t)l->in_gil) + (addr_t)l->gil_locked;
}

/* 3.7 and later: the condition variables and mutexes that follow `locked` and `switch_number`. */
static void test_gil_locks(void)
{
    for (size_t i = fake_version_index(3, 7); i < N_VERSIONS; i++) {
        struct fake_python p;
        struct fake_thread t;
        struct gil_locks locks;
        addr_t start, size = 2 * (48 + 40);

        fake_python_init_nth(&p, i, ROOM);
        t = fake_thread_add(&p, fake_interp_add(&p), 1, 11);
        start = gil_start(&p, &t) + 16;
        CHECK(gil_find(&p.py, t.interp, &locks));
        CHECK_INT(locks.cond, start);
        for (addr_t at = 0; at < size; at += 4)
            CHECK(gil_has_futex(&p.py, &locks, start + at, FAKE_C));
        CHECK(!gil_has_futex(&p.py, &locks, start - 4, FAKE_C));
        CHECK(!gil_has_futex(&p.py, &locks, start + size, FAKE_C));
        CHECK(!gil_has_futex(&p.py, &locks, 0, FAKE_C));
        if (p.py.layout.in_gil != NO) {
            fake_mem_put(p.mem, t.interp + (addr_t)p.py.layout.in_gil, 0);
            CHECK(!gil_find(&p.py, t.interp, &locks));
        }
        fake_python_free(&p);
    }
}

/* 2.7 and 3.6: static variables, which only .symtab has. */
static void test_gil_variables(void)
{
    struct fake_python p;
    struct gil_locks locks;
    addr_t lock;

    fake_python_init(&p, 3, 6, ROOM);
    CHECK(!gil_find(&p.py, 0, &locks));
    p.py.gil = (struct gil_locks){.cond = 0x5000, .mutex = 0x6000}; /* the compiler chooses their order */
    CHECK(gil_find(&p.py, 0, &locks));
    CHECK(gil_has_futex(&p.py, &locks, 0x5000 + 44, FAKE_C) && gil_has_futex(&p.py, &locks, 0x6000, FAKE_C));
    CHECK(!gil_has_futex(&p.py, &locks, 0x5000 + 48, FAKE_C) && !gil_has_futex(&p.py, &locks, 0, FAKE_C));
    fake_python_free(&p);

    fake_python_init(&p, 2, 7, ROOM);
    CHECK(!gil_find(&p.py, 0, &locks));
    lock = p.py.interpreter_lock = fake_alloc(&p, 8);
    CHECK(!gil_find(&p.py, 0, &locks)); /* no thread has been started */
    fake_mem_put(p.mem, lock, 0x5000);
    CHECK(gil_find(&p.py, 0, &locks));
    CHECK(gil_has_futex(&p.py, &locks, 0x5000, FAKE_C));
    CHECK(!gil_has_futex(&p.py, &locks, 0x5030, FAKE_C)); /* the next lock in the heap */
    fake_python_free(&p);
}

/* musl: a list of waiters, each on the stack of its thread. */
static void test_gil_musl(void)
{
    struct fake_python p;
    addr_t cond, stack;
    struct gil_locks locks;

    fake_python_init(&p, 3, 12, ROOM);
    cond = fake_alloc(&p, 48);
    stack = fake_alloc(&p, 256);
    locks = (struct gil_locks){.cond = cond};
    CHECK(!gil_has_futex(&p.py, &locks, stack + 64 + 20, stack));
    fake_mem_put(p.mem, cond + 8, stack + 128);
    fake_mem_put(p.mem, stack + 128 + 8, stack + 64);
    CHECK(gil_has_futex(&p.py, &locks, stack + 128 + 20, stack));
    CHECK(gil_has_futex(&p.py, &locks, stack + 64 + 20, stack));
    CHECK(!gil_has_futex(&p.py, &locks, stack + 64 + 24, stack));      /* another word of the stack */
    CHECK(!gil_has_futex(&p.py, &locks, stack + 64 + 20, stack + 96)); /* of another thread */
    fake_mem_put(p.mem, stack + 64 + 8, stack + 128);                  /* an endless cycle */
    CHECK(!gil_has_futex(&p.py, &locks, stack + 20, stack));
    fake_mem_put(p.mem, stack + 64 + 8, 0x10);
    CHECK(!gil_has_futex(&p.py, &locks, stack + 20, stack));
    fake_python_free(&p);
}

static void test_gil(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fake_python p;
        struct fake_thread t;

        fake_python_init_nth(&p, i, ROOM);
        t = fake_thread_add(&p, fake_interp_add(&p), 1, 11);
        CHECK_INT(threads_gil_holder(&p.py, t.interp), 0);
        fake_gil_take(&p, &t, true);
        CHECK_INT(threads_gil_holder(&p.py, t.interp), t.tstate);
        fake_gil_take(&p, &t, false); /* the last holder remains after a release */
        CHECK_INT(threads_gil_holder(&p.py, t.interp), 0);
        if (p.py.layout.in_gil != NO) {
            fake_mem_put(p.mem, t.interp + (addr_t)p.py.layout.in_gil, 0x10);
            CHECK_INT(threads_gil_holder(&p.py, t.interp), 0);
        }
        fake_python_free(&p);
    }
}

/* Up to 3.10: the kernel's thread ID is somewhere in the C library's struct. */
static void test_tid_offset(void)
{
    static const pid_t tids[] = {4000, 4001, 4002};
    static const int offsets[] = {720, 56, 1016};
    struct fake_python p;
    struct py_threads threads = {0};
    addr_t interp, ids[3];

    for (size_t k = 0; k < 3; k++) {
        fake_python_init(&p, 3, 8, ROOM);
        interp = fake_interp_add(&p);
        for (size_t i = 0; i < 3; i++) {
            ids[i] = fake_alloc(&p, 1024);
            fake_mem_put_bytes(p.mem, ids[i] + 8, &tids[0], 4); /* the same in all: not the ID */
            fake_mem_put_bytes(p.mem, ids[i] + (addr_t)offsets[k], &tids[i], 4);
            fake_thread_add(&p, interp, ids[i], 0);
        }
        CHECK_INT(threads_read(&p.py, &threads), 0);
        CHECK_INT(threads_find_tid_offset(&p.py, &threads, tids, 3), offsets[k]);
        CHECK_INT(threads_read_tid(&p.py, ids[2], offsets[k]), 4002);
        CHECK_INT(threads_read_tid(&p.py, ids[2], NO), 0);
        CHECK_INT(threads_read_tid(&p.py, 0x10, offsets[k]), 0);
        CHECK_INT(threads_find_tid_offset(&p.py, &threads, tids, 0), NO);
        threads_free(&threads);
        fake_python_free(&p);
    }
}

static void test_names(void)
{
    static const uint64_t ids[] = {0x7f0000000001, 0x3fffffff, 0x40000000, 0x7fffffffffffffff};
    static const char *const names[] = {"MainThread", "worker <1>", "Thread-2 (f)", ""};

    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fake_python p;
        struct thread_names found = {0};
        addr_t interp[2];

        fake_python_init_nth(&p, i, ROOM);
        interp[0] = fake_interp_add(&p);
        interp[1] = fake_interp_add(&p);
        CHECK_INT(names_read(&p.py, interp[0], &found), 0); /* no modules yet */
        CHECK_INT(found.n, 0);
        CHECK(names_find(&found, interp[0], 1) == NULL);
        fake_threading(&p, interp[0], ids, names, 4);
        fake_threading(&p, interp[1], ids, names + 1, 1);
        CHECK_INT(names_read(&p.py, interp[1], &found), 0);
        CHECK_INT(names_read(&p.py, interp[0], &found), 0);
        names_sort(&found);
        CHECK_INT(found.n, 5);
        for (size_t k = 0; k < 4; k++)
            CHECK_STR(names_find(&found, interp[0], ids[k]), names[k]);
        CHECK_STR(names_find(&found, interp[1], ids[0]), names[1]);
        CHECK(names_find(&found, interp[1], ids[1]) == NULL);
        free(found.items);
        fake_python_free(&p);
    }
}

/* Only of some threads, without a search for `_active`: the modules may be gone. */
static void test_names_wanted(void)
{
    static const uint64_t ids[] = {11, 12, 13}, wanted[] = {12, 14};
    static const char *const names[] = {"a", "b", "c"};
    struct fake_python p;
    struct thread_names found = {0};
    addr_t interp;

    fake_python_init_nth(&p, N_VERSIONS - 1, ROOM);
    interp = fake_interp_add(&p);
    fake_threading(&p, interp, ids, names, 3);
    for (int known = 0; known < 2; known++) {
        found.n = 0;
        found.wanted = wanted;
        found.n_wanted = 2;
        CHECK_INT(names_read(&p.py, interp, &found), 0);
        CHECK_INT(found.n, 1);
        CHECK_STR(found.items[0].name, "b");
        fake_mem_put(p.mem, interp + (addr_t)p.py.layout.in_modules, 0);
    }
    found.n = 0;
    found.wanted = NULL;
    CHECK_INT(names_read(&p.py, interp, &found), 0);
    CHECK_INT(found.n, 0);
    free(found.items);
    fake_python_free(&p);
}

/* Expensive dicts: huge ones, in which every entry leads to a huge dict. */
static void test_names_slow(void)
{
    const size_t n = 120000;
    struct fake_python p;
    struct thread_names found = {0};
    addr_t interp, *keys = malloc(n * sizeof(*keys)), *values = malloc(n * sizeof(*values)), dict, type, object;
    addr_t module, module_name, active_name;
    double begin;

    if (!keys || !values)
        abort();
    fake_python_init(&p, 3, 8, 64 << 20);
    interp = fake_interp_add(&p);
    for (size_t i = 0; i < n; i++) {
        keys[i] = i ? keys[0] : fake_str(&p, "_NAME");
        values[i] = p.none;
    }
    dict = fake_dict(&p, keys, values, n, true); /* has no "_name" */
    type = fake_alloc(&p, 1024);
    fake_mem_put(p.mem, type + (addr_t)p.py.layout.ty_dictoffset, 16);
    object = fake_alloc(&p, 64);
    fake_mem_put(p.mem, object + 8, type);
    fake_mem_put(p.mem, object + 16, dict);
    for (size_t i = 0; i < n; i++) {
        keys[i] = i ? keys[0] : fake_int(&p, 7);
        values[i] = object;
    }
    dict = fake_dict(&p, keys, values, n, false);
    module = fake_alloc(&p, 64);
    active_name = fake_str(&p, "_active");
    module_name = fake_str(&p, "threading");
    fake_mem_put(p.mem, module + 16, fake_dict(&p, &active_name, &dict, 1, true));
    fake_mem_put(p.mem, interp + (addr_t)p.py.layout.in_modules, fake_dict(&p, &module_name, &module, 1, true));
    begin = cost_seconds();
    CHECK_INT(names_read(&p.py, interp, &found), 0);
    CHECK(cost_seconds() - begin < COST_MAX);
    free(found.items);
    free(keys);
    free(values);
    fake_python_free(&p);
}

static void test_objects(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        static const uint64_t numbers[] = {0, 4, 0x3fffffff, 0x40000000, 0x7f1234567890, 1ull << 60, INT64_MAX};
        struct fake_python p;
        addr_t keys[300], values[300], dict, value = 77;
        uint64_t number;
        char name[16];

        fake_python_init_nth(&p, i, ROOM);
        for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++) {
            if (p.py.major == 2 && numbers[k] < 4)
                continue;
            CHECK_INT(objects_int_read(&p.py, fake_int(&p, numbers[k]), &number), 0);
            CHECK_INT(number, numbers[k]);
        }
        for (size_t k = 0; k < 300; k++) { /* one-byte indices, then two-byte ones */
            snprintf(name, sizeof(name), "key%zu", k);
            keys[k] = fake_str(&p, name);
            values[k] = 0x1000 + k;
        }
        for (size_t n = 1; n <= 300; n = n * 3 + 1) {
            dict = fake_dict(&p, keys, values, n, n & 1);
            snprintf(name, sizeof(name), "key%zu", n - 1);
            CHECK_INT(objects_dict_get(&p.py, dict, name, &value), 0);
            CHECK_INT(value, 0x1000 + n - 1);
            CHECK(objects_dict_get(&p.py, dict, "nowhere", &value) < 0);
            CHECK_INT(value, 0x1000 + n - 1);
        }
        CHECK_INT(objects_attr_get(&p.py, fake_thread_object(&p, "x"), "_daemonic", &value), 0);
        CHECK_INT(value, p.none);
        CHECK(objects_attr_get(&p.py, 0x10, "_name", &value) < 0);
        CHECK(objects_dict_get(&p.py, 0x10, "x", &value) < 0);
        CHECK(objects_dict_get(&p.py, p.none, "x", &value) < 0);
        CHECK(objects_int_read(&p.py, 0x10, &number) < 0);
        fake_python_free(&p);
    }
}

static void test_parse_version(void)
{
    static const struct {
        const char *text;
        bool ok;
        int major, minor, patch;
        const char *suffix;
    } rows[] = {
        {"3.9.18 (main, Jan", true, 3, 9, 18, ""},
        {"2.7.18 (default", true, 2, 7, 18, ""},
        {"3.8.0rc1 (", true, 3, 8, 0, "rc1"},
        {"3.13.0b2 (", true, 3, 13, 0, "b2"},
        {"3.9.18+ (heads", true, 3, 9, 18, ""},
        {"3.15.0a1+ (x", true, 3, 15, 0, "a1"},
        {"3.9.18", false, 0, 0, 0, ""},
        {"3.9.18 ", false, 0, 0, 0, ""},
        {"3.9 (", false, 0, 0, 0, ""},
        {"3.9. (", false, 0, 0, 0, ""},
        {"3..1 (", false, 0, 0, 0, ""},
        {"4.0.0 (", false, 0, 0, 0, ""},
        {"2.6.9 (", false, 0, 0, 0, ""},
        {"3.9.18(", false, 0, 0, 0, ""},
        {".9.18 (", false, 0, 0, 0, ""},
        {"", false, 0, 0, 0, ""},
        {"3.9.18rc1rc2rc3 (", false, 0, 0, 0, ""},
        {"3.9.18 [", false, 0, 0, 0, ""},
        {"3.9999999999999.1 (", false, 0, 0, 0, ""},
        {"99999999999.1.1 (", false, 0, 0, 0, ""},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t len = strlen(rows[i].text);
        char *copy = malloc(len + 1);
        struct debug_version v;

        if (!copy)
            abort();
        memcpy(copy, rows[i].text, len);
        for (size_t cut = 0; cut < len; cut++) { /* ASan detects a read past the end */
            char *part = malloc(cut + 1);

            if (!part)
                abort();
            memcpy(part, copy, cut);
            search_parse_version(part, cut, &v);
            free(part);
        }
        if (CHECK_INT(search_parse_version(copy, len, &v), rows[i].ok) && rows[i].ok) {
            CHECK(v.major == rows[i].major && v.minor == rows[i].minor && v.patch == rows[i].patch);
            CHECK_STR(v.suffix, rows[i].suffix);
            CHECK_INT(v.final, rows[i].suffix[0] == '\0');
        }
        free(copy);
    }
}

static void test_hex_version(void)
{
    unsigned char bytes[24] = DEBUG_OFFSETS_COOKIE;
    uint64_t hex = 0x030e0af0, free_threaded = 1;
    struct debug_version v;

    memcpy(bytes + 8, &hex, 8);
    CHECK(debug_offsets_version(bytes, 24, &v));
    CHECK(v.major == 3 && v.minor == 14 && v.patch == 10 && v.final && !v.free_threaded);
    CHECK_STR(v.suffix, "");
    CHECK(!debug_offsets_version(bytes, 23, &v));
    memcpy(bytes + 16, &free_threaded, 8);
    CHECK(debug_offsets_version(bytes, 24, &v) && v.free_threaded);
    debug_offsets_split_version(0x030f00b3, &v);
    CHECK(!v.final && strcmp(v.suffix, "b3") == 0);
    debug_offsets_split_version(0x030f00a1, &v);
    CHECK(!v.final && strcmp(v.suffix, "a1") == 0);
    debug_offsets_split_version(0x030f00cf, &v);
    CHECK(!v.final && strcmp(v.suffix, "rc15") == 0);
    debug_offsets_split_version(0x030f0011, &v);
    CHECK(!v.final);
    bytes[0]++;
    CHECK(!debug_offsets_version(bytes, 24, &v));
    bytes[0]--;
    for (size_t i = 0; i < 3; i++) {
        static const uint64_t bad[] = {0x040000f0, 0x020712f0, 0x1030e0af0};

        memcpy(bytes + 8, &bad[i], 8);
        CHECK(!debug_offsets_version(bytes, 24, &v));
    }
}

/* The debug offsets of a version, from the synthetic runtime. */
static void debug_offset_bytes(int minor, unsigned char bytes[DEBUG_OFFSETS_BYTES])
{
    struct fake_python p;

    fake_python_init(&p, 3, minor, ROOM);
    memcpy(bytes, fake_mem_at(p.mem, p.runtime, DEBUG_OFFSETS_BYTES), DEBUG_OFFSETS_BYTES);
    fake_python_free(&p);
}

static void test_offsets_apply(void)
{
    for (int minor = DEBUG_OFFSETS_FIRST_MINOR; minor < UNKNOWN_MINOR; minor++) {
        unsigned char bytes[DEBUG_OFFSETS_BYTES];
        const struct debug_offset *told;
        struct layout l = *layout_of(3, minor), before = l;

        debug_offset_bytes(minor, bytes);
        CHECK_INT(debug_offsets_apply(bytes, sizeof(bytes), &l), 0);
        CHECK(memcmp(&l, &before, sizeof(l)) == 0); /* they equal the row */
        for (size_t i = 0; (told = debug_offset_nth(i)); i++) {
            static const uint64_t bad[] = {UINT64_MAX, 1ull << 63, 1ull << 32, 5 << 20};
            uint16_t at = told->at[minor - DEBUG_OFFSETS_FIRST_MINOR];
            unsigned char kept[8];

            memcpy(kept, bytes + at, 8);
            for (size_t k = 0; at && k < 4; k++) {
                memcpy(bytes + at, &bad[k], 8);
                CHECK_INT(debug_offsets_apply(bytes, sizeof(bytes), &l), ERR_BOUNDS);
            }
            CHECK(memcmp(&l, &before, sizeof(l)) == 0);
            memcpy(bytes + at, kept, 8);
        }
        for (size_t len = 0; len < 530; len += 8) /* too short for all of them */
            CHECK_INT(debug_offsets_apply(bytes, len, &l), ERR_BOUNDS);
    }
    {
        struct layout l = *layout_of(3, DEBUG_OFFSETS_FIRST_MINOR - 1);
        unsigned char bytes[DEBUG_OFFSETS_BYTES] = {0};

        CHECK_INT(debug_offsets_apply(bytes, sizeof(bytes), &l), ERR_VERSION);
        l.minor = UNKNOWN_MINOR;
        CHECK_INT(debug_offsets_apply(bytes, sizeof(bytes), &l), ERR_VERSION);
    }
}

/* Sizes that would put a field past the end of what is read. */
static void test_offsets_sizes(void)
{
    static const struct {
        size_t field;
        uint64_t value;
    } rows[] = {
        {offsetof(struct layout, fr_size), 0},        {offsetof(struct layout, fr_size), 513},
        {offsetof(struct layout, fr_code), 81},       {offsetof(struct layout, fr_owner), 88},
        {offsetof(struct layout, fr_instr), 88},      {offsetof(struct layout, co_filename), 505},
        {offsetof(struct layout, co_firstline), 600}, {offsetof(struct layout, str_state), 64},
        {offsetof(struct layout, str_length), 25},    {offsetof(struct layout, ts_frame), 1024},
        {offsetof(struct layout, ts_chunk), 1024},    {offsetof(struct layout, ts_thread_id), 4000},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned char bytes[DEBUG_OFFSETS_BYTES];
        struct layout l = *layout_of(3, 14);
        const struct debug_offset *told;

        debug_offset_bytes(14, bytes);
        for (size_t k = 0; (told = debug_offset_nth(k)); k++)
            if (told->field == rows[i].field)
                memcpy(bytes + told->at[1], &rows[i].value, 8);
        CHECK_INT(debug_offsets_apply(bytes, sizeof(bytes), &l), ERR_BOUNDS);
    }
}

static int detect_with_note(struct fake_python *p, struct python *ret, struct err_note *note)
{
    return detect_python(&(struct files){.pid = getpid()}, &p->mem->mem, &p->maps, p->py.names, ret, note);
}

static int detect(struct fake_python *p, struct python *ret)
{
    return detect_with_note(p, ret, NULL);
}

/* Found by its symbols, and without any. */
static void test_detect(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fake_python p;
        struct python found;

        fake_python_init_nth(&p, i, ROOM);
        CHECK_INT(detect(&p, &found), ERR_STARTING);
        fake_thread_add(&p, fake_interp_add(&p), fake_pthread(&p, 11), 11);
        CHECK_INT(detect(&p, &found), 0);
        CHECK(found.major == p.py.major && found.minor == p.py.minor && found.patch == p.py.patch);
        CHECK_INT(found.interp_head, p.py.interp_head);
        CHECK_INT(found.runtime, p.py.runtime);
        CHECK_INT(found.current_thread, p.py.current_thread);
        CHECK(memcmp(&found.layout, &p.py.layout, sizeof(found.layout)) == 0);
        memset(fake_mem_at(p.mem, FAKE_IMAGE + 232, 512), 0, 512); /* the dynamic symbols */
        CHECK_INT(detect(&p, &found), 0);
        CHECK(found.major == p.py.major && found.minor == p.py.minor);
        CHECK_INT(found.interp_head, p.py.interp_head);
        CHECK_INT(found.runtime, p.py.runtime);
        memset(fake_mem_at(p.mem, FAKE_IMAGE, 4), 0, 4); /* no image left */
        CHECK_INT(detect(&p, &found), ERR_NOT_PYTHON);
        fake_python_free(&p);
    }
}

/* Versions and builds that are refused rather than guessed. */
static void test_detect_refused(void)
{
    static const uint64_t refused[] = {0x030f00b1, 0x030e00a3, 0x03ff00f0};
    static const char *const suffixes[] = {"b1", "a3", ""};
    struct fake_python p;
    struct python found;
    struct err_note note = {0};

    for (size_t i = 0; i < 3; i++) {
        fake_python_init(&p, 3, 15, ROOM);
        fake_thread_add(&p, fake_interp_add(&p), 1, 11);
        fake_mem_put(p.mem, p.runtime + 8, refused[i]);
        CHECK_INT(detect_with_note(&p, &found, &note), ERR_VERSION);
        CHECK_INT(note.facts.reason, REASON_VERSION);
        CHECK(note.facts.version[0] == 3 && note.facts.version[1] == (int)(refused[i] >> 16 & 0xff));
        CHECK_STR(note.facts.other, suffixes[i]);
        fake_python_free(&p);
    }
    fake_python_init(&p, 3, 14, ROOM);
    fake_thread_add(&p, fake_interp_add(&p), 1, 11);
    fake_mem_put(p.mem, p.runtime + 16, 1); /* free-threaded */
    CHECK_INT(detect_with_note(&p, &found, &note), ERR_VERSION);
    CHECK_INT(note.facts.reason, REASON_FREE_THREADED);
    fake_mem_put(p.mem, p.runtime + 16, 0);
    fake_mem_put(p.mem, p.runtime + 8, 0x030e00c1); /* a release candidate counts as final */
    CHECK_INT(detect(&p, &found), 0);
    CHECK_STR(found.suffix, "rc1");
    fake_mem_put(p.mem, p.runtime + 40, 1ull << 40);
    CHECK_INT(detect(&p, &found), ERR_BOUNDS);
    fake_python_free(&p);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_versions);
    TEST_RUN(test_threads);
    TEST_RUN(test_threads_bad);
    TEST_RUN(test_gil);
    TEST_RUN(test_gil_locks);
    TEST_RUN(test_gil_variables);
    TEST_RUN(test_gil_musl);
    TEST_RUN(test_tid_offset);
    TEST_RUN(test_names);
    TEST_RUN(test_names_wanted);
    TEST_RUN(test_objects);
    TEST_RUN(test_parse_version);
    TEST_RUN(test_hex_version);
    TEST_RUN(test_offsets_apply);
    TEST_RUN(test_offsets_sizes);
    TEST_RUN(test_detect);
    TEST_RUN(test_detect_refused);
    TEST_RUN(test_names_slow);
    return test_finish("test_python");
}
