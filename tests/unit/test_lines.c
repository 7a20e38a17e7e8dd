/*
 * Line tables: written by hand, kind by kind, and taken from real interpreters (line_vectors.h).
 */
#include "base/err.h"
#include "line_vectors.h"
#include "position_vectors.h"
#include "python/lines.h"
#include "test.h"

/* Decodes `len` bytes (from a copy, so that a sanitizer detects a read past the end), and returns the line at each
 * of `at`. */
static int lines_at(enum line_kind kind, const void *bytes, size_t len, int first, const int64_t *at, int *ret,
                    size_t n)
{
    unsigned char *copy = malloc(len ? len : 1);
    struct line_table t;
    int r;

    if (!copy)
        abort();
    memcpy(copy, bytes, len);
    r = lines_decode(kind, copy, len, first, &t);
    for (size_t i = 0; i < n; i++)
        ret[i] = lines_find(&t, at[i], first);
    for (size_t i = 1; i < t.n; i++)
        CHECK(t.rows[i - 1].start < t.rows[i].start);
    lines_free(&t);
    CHECK(t.rows == NULL && t.n == 0);
    free(copy);
    return r;
}

/* CHECK_LINES(kind, table, first line, {offsets}, {lines}) */
#define PACK(...) __VA_ARGS__
#define CHECK_LINES(kind, table, first, offsets, lines)                                                                \
    do {                                                                                                               \
        static const unsigned char table_[] = {table};                                                                 \
        static const int64_t at_[] = {offsets};                                                                        \
        static const int want_[] = {lines};                                                                            \
        int got_[sizeof(at_) / sizeof(at_[0])];                                                                        \
                                                                                                                       \
        CHECK_INT(lines_at(kind, table_, sizeof(table_), first, at_, got_, sizeof(at_) / sizeof(at_[0])), 0);          \
        for (size_t i_ = 0; i_ < sizeof(at_) / sizeof(at_[0]); i_++)                                                   \
            CHECK_INT(got_[i_], want_[i_]);                                                                            \
    } while (0)

static void test_lnotab_unsigned(void)
{
    CHECK_LINES(LINES_LNOTAB_UNSIGNED, PACK(6, 1, 10, 2), 5, PACK(-1, 0, 5, 6, 15, 16, 1000),
                PACK(5, 5, 5, 6, 6, 8, 8));
    /* 0xff means 255 lines forward, not one back; a gap of 300 lines takes two pairs. */
    CHECK_LINES(LINES_LNOTAB_UNSIGNED, PACK(4, 255, 0, 45), 1, PACK(3, 4, 5), PACK(1, 301, 301));
    /* More than 255 bytes without a new line. */
    CHECK_LINES(LINES_LNOTAB_UNSIGNED, PACK(255, 0, 45, 1), 1, PACK(254, 255, 299, 300), PACK(1, 1, 1, 2));
}

static void test_lnotab_signed(void)
{
    CHECK_LINES(LINES_LNOTAB, PACK(2, 1, 4, 0xff, 2, 3), 10, PACK(0, 2, 5, 6, 8), PACK(10, 11, 11, 10, 13));
    CHECK_LINES(LINES_LNOTAB, PACK(2, 127, 0, 127, 0, 46), 1, PACK(0, 1, 2, 3), PACK(1, 1, 301, 301));
    CHECK_LINES(LINES_LNOTAB, PACK(2, 0x80, 0, 0x80), 500, PACK(0, 2), PACK(500, 244));
    /* A definition whose first instruction is not on its first line. */
    CHECK_LINES(LINES_LNOTAB, PACK(0, 3, 2, 1), 7, PACK(0, 2), PACK(10, 11));
    /* Lines below 1 are impossible. */
    CHECK_LINES(LINES_LNOTAB, PACK(2, 0x80), 5, PACK(0, 2), PACK(5, 0));
    /* A lone last byte is ignored. */
    CHECK_LINES(LINES_LNOTAB, PACK(2, 1, 9), 5, PACK(0, 2, 20), PACK(5, 6, 6));
}

static void test_ranges(void)
{
    CHECK_LINES(LINES_RANGES, PACK(4, 1, 6, 2), 5, PACK(-2, 0, 3, 4, 9), PACK(5, 6, 6, 8, 8));
    /* -128: no line; later entries count from the last line. */
    CHECK_LINES(LINES_RANGES, PACK(2, 1, 2, 0x80, 2, 1), 5, PACK(0, 2, 3, 4), PACK(6, 0, 0, 7));
    /* Length 0 only moves the line: gaps of more than 127 lines, in both directions. */
    CHECK_LINES(LINES_RANGES, PACK(0, 127, 0, 127, 2, 46, 2, 0xfe), 0, PACK(0, 1, 2), PACK(300, 300, 298));
    CHECK_LINES(LINES_RANGES, PACK(2, 0, 0, 0x81, 2, 0x81), 300, PACK(0, 2), PACK(300, 46));
    /* More than 254 bytes of one line. */
    CHECK_LINES(LINES_RANGES, PACK(254, 1, 254, 0, 2, 1), 1, PACK(0, 253, 254, 507, 508), PACK(2, 2, 2, 2, 3));
    /* No line with length 0 has no effect. */
    CHECK_LINES(LINES_RANGES, PACK(0, 0x80, 2, 1), 5, PACK(0), PACK(6));
}

#define ENTRY(code, units) (unsigned char)(128 | (code) << 3 | ((units)-1))

static void test_locations_short(void)
{
    unsigned char table[4];
    struct line_table t;

    /* Codes 0 to 9: same line, one byte of columns. */
    for (unsigned int code = 0; code < 10; code++) {
        table[0] = ENTRY(code, 2);
        table[1] = 0xff;
        table[2] = ENTRY(code, 1);
        table[3] = 0;
        CHECK_INT(lines_decode(LINES_LOCATIONS, table, 4, 9, &t), 0);
        CHECK_INT(t.n, 1);
        CHECK_INT(lines_find(&t, 4, 9), 9);
        lines_free(&t);
    }
    /* Codes 10 to 12: 0, 1 or 2 lines forward, two bytes of columns. */
    CHECK_LINES(LINES_LOCATIONS, PACK(ENTRY(10, 1), 1, 2, ENTRY(11, 8), 0x80, 0x80, ENTRY(12, 1), 3, 4), 20,
                PACK(0, 1, 2, 17, 18, 19), PACK(20, 20, 21, 21, 23, 23));
}

static void test_locations_long(void)
{
    /* 13: a signed varint, no columns: 1, -1 and -300 (601 = 0x259). */
    CHECK_LINES(LINES_LOCATIONS, PACK(ENTRY(13, 1), 2, ENTRY(13, 1), 3), 5, PACK(0, 2), PACK(6, 5));
    CHECK_LINES(LINES_LOCATIONS, PACK(ENTRY(13, 1), 0x40 | 0x19, 9, ENTRY(15, 1)), 500, PACK(0, 2), PACK(200, 0));
    /* 14: line, end line, column, end column, each a varint of any length. */
    CHECK_LINES(LINES_LOCATIONS, PACK(ENTRY(14, 3), 0x7f, 0x7f, 0x0e, 0x40, 1, 0x41, 2, 3, ENTRY(11, 1), 0, 0), 1,
                PACK(0, 5, 6), PACK(0, 0, 0));
    CHECK_LINES(LINES_LOCATIONS, PACK(ENTRY(14, 3), 0x7e, 0x0e, 0x40, 1, 0x41, 2, 3, ENTRY(11, 1), 0, 0), 1,
                PACK(0, 5, 6), PACK(480, 480, 481));
    /* 15: no line; later entries count from the last line. */
    CHECK_LINES(LINES_LOCATIONS, PACK(ENTRY(15, 1), ENTRY(11, 1), 0, 0), 5, PACK(0, 2, -2), PACK(0, 6, 5));
}

static void test_locations_bad(void)
{
    static const unsigned char good[] = {ENTRY(11, 1), 0, 0, ENTRY(14, 1), 2, 0x40, 1, 2, 3, ENTRY(13, 2), 0x41, 1};
    static const unsigned char no_mark[] = {ENTRY(11, 1), 0, 0, 0x11, 0, 0};
    static const unsigned char endless[] = {ENTRY(13, 1), 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f,
                                            0x7f,         0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0};
    static const unsigned char huge[] = {ENTRY(13, 1), 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x3f};
    static const int64_t zero = 0;
    int line;

    for (size_t len = 0; len <= sizeof(good); len++) {
        int r = lines_at(LINES_LOCATIONS, good, len, 5, &zero, &line, 1);

        CHECK_INT(r, len == 0 || len == 3 || len == 9 || len == 12 ? 0 : ERR_BOUNDS);
        CHECK_INT(line, len < 3 ? 5 : 6); /* entries before the truncation are kept */
    }
    CHECK_INT(lines_at(LINES_LOCATIONS, no_mark, sizeof(no_mark), 5, &zero, &line, 1), ERR_BOUNDS);
    CHECK_INT(line, 6);
    CHECK_INT(lines_at(LINES_LOCATIONS, endless, sizeof(endless), 5, &zero, &line, 1), ERR_BOUNDS);
    CHECK_INT(lines_at(LINES_LOCATIONS, huge, sizeof(huge), 5, &zero, &line, 1), ERR_BOUNDS);
    CHECK_INT(line, 5);
}

static void test_empty(void)
{
    static const enum line_kind kinds[] = {LINES_LNOTAB_UNSIGNED, LINES_LNOTAB, LINES_RANGES, LINES_LOCATIONS};
    static const int64_t at[] = {INT64_MIN, -1, 0, INT64_MAX};
    int got[4];

    for (size_t i = 0; i < 4; i++) {
        CHECK_INT(lines_at(kinds[i], "", 0, 42, at, got, 4), 0);
        for (size_t k = 0; k < 4; k++)
            CHECK_INT(got[k], 42);
    }
    CHECK_INT(lines_at((enum line_kind)99, "", 0, 42, at, got, 4), ERR_INTERNAL);
}

/* Boundary values: the line must neither wrap nor become negative. */
static void test_edges(void)
{
    CHECK_LINES(LINES_LNOTAB, PACK(2, 127), INT32_MAX, PACK(0, 2), PACK(INT32_MAX, 0));
    CHECK_LINES(LINES_RANGES, PACK(2, 127, 2, 0x81), INT32_MAX, PACK(0, 2), PACK(0, INT32_MAX));
    CHECK_LINES(LINES_LNOTAB, PACK(2, 1), INT32_MIN, PACK(0, 2), PACK(0, 0));
    CHECK_LINES(LINES_LOCATIONS, PACK(ENTRY(12, 1), 0, 0, ENTRY(13, 1), 5), INT32_MAX, PACK(0, 2), PACK(0, INT32_MAX));
}

static bool vector_matches(const struct line_vector *v)
{
    struct line_table t;
    size_t row = 0, wrong = 0, step = v->kind == LINES_LNOTAB_UNSIGNED ? 1 : 2;

    if (lines_decode(v->kind, (const unsigned char *)v->table, v->len, v->first_line, &t) < 0)
        wrong++;
    for (size_t at = 0; at < v->code_len; at += step) {
        while (row + 1 < v->n && v->rows[row + 1].start <= at)
            row++;
        if (lines_find(&t, (int64_t)at, v->first_line) != v->rows[row].line && wrong++ == 0)
            fprintf(stderr, "%s: at %zu got %d, want %d\n", v->name, at, lines_find(&t, (int64_t)at, v->first_line),
                    v->rows[row].line);
    }
    lines_free(&t);
    return wrong == 0;
}

static void test_real(void)
{
    for (size_t i = 0; i < sizeof(line_vectors) / sizeof(line_vectors[0]); i++)
        CHECK(vector_matches(&line_vectors[i]));
}

static bool same_position(const struct position *a, const struct position *b)
{
    return a->line == b->line && a->end_line == b->end_line && a->column == b->column && a->end_column == b->end_column;
}

static bool position_vector_matches(const struct position_vector *v)
{
    struct position_table t;
    size_t row = 0, wrong = 0;

    if (positions_decode(LINES_LOCATIONS, (const unsigned char *)v->table, v->len, v->first_line, &t) < 0)
        wrong++;
    for (size_t at = 0; at < v->code_len; at += 2) {
        struct position got = {.column = -1, .end_column = -1};

        while (row + 1 < v->n && v->rows[row + 1].start <= at)
            row++;
        positions_find(&t, (int64_t)at, &got);
        if (!same_position(&got, &v->rows[row].position) && wrong++ == 0)
            fprintf(stderr, "%s: at %zu got %d-%d, %d-%d\n", v->name, at, got.line, got.end_line, got.column,
                    got.end_column);
    }
    positions_free(&t);
    return wrong == 0;
}

static void test_real_positions(void)
{
    for (size_t i = 0; i < sizeof(position_vectors) / sizeof(position_vectors[0]); i++)
        CHECK(position_vector_matches(&position_vectors[i]));
}

/* Decodes one entry, from a copy, so that a sanitizer detects a read past the end. */
static int position_at(const unsigned char *bytes, size_t len, int first_line, int64_t at, struct position *ret)
{
    unsigned char *copy = malloc(len ? len : 1);
    struct position_table t;
    int r;

    if (!copy)
        abort();
    memcpy(copy, bytes, len);
    r = positions_decode(LINES_LOCATIONS, copy, len, first_line, &t);
    *ret = (struct position){-9, -9, -9, -9};
    if (r == 0 && !positions_find(&t, at, ret))
        r = 1; /* unknown */
    positions_free(&t);
    free(copy);
    return r;
}

static void test_hostile_positions(void)
{
    static const unsigned char good[] = {ENTRY(14, 1), 2, 3, 5, 9};
    static const unsigned char no_start[] = {ENTRY(14, 1), 2, 3, 0, 9}, no_end[] = {ENTRY(14, 1), 2, 3, 5, 0};
    static const unsigned char far[] = {ENTRY(14, 1), 0, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x3f, 1, 1};
    static const unsigned char wide[] = {ENTRY(14, 1), 0, 0, 1, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x3f};
    struct position got;
    struct position_table t;

    CHECK_INT(position_at(good, sizeof(good), 5, 0, &got), 0);
    CHECK(same_position(&got, &(struct position){6, 9, 4, 8}));
    CHECK_INT(position_at(good, sizeof(good), 5, -2, &got), 1);
    CHECK_INT(position_at(good, sizeof(good), 5, INT64_MAX, &got), 0);
    CHECK_INT(position_at(good, sizeof(good), -6, 0, &got), 1); /* line 0 */
    CHECK_INT(position_at(good, 0, 5, 0, &got), 1);
    for (size_t len = 1; len < sizeof(good); len++)
        CHECK_INT(position_at(good, len, 5, 0, &got), ERR_BOUNDS);
    /* Half a position, and numbers that do not fit: the line alone. */
    CHECK_INT(position_at(no_start, sizeof(no_start), 5, 0, &got), 0);
    CHECK(same_position(&got, &(struct position){6, 0, -1, -1}));
    CHECK_INT(position_at(no_end, sizeof(no_end), 5, 0, &got), 0);
    CHECK(same_position(&got, &(struct position){6, 0, -1, -1}));
    CHECK_INT(position_at(far, sizeof(far), 5, 0, &got), 0);
    CHECK(same_position(&got, &(struct position){5, 0, -1, -1}));
    CHECK_INT(position_at(wide, sizeof(wide), 5, 0, &got), 0);
    CHECK(same_position(&got, &(struct position){5, 0, -1, -1}));
    /* Only location tables have columns. */
    CHECK_INT(positions_decode(LINES_RANGES, good, sizeof(good), 5, &t), 0);
    CHECK(!positions_find(&t, 0, &got));
    positions_free(&t);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_lnotab_unsigned);
    TEST_RUN(test_lnotab_signed);
    TEST_RUN(test_ranges);
    TEST_RUN(test_locations_short);
    TEST_RUN(test_locations_long);
    TEST_RUN(test_locations_bad);
    TEST_RUN(test_empty);
    TEST_RUN(test_edges);
    TEST_RUN(test_real);
    TEST_RUN(test_real_positions);
    TEST_RUN(test_hostile_positions);
    return test_finish("test_lines");
}
