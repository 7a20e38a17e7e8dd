/* Identities of libraries: which are verified, and which are stale. */
#include "test.h"
#include "unwind/module_identity.h"
#include "unwind/modules.h"

#include <string.h>

static unsigned char page[MODULE_PAGE];

static struct module make(addr_t at, unsigned char id)
{
    struct module mod = {.start = at, .id = {.len = 20}, .id_addr = at + 0x200, .first_page = page};

    memset(mod.id.bytes, id, mod.id.len);
    return mod;
}

/* Behaves as if all had been read, each with the value in `ids`. */
static void read_all(struct module_identities *marks, const unsigned char *ids, size_t n)
{
    struct mem_span spans[MODULE_IDENTITY_MAX];

    CHECK_INT(module_identity_spans(marks, spans), n);
    for (size_t i = 0; i < n; i++)
        memset(spans[i].buf, ids[i], spans[i].len);
}

static void test_verified(void)
{
    struct module_identities marks = {0};
    struct module a = make(0x1000, 1), b = make(0x2000, 2), none = {0};
    struct mem_span spans[MODULE_IDENTITY_MAX];

    module_identity_add(&marks, &b);
    module_identity_add(&marks, &a);
    module_identity_add(&marks, &b);    /* once only, and now the newest */
    module_identity_add(&marks, &none); /* an unknown one */
    CHECK(!module_identity_is_confirmed(&marks, &a) && !module_identity_is_confirmed(&marks, &none));
    CHECK_INT(module_identity_spans(&marks, spans), 2);
    CHECK(spans[0].addr == 0x1200 && spans[0].len == 20 && spans[1].addr == 0x2200);
    read_all(&marks, (const unsigned char[]){1, 2}, 2);
    module_identity_check(&marks, 2);
    CHECK(module_identity_is_confirmed(&marks, &a) && module_identity_is_confirmed(&marks, &b) && !a.stale && !b.stale);
    module_identity_spans(&marks, spans); /* the next sample */
    CHECK(!module_identity_is_confirmed(&marks, &a) && !module_identity_is_confirmed(&marks, &b));
}

/* Another library at the same address; and one whose identity could not be read. */
static void test_changed(void)
{
    struct module_identities marks = {0};
    struct module a = make(0x1000, 1), b = make(0x2000, 2), c = make(0x3000, 3);

    module_identity_add(&marks, &a);
    module_identity_add(&marks, &b);
    module_identity_add(&marks, &c);
    read_all(&marks, (const unsigned char[]){9, 2, 3}, 3);
    module_identity_check(&marks, 2);
    CHECK(a.stale && !module_identity_is_confirmed(&marks, &a));
    CHECK(!b.stale && module_identity_is_confirmed(&marks, &b));
    CHECK(c.stale && !module_identity_is_confirmed(&marks, &c));
    read_all(&marks, (const unsigned char[]){1, 2}, 2);
}

/* The ring holds a few: the last ones stay. */
static void test_ring(void)
{
    struct module_identities marks = {0};
    struct module mods[2 * MODULE_IDENTITY_MAX];
    struct mem_span spans[MODULE_IDENTITY_MAX];

    for (size_t i = 0; i < 2 * MODULE_IDENTITY_MAX; i++) {
        mods[i] = make(0x1000 * (i + 1), (unsigned char)i);
        module_identity_add(&marks, &mods[i]);
    }
    CHECK_INT(module_identity_spans(&marks, spans), MODULE_IDENTITY_MAX);
    for (size_t i = 0; i < MODULE_IDENTITY_MAX; i++)
        CHECK(spans[i].addr == mods[MODULE_IDENTITY_MAX + i].id_addr);
}

/* Libraries that are gone are no longer read. Libraries that alternate with others are, before they are used. */
static void test_update(void)
{
    struct module_identities marks = {0};
    struct module a = make(0x1000, 1), b = make(0x2000, 2), c = make(0x3000, 3), d = make(0x4000, 4);
    struct module *mods[] = {&b, &c, &d};
    struct mem_span spans[MODULE_IDENTITY_MAX];

    module_identity_add(&marks, &a);
    module_identity_add(&marks, &b);
    c.address_reused = true;
    module_identity_update(&marks, mods, 3);
    CHECK_INT(module_identity_spans(&marks, spans), 2);
    CHECK(spans[0].addr == b.id_addr && spans[1].addr == c.id_addr);
    module_identity_update(&marks, mods, 0);
    CHECK_INT(module_identity_spans(&marks, spans), 0);
}

/* Without a build ID, the first page identifies the library. */
static void test_page(void)
{
    struct module_identities marks = {0};
    struct module mod = {.start = 0x5000, .first_page = page};
    struct mem_span spans[MODULE_IDENTITY_MAX];

    module_identity_add(&marks, &mod);
    CHECK_INT(module_identity_spans(&marks, spans), 1);
    CHECK(spans[0].addr == 0x5000 && spans[0].len == MODULE_PAGE);
    memcpy(spans[0].buf, page, MODULE_PAGE);
    module_identity_check(&marks, 1);
    CHECK(module_identity_is_confirmed(&marks, &mod) && !mod.stale);
    module_identity_spans(&marks, spans);
    ((unsigned char *)spans[0].buf)[MODULE_PAGE - 1] ^= 1;
    module_identity_check(&marks, 1);
    CHECK(!module_identity_is_confirmed(&marks, &mod) && mod.stale);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_verified);
    TEST_RUN(test_changed);
    TEST_RUN(test_ring);
    TEST_RUN(test_update);
    TEST_RUN(test_page);
    return test_finish("test_module_identity");
}
