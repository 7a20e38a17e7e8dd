/*
 * Packages that an interpreter has imported, in the sys.modules of a synthetic CPython of each version, sound and damaged.
 */
#include "base/clock.h"
#include "base/grow.h"
#include "cost.h"
#include "fake_python.h"
#include "python/packages.h"
#include "sample/shorten.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#define N 6

static const char *const names[N] = {"sys", "app", "app.core", "other.core", "space", "app.core.run"};
static const char *const file_names[N] = {
    NULL, "/net/lib/app/__init__.py", "/net/lib/app/core/__init__.py", "/net/else/core/__init__.py",
    NULL, "/net/lib/app/core/run.py"};

struct fixture {
    struct fake_python p;
    struct py_threads threads;
    addr_t interp, modules;
};

static addr_t add_module(struct fake_python *p, const char *name, const char *file)
{
    addr_t keys[2] = {fake_str(p, "__name__"), fake_str(p, "__file__")};
    addr_t values[2] = {fake_str(p, name), p->none}, module = fake_alloc(p, 64);
    char text[256];

    if (file) {
        snprintf(text, sizeof(text), "%s%s", file, p->py.major == 2 ? "c" : "");
        values[1] = fake_str(p, text);
    }
    fake_mem_put(p->mem, module + 16, fake_dict(p, keys, values, file ? 2 : 1, true));
    return module;
}

static void build(struct fixture *f, size_t version)
{
    addr_t keys[N], values[N];

    *f = (struct fixture){0};
    fake_python_init_nth(&f->p, version, 1 << 18);
    f->interp = fake_interp_add(&f->p);
    fake_thread_add(&f->p, f->interp, fake_pthread(&f->p, 100), 100);
    for (size_t i = 0; i < N; i++) {
        keys[i] = fake_str(&f->p, names[i]);
        values[i] = add_module(&f->p, names[i], file_names[i]);
    }
    f->modules = fake_dict(&f->p, keys, values, N, true);
    fake_mem_put(f->p.mem, f->interp + (addr_t)f->p.py.layout.in_modules, f->modules);
    CHECK_INT(threads_read(&f->p.py, &f->threads), 0);
}

static void destroy(struct fixture *f)
{
    threads_free(&f->threads);
    fake_python_free(&f->p);
}

static bool have(struct packages *p, const struct fixture *f, const char *path)
{
    return packages_have(p, &f->p.py, path, strlen(path));
}

static void test_have(void)
{
    for (size_t v = 0; v < N_VERSIONS; v++) {
        struct packages p = {0};
        struct fixture f;

        build(&f, v);
        CHECK(!have(&p, &f, "/net/lib/app")); /* not listed yet */
        packages_update(&p, &f.p.py, &f.threads);
        CHECK_INT(p.n, N);
        CHECK(have(&p, &f, "/net/lib/app") && have(&p, &f, "/net/lib/app/core") && have(&p, &f, "/net/else/core"));
        CHECK(!have(&p, &f, "/net/lib") && !have(&p, &f, "/net/lib/core") && !have(&p, &f, "/net/else/app"));
        CHECK(!have(&p, &f, "/net/space") && !have(&p, &f, "") && !have(&p, &f, "/") && !have(&p, &f, "/net/lib/ap"));
        CHECK(!have(&p, &f, "/net/lib/app/core/run.py"));
        packages_free(&p);
        destroy(&f);
    }
}

/* A file on a file system that may stop answering is not looked at, and its name is still short. */
static const char *short_name(const struct fixture *f, const char *filename)
{
    struct mount_place places[] = {{(char *)(uintptr_t) "/", true}, {(char *)(uintptr_t) "/net", false}};
    struct short_names s = {.mounts = {.items = places, .n = 2}, .mounts_ns = clock_now_ns()};
    struct files files = {.root = -1};
    struct short_names_from from = {.names = f->p.py.names, .files = &files, .py = &f->p.py, .threads = &f->threads};
    const char *result = short_names_get(&s, &from, filename);

    s.mounts = (struct mount_list){0};
    short_names_free(&s);
    return result;
}

static void test_short_names(void)
{
    for (size_t v = 0; v < N_VERSIONS; v++) {
        struct fixture f;

        build(&f, v);
        CHECK_STR(short_name(&f, "/net/lib/app/core/run.py"), "app/core/run.py");
        CHECK_STR(short_name(&f, "/net/lib/app/__init__.py"), "app/__init__.py");
        CHECK_STR(short_name(&f, "/net/lib/space/a.py"), "a.py");
        CHECK_STR(short_name(&f, "/net/x.py"), "x.py");
        destroy(&f);
    }
}

static size_t read_all(const struct fixture *f)
{
    struct packages p = {0};
    size_t found;

    packages_update(&p, &f->p.py, &f->threads);
    found = have(&p, f, "/net/lib/app") ? 1 : 0;
    found += have(&p, f, "/net/lib/app/core") ? 1 : 0;
    found += have(&p, f, "/net/else/core") ? 1 : 0;
    packages_free(&p);
    return found;
}

/* Damages every word that is read, one by one. */
static void damage(const struct fixture *f)
{
    struct fake_mem *m = f->p.mem;

    m->watch = true;
    CHECK_INT(read_all(f), 3);
    m->watch = false;
    for (size_t i = 0; i < m->n; i++)
        for (size_t w = 0; w < m->regions[i].len / 8; w++) {
            addr_t at = m->regions[i].start + 8 * w;
            const uint64_t values[] = {0, 1, UINT64_MAX, 1ull << 31, 1ull << 63, at, f->modules},
                           before = fake_mem_get(m, at);

            for (size_t k = 0; m->regions[i].seen[w] && k < sizeof(values) / sizeof(values[0]); k++) {
                fake_mem_put(m, at, values[k]);
                CHECK(read_all(f) <= 3);
                fake_mem_put(m, at, before);
            }
        }
    CHECK_INT(read_all(f), 3);
}

static void test_damaged(void)
{
    double begin = cost_seconds();

    for (size_t v = 0; v < N_VERSIONS; v++) {
        struct fixture f;

        build(&f, v);
        damage(&f);
        destroy(&f);
    }
    CHECK(cost_seconds() - begin < COST_MAX);
}

/* Many modules that claim to be the package sought, each with an endless dict: the search gives up. */
static void test_slow(void)
{
    double begin = cost_seconds();
    struct packages p = {0};
    struct fixture f;

    build(&f, fake_version_index(3, 12));
    packages_update(&p, &f.p.py, &f.threads);
    for (size_t i = 0; i < 20000; i++) {
        struct package_module item = p.items[2];

        if (!CHECK(grow_array((void **)&p.items, &p.cap, p.n + 1, sizeof(item)) == 0))
            break;
        p.items[p.n++] = item;
    }
    for (size_t i = 0; i < 20000; i++)
        have(&p, &f, "/net/third/core");
    CHECK(cost_seconds() - begin < COST_MAX);
    packages_free(&p);
    destroy(&f);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_have);
    TEST_RUN(test_short_names);
    TEST_RUN(test_damaged);
    TEST_RUN(test_slow);
    return test_finish("test_packages");
}
