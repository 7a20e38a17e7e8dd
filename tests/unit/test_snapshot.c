/*
 * Reading ahead: answers are what the target holds, in one call where the questions come again, and never older than
 * the reading's own first call.
 */
#include "snapshot/snapshot_private.h"
#include "test.h"

#include <string.h>

#define WORDS 512

struct counting {
    struct mem mem;
    uint64_t words[WORDS];
    size_t calls, spans;
    size_t unreadable; /* a word; 0: none */
};

static size_t counting_readv(struct mem *m, const struct mem_span *spans, size_t n)
{
    struct counting *c = (struct counting *)m;

    c->calls++;
    c->spans += n;
    for (size_t i = 0; i < n; i++) {
        if (spans[i].addr + spans[i].len > sizeof(c->words) || (c->unreadable && spans[i].addr == c->unreadable * 8))
            return i;
        memcpy(spans[i].buf, (unsigned char *)c->words + spans[i].addr, spans[i].len);
    }
    return n;
}

static struct mem *counting_close(struct mem *m)
{
    (void)m;
    return NULL;
}

static const struct mem_ops counting_ops = {.readv = counting_readv, .close = counting_close};

static struct snapshot *make(struct counting *c)
{
    struct snapshot *s = NULL;

    *c = (struct counting){.mem = {&counting_ops}};
    for (size_t i = 0; i < WORDS; i++)
        c->words[i] = i + 1;
    CHECK_INT(snapshot_new(&c->mem, true, &s), 0);
    return s;
}

static uint64_t word(struct snapshot *s, size_t i)
{
    uint64_t value = 0;

    CHECK_INT(mem_read(snapshot_mem(s), i * 8, &value, sizeof(value)), 0);
    return value;
}

static void test_passes_on(void)
{
    struct counting c;
    struct snapshot *s = make(&c);

    CHECK_INT(word(s, 3), 4);
    CHECK_INT(word(s, 3), 4);
    CHECK_INT(c.calls, 2);
    c.words[3] = 77;
    CHECK_INT(word(s, 3), 77);
    snapshot_free(s);
}

/* The second reading asks the same: one call; and it sees what is there now. */
static void test_same_again(void)
{
    struct counting c;
    struct snapshot *s = make(&c);
    struct read_plan plan = {0};

    for (int round = 0; round < 4; round++) {
        c.calls = 0;
        c.words[1] = c.words[9] = c.words[5] = (uint64_t)round;
        snapshot_begin(s, &plan, SNAPSHOT_ONCE, 0);
        CHECK_INT(word(s, 1), round);
        CHECK_INT(word(s, 9), round);
        CHECK_INT(word(s, 5), round);
        snapshot_end(s, true);
        CHECK_INT(c.calls, round == 0 ? 3 : 1);
    }
    CHECK_INT(word(s, 5), 3);
    c.words[5] = 1000;
    CHECK_INT(word(s, 5), 1000); /* outside, the copy is not used */
    read_plan_free(&plan);
    snapshot_free(s);
}

/* Other questions, another order, another length: asked of the target. */
static void test_others(void)
{
    struct counting c;
    struct snapshot *s = make(&c);
    struct read_plan plan = {0};
    uint32_t half = 0;

    snapshot_begin(s, &plan, SNAPSHOT_ONCE, 0);
    word(s, 1);
    word(s, 2);
    word(s, 3);
    snapshot_end(s, true);
    c.calls = 0;
    snapshot_begin(s, &plan, SNAPSHOT_ONCE, 0);
    CHECK_INT(word(s, 1), 2);
    CHECK_INT(word(s, 3), 4);
    CHECK_INT(word(s, 2), 3);
    CHECK_INT(word(s, 40), 41);
    CHECK_INT(mem_read(snapshot_mem(s), 24, &half, sizeof(half)), 0);
    CHECK_INT(half, 4);
    snapshot_end(s, true);
    CHECK_INT(c.calls, 2);
    read_plan_free(&plan);
    snapshot_free(s);
}

/* The last word is that of the moment after all that was read. */
static void test_last(void)
{
    struct counting c;
    struct snapshot *s = make(&c);
    struct read_plan plan = {0};
    uint32_t last = 0;

    snapshot_begin(s, &plan, SNAPSHOT_ONCE, 80);
    word(s, 1);
    c.words[10] = 5;
    word(s, 2);
    snapshot_end(s, true);
    CHECK_INT(snapshot_read_last(s, &last), 0);
    CHECK_INT(last, 5);
    c.calls = 0;
    snapshot_begin(s, &plan, SNAPSHOT_ONCE, 80);
    word(s, 1);
    word(s, 2);
    snapshot_end(s, true);
    CHECK_INT(snapshot_read_last(s, &last), 0);
    CHECK_INT(last, 5);
    CHECK_INT(c.calls, 1);
    snapshot_begin(s, &plan, SNAPSHOT_ONCE, 1 << 20);
    CHECK_INT(word(s, 1), 2);
    snapshot_end(s, true);
    CHECK(snapshot_read_last(s, &last) < 0);
    read_plan_free(&plan);
    snapshot_free(s);
}

/* What is expected once is fetched once. */
static void test_expected(void)
{
    struct counting c;
    struct snapshot *s = make(&c);
    struct read_plan plan = {0};

    for (int round = 0; round < 4; round++) {
        c.calls = c.spans = 0;
        snapshot_begin(s, &plan, SNAPSHOT_ONCE, 0);
        if (round == 1 || round == 3)
            snapshot_expect(s, 20 * 8, 8);
        CHECK_INT(word(s, 1), 2);
        CHECK_INT(word(s, 2), 3);
        if (round == 1 || round == 3)
            CHECK_INT(word(s, 20), 21);
        snapshot_end(s, true);
        CHECK_INT(c.calls, round == 0 ? 2 : 1);
        CHECK_INT(c.spans, round == 1 || round == 3 ? 3 : 2);
    }
    read_plan_free(&plan);
    snapshot_free(s);
}

/* What was asked for has gone meanwhile; more is asked for than is kept. */
static void test_bounds(void)
{
    struct counting c;
    struct snapshot *s = make(&c);
    struct read_plan plan = {0};
    uint64_t value;

    snapshot_begin(s, &plan, SNAPSHOT_ONCE, 0);
    word(s, 1);
    CHECK(mem_read(snapshot_mem(s), 1 << 20, &value, sizeof(value)) < 0);
    word(s, 2);
    snapshot_end(s, true);
    snapshot_begin(s, &plan, SNAPSHOT_ONCE, 0);
    CHECK_INT(word(s, 1), 2);
    CHECK(mem_read(snapshot_mem(s), 1 << 20, &value, sizeof(value)) < 0);
    CHECK_INT(word(s, 2), 3);
    snapshot_end(s, true);
    for (int round = 0; round < 3; round++) {
        snapshot_begin(s, &plan, SNAPSHOT_ONCE, 0);
        for (size_t i = 0; i < WORDS; i++)
            CHECK_INT(word(s, i), i + 1);
        snapshot_end(s, true);
        CHECK(plan.n <= 256);
    }
    read_plan_free(&plan);
    snapshot_free(s);
}

/* Only what is not there yet is asked of the target. */
static void test_rest(void)
{
    struct counting c;
    struct snapshot *s = make(&c);
    struct read_plan plan = {0};
    uint64_t got[3] = {0};
    struct mem_span spans[3] = {{8, &got[0], 8}, {320, &got[1], 8}, {16, &got[2], 8}};

    snapshot_begin(s, &plan, SNAPSHOT_ONCE, 0);
    word(s, 0);
    word(s, 1);
    word(s, 2);
    snapshot_end(s, true);
    snapshot_begin(s, &plan, SNAPSHOT_ONCE, 0);
    word(s, 0);
    c.calls = c.spans = 0;
    CHECK_INT(mem_readv(snapshot_mem(s), spans, 3), 3);
    CHECK_INT(c.spans, 1);
    CHECK(got[0] == 2 && got[1] == 41 && got[2] == 3);
    spans[1].addr = 1 << 20;
    CHECK_INT(mem_readv(snapshot_mem(s), spans, 3), 1);
    snapshot_end(s, true);
    read_plan_free(&plan);
    snapshot_free(s);
}

/* What the caller has copied answers what lies inside of it, and nothing else. */
static void test_offer(void)
{
    struct counting c;
    struct snapshot *s = make(&c);
    struct read_plan plan = {0};
    uint64_t copy[4] = {901, 902, 903, 904};

    snapshot_begin(s, &plan, SNAPSHOT_ONCE, 0);
    word(s, 0);
    snapshot_offer(s, 800, copy, sizeof(copy));
    c.calls = 0;
    CHECK_INT(word(s, 100), 901);
    CHECK_INT(word(s, 103), 904);
    CHECK_INT(c.calls, 0);
    CHECK_INT(word(s, 99), 100);
    CHECK_INT(word(s, 104), 105);
    CHECK_INT(c.calls, 2);
    snapshot_end(s, true);
    snapshot_begin(s, &plan, SNAPSHOT_ONCE, 0);
    word(s, 0);
    CHECK_INT(word(s, 100), 101); /* of the target: the offer ended with its reading */
    c.words[100] = 7;
    snapshot_end(s, true);
    CHECK_INT(word(s, 100), 7);
    read_plan_free(&plan);
    snapshot_free(s);
}

static addr_t view(struct snapshot *s, size_t i)
{
    const unsigned char *bytes = snapshot_view(s, i * 8, 8, 0);
    addr_t value = 0;

    if (bytes)
        memcpy(&value, bytes, sizeof(value));
    return value;
}

/* Part of a predicted chain cannot be read, so the rest of the chain is dropped. The index must not contain dropped
 * ranges: a view of one would return bytes that were never read. */
static void test_dropped(void)
{
    struct counting c;
    struct snapshot *s = make(&c);
    struct read_plan plan = {0};

    for (int round = 0; round < 2; round++) { /* 30 links, and then a short chain, so that the links are not planned */
        snapshot_begin(s, &plan, SNAPSHOT_ONCE, 0);
        for (size_t i = 0; i < 30; i++)
            CHECK_INT(view(s, 100 + i), 101 + i);
        snapshot_end(s, true);
        snapshot_begin(s, &plan, SNAPSHOT_ONCE, 0);
        CHECK_INT(view(s, 1), 2);
        snapshot_end(s, true);
    }
    c.unreadable = 103;
    for (size_t i = 104; i < 130; i++)
        c.words[i] = 7000 + i;
    snapshot_begin(s, &plan, SNAPSHOT_ONCE, 0);
    CHECK_INT(view(s, 1), 2);
    CHECK_INT(view(s, 100), 101);
    CHECK_INT(view(s, 102), 103);
    CHECK(snapshot_view(s, 103 * 8, 8, 0) == NULL);
    CHECK_INT(view(s, 104), 7104);
    CHECK_INT(view(s, 105), 7105);
    snapshot_end(s, true);
    read_plan_free(&plan);
    snapshot_free(s);
}

/* Memory without an end, in which each word holds its own address plus `shift`. */
struct endless {
    struct mem mem;
    uint64_t shift;
};

static size_t endless_readv(struct mem *m, const struct mem_span *spans, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t value = spans[i].addr + ((struct endless *)m)->shift;

        memcpy(spans[i].buf, &value, sizeof(value));
    }
    return n;
}

static const struct mem_ops endless_ops = {.readv = endless_readv, .close = counting_close};

/* A stack that is deeper than what a reading keeps: all of it can be read, and the rest is read anew each time. */
static void test_deep(void)
{
    struct endless e = {.mem = {&endless_ops}};
    struct read_plan plan = {0};
    struct snapshot *s = NULL;
    size_t n = 100000, wrong = 0;

    CHECK_INT(snapshot_new(&e.mem, true, &s), 0);
    for (uint64_t round = 0; round < 3; round++) {
        e.shift = round * 8;
        snapshot_begin(s, &plan, SNAPSHOT_ONCE, 0);
        for (size_t i = 1; i <= n; i++)
            wrong += view(s, i) != (i + round) * 8;
        CHECK_INT(wrong, 0);
        CHECK(!snapshot_was_planned(s) && !snapshot_is_doubled(s));
        e.shift = 8000000;
        CHECK_INT(view(s, 1), (1 + round) * 8);
        CHECK_INT(view(s, n), n * 8 + e.shift);
        CHECK_INT(word(s, n), n * 8 + e.shift);
        snapshot_end(s, true);
        CHECK(plan.n > 10000 && plan.n < 20000);
    }
    CHECK(s->n < 40000 && s->len < 40000 * sizeof(uint64_t));
    read_plan_free(&plan);
    snapshot_free(s);
}

int main(void)
{
    TEST_RUN(test_passes_on);
    TEST_RUN(test_same_again);
    TEST_RUN(test_others);
    TEST_RUN(test_last);
    TEST_RUN(test_expected);
    TEST_RUN(test_bounds);
    TEST_RUN(test_rest);
    TEST_RUN(test_offer);
    TEST_RUN(test_dropped);
    TEST_RUN(test_deep);
    return test_finish("test_snapshot");
}
