/*
 * Prefetching: reads return the target's current bytes, in one call if the same reads recur, and never bytes older than
 * the first call of the sample.
 */
#include "target/ahead.h"
#include "test.h"

#include <string.h>

#define WORDS 512

struct counting {
    struct mem mem;
    uint64_t words[WORDS];
    size_t calls, spans;
};

static size_t counting_readv(struct mem *m, const struct mem_span *spans, size_t n)
{
    struct counting *c = (struct counting *)m;

    c->calls++;
    c->spans += n;
    for (size_t i = 0; i < n; i++) {
        if (spans[i].addr + spans[i].len > sizeof(c->words))
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

static const struct mem_ops counting_ops = {counting_readv, counting_close};

static struct ahead *make(struct counting *c)
{
    struct ahead *a = NULL;

    *c = (struct counting){.mem = {&counting_ops}};
    for (size_t i = 0; i < WORDS; i++)
        c->words[i] = i + 1;
    CHECK_INT(ahead_new(&c->mem, &a), 0);
    return a;
}

static uint64_t word(struct ahead *a, size_t i)
{
    uint64_t value = 0;

    CHECK_INT(mem_read(ahead_mem(a), i * 8, &value, sizeof(value)), 0);
    return value;
}

static void test_read_through(void)
{
    struct counting c;
    struct ahead *a = make(&c);

    CHECK_INT(word(a, 3), 4);
    CHECK_INT(word(a, 3), 4);
    CHECK_INT(c.calls, 2);
    c.words[3] = 77;
    CHECK_INT(word(a, 3), 77);
    ahead_free(a);
}

/* The second sample reads the same: one call, which returns the current bytes. */
static void test_recurring_reads(void)
{
    struct counting c;
    struct ahead *a = make(&c);
    struct ahead_list list = {0};

    for (int round = 0; round < 4; round++) {
        c.calls = 0;
        c.words[1] = c.words[9] = c.words[5] = (uint64_t)round;
        ahead_begin(a, &list, 0);
        CHECK_INT(word(a, 1), round);
        CHECK_INT(word(a, 9), round);
        CHECK_INT(word(a, 5), round);
        ahead_end(a);
        CHECK_INT(c.calls, round == 0 ? 3 : 1);
    }
    CHECK_INT(word(a, 5), 3);
    c.words[5] = 1000;
    CHECK_INT(word(a, 5), 1000); /* outside of a sample, the copy is not used */
    ahead_free(a);
}

/* Other reads, another order, another length: read from the target. */
static void test_other_reads(void)
{
    struct counting c;
    struct ahead *a = make(&c);
    struct ahead_list list = {0};
    uint32_t half = 0;

    ahead_begin(a, &list, 0);
    word(a, 1);
    word(a, 2);
    word(a, 3);
    ahead_end(a);
    c.calls = 0;
    ahead_begin(a, &list, 0);
    CHECK_INT(word(a, 1), 2);
    CHECK_INT(word(a, 3), 4);
    CHECK_INT(word(a, 2), 3);
    CHECK_INT(word(a, 40), 41);
    CHECK_INT(mem_read(ahead_mem(a), 24, &half, sizeof(half)), 0);
    CHECK_INT(half, 4);
    ahead_end(a);
    CHECK_INT(c.calls, 3);
    ahead_free(a);
}

/* The last word is read after everything else. */
static void test_last_word(void)
{
    struct counting c;
    struct ahead *a = make(&c);
    struct ahead_list list = {0};
    uint32_t last = 0;

    ahead_begin(a, &list, 80);
    word(a, 1);
    c.words[10] = 5;
    word(a, 2);
    ahead_end(a);
    CHECK_INT(ahead_read_last(a, &last), 0);
    CHECK_INT(last, 5);
    c.calls = 0;
    ahead_begin(a, &list, 80);
    word(a, 1);
    word(a, 2);
    ahead_end(a);
    CHECK_INT(ahead_read_last(a, &last), 0);
    CHECK_INT(last, 5);
    CHECK_INT(c.calls, 1);
    ahead_begin(a, &list, 1 << 20);
    CHECK_INT(word(a, 1), 2);
    ahead_end(a);
    CHECK(ahead_read_last(a, &last) < 0);
    ahead_free(a);
}

/* What is expected once is fetched once. */
static void test_expected(void)
{
    struct counting c;
    struct ahead *a = make(&c);
    struct ahead_list list = {0};

    for (int round = 0; round < 4; round++) {
        c.calls = c.spans = 0;
        ahead_begin(a, &list, 0);
        if (round == 1 || round == 3)
            ahead_expect(a, 20 * 8, 8);
        CHECK_INT(word(a, 1), 2);
        CHECK_INT(word(a, 2), 3);
        if (round == 1 || round == 3)
            CHECK_INT(word(a, 20), 21);
        ahead_end(a);
        CHECK_INT(c.calls, round == 0 ? 2 : 1);
        CHECK_INT(c.spans, round == 1 || round == 3 ? 3 : 2);
    }
    ahead_free(a);
}

/* Memory that was read before is gone; more is requested than the buffer holds. */
static void test_bounds(void)
{
    struct counting c;
    struct ahead *a = make(&c);
    struct ahead_list list = {0};
    uint64_t value;

    ahead_begin(a, &list, 0);
    word(a, 1);
    CHECK(mem_read(ahead_mem(a), 1 << 20, &value, sizeof(value)) < 0);
    word(a, 2);
    ahead_end(a);
    ahead_begin(a, &list, 0);
    CHECK_INT(word(a, 1), 2);
    CHECK(mem_read(ahead_mem(a), 1 << 20, &value, sizeof(value)) < 0);
    CHECK_INT(word(a, 2), 3);
    ahead_end(a);
    for (int round = 0; round < 3; round++) {
        ahead_begin(a, &list, 0);
        for (size_t i = 0; i < WORDS; i++)
            CHECK_INT(word(a, i), i + 1);
        ahead_end(a);
        CHECK(list.n <= AHEAD_SPANS);
    }
    ahead_free(a);
}

/* Only what is missing is read from the target. */
static void test_rest(void)
{
    struct counting c;
    struct ahead *a = make(&c);
    struct ahead_list list = {0};
    uint64_t got[3] = {0};
    struct mem_span spans[3] = {{8, &got[0], 8}, {320, &got[1], 8}, {16, &got[2], 8}};

    ahead_begin(a, &list, 0);
    word(a, 0);
    word(a, 1);
    word(a, 2);
    ahead_end(a);
    ahead_begin(a, &list, 0);
    word(a, 0);
    c.calls = c.spans = 0;
    CHECK_INT(mem_readv(ahead_mem(a), spans, 3), 3);
    CHECK_INT(c.spans, 1);
    CHECK(got[0] == 2 && got[1] == 41 && got[2] == 3);
    spans[1].addr = 1 << 20;
    CHECK_INT(mem_readv(ahead_mem(a), spans, 3), 1);
    ahead_end(a);
    ahead_free(a);
}

/* A copy that the caller provides serves reads inside of it, and no others. */
static void test_offer(void)
{
    struct counting c;
    struct ahead *a = make(&c);
    struct ahead_list list = {0};
    uint64_t copy[4] = {901, 902, 903, 904};

    ahead_begin(a, &list, 0);
    word(a, 0);
    ahead_offer(a, 800, copy, sizeof(copy));
    c.calls = 0;
    CHECK_INT(word(a, 100), 901);
    CHECK_INT(word(a, 103), 904);
    CHECK_INT(c.calls, 0);
    CHECK_INT(word(a, 99), 100);
    CHECK_INT(word(a, 104), 105);
    CHECK_INT(c.calls, 2);
    ahead_end(a);
    ahead_begin(a, &list, 0);
    word(a, 0);
    CHECK_INT(word(a, 100), 101); /* from the target: the copy was valid for its sample only */
    c.words[100] = 7;
    ahead_end(a);
    CHECK_INT(word(a, 100), 7);
    ahead_free(a);
}

int main(void)
{
    TEST_RUN(test_read_through);
    TEST_RUN(test_recurring_reads);
    TEST_RUN(test_other_reads);
    TEST_RUN(test_last_word);
    TEST_RUN(test_expected);
    TEST_RUN(test_bounds);
    TEST_RUN(test_rest);
    TEST_RUN(test_offer);
    return test_finish("test_ahead");
}
