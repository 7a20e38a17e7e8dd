/* Marks of libraries: who is vouched for, and who is stale. */
#include "test.h"
#include "unwind/marks.h"
#include "unwind/modules.h"

#include <string.h>

static unsigned char page[MODULE_PAGE];

static struct module make(addr_t at, unsigned char id)
{
    struct module mod = {.start = at, .id = {.len = 20}, .id_at = at + 0x200, .first_page = page};

    memset(mod.id.bytes, id, mod.id.len);
    return mod;
}

/* As if all had been read, each as `ids` says. */
static void read_all(struct marks *marks, const unsigned char *ids, size_t n)
{
    struct mem_span spans[MARKS_MAX];

    CHECK_INT(marks_spans(marks, spans), n);
    for (size_t i = 0; i < n; i++)
        memset(spans[i].buf, ids[i], spans[i].len);
}

static void test_vouched(void)
{
    struct marks marks = {0};
    struct module a = make(0x1000, 1), b = make(0x2000, 2), none = {0};
    struct mem_span spans[MARKS_MAX];

    marks_add(&marks, &b);
    marks_add(&marks, &a);
    marks_add(&marks, &b);    /* once only, and the newest now */
    marks_add(&marks, &none); /* of which nothing is known */
    CHECK(!marks_vouch(&marks, &a) && !marks_vouch(&marks, &none));
    CHECK_INT(marks_spans(&marks, spans), 2);
    CHECK(spans[0].addr == 0x1200 && spans[0].len == 20 && spans[1].addr == 0x2200);
    read_all(&marks, (const unsigned char[]){1, 2}, 2);
    marks_take(&marks, 2);
    CHECK(marks_vouch(&marks, &a) && marks_vouch(&marks, &b) && !a.stale && !b.stale);
    marks_spans(&marks, spans); /* the next sample */
    CHECK(!marks_vouch(&marks, &a) && !marks_vouch(&marks, &b));
}

/* Another library in its place; and one whose place could not be read. */
static void test_changed(void)
{
    struct marks marks = {0};
    struct module a = make(0x1000, 1), b = make(0x2000, 2), c = make(0x3000, 3);

    marks_add(&marks, &a);
    marks_add(&marks, &b);
    marks_add(&marks, &c);
    read_all(&marks, (const unsigned char[]){9, 2, 3}, 3);
    marks_take(&marks, 2);
    CHECK(a.stale && !marks_vouch(&marks, &a));
    CHECK(!b.stale && marks_vouch(&marks, &b));
    CHECK(c.stale && !marks_vouch(&marks, &c));
    read_all(&marks, (const unsigned char[]){1, 2}, 2);
}

/* There is room for a few: the last ones stay. */
static void test_ring(void)
{
    struct marks marks = {0};
    struct module mods[2 * MARKS_MAX];
    struct mem_span spans[MARKS_MAX];

    for (size_t i = 0; i < 2 * MARKS_MAX; i++) {
        mods[i] = make(0x1000 * (i + 1), (unsigned char)i);
        marks_add(&marks, &mods[i]);
    }
    CHECK_INT(marks_spans(&marks, spans), MARKS_MAX);
    for (size_t i = 0; i < MARKS_MAX; i++)
        CHECK(spans[i].addr == mods[MARKS_MAX + i].id_at);
}

/* Those that have gone are not looked at any more; those that take turns with others are, before they are met. */
static void test_update(void)
{
    struct marks marks = {0};
    struct module a = make(0x1000, 1), b = make(0x2000, 2), c = make(0x3000, 3), d = make(0x4000, 4);
    struct module *mods[] = {&b, &c, &d};
    struct mem_span spans[MARKS_MAX];

    marks_add(&marks, &a);
    marks_add(&marks, &b);
    c.shares = true;
    marks_update(&marks, mods, 3);
    CHECK_INT(marks_spans(&marks, spans), 2);
    CHECK(spans[0].addr == b.id_at && spans[1].addr == c.id_at);
    marks_update(&marks, mods, 0);
    CHECK_INT(marks_spans(&marks, spans), 0);
}

/* Without a build id it is known by its first page. */
static void test_page(void)
{
    struct marks marks = {0};
    struct module mod = {.start = 0x5000, .first_page = page};
    struct mem_span spans[MARKS_MAX];

    marks_add(&marks, &mod);
    CHECK_INT(marks_spans(&marks, spans), 1);
    CHECK(spans[0].addr == 0x5000 && spans[0].len == MODULE_PAGE);
    memcpy(spans[0].buf, page, MODULE_PAGE);
    marks_take(&marks, 1);
    CHECK(marks_vouch(&marks, &mod) && !mod.stale);
    marks_spans(&marks, spans);
    ((unsigned char *)spans[0].buf)[MODULE_PAGE - 1] ^= 1;
    marks_take(&marks, 1);
    CHECK(!marks_vouch(&marks, &mod) && mod.stale);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_vouched);
    TEST_RUN(test_changed);
    TEST_RUN(test_ring);
    TEST_RUN(test_update);
    TEST_RUN(test_page);
    return test_finish("test_marks");
}
