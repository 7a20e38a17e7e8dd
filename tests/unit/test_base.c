/*
 * base/: UTF-8, interned strings, growing arrays, hashes, the table of errors.
 */
#include "base/err.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/intern.h"
#include "base/utf8.h"
#include "test.h"

static void test_utf8_encode(void)
{
    static const struct {
        uint32_t cp;
        const char *want;
    } rows[] = {
        {'a', "a"},
        {0x7f, "\x7f"},
        {0x80, "\xc2\x80"},
        {0x7ff, "\xdf\xbf"},
        {0x800, "\xe0\xa0\x80"},
        {0xffff, "\xef\xbf\xbf"},
        {0x10000, "\xf0\x90\x80\x80"},
        {0x1f40d, "\xf0\x9f\x90\x8d"},
        {0x10ffff, "\xf4\x8f\xbf\xbf"},
        {0, "\xef\xbf\xbd"}, /* from here on: invalid code points */
        {0xd800, "\xef\xbf\xbd"},
        {0xdfff, "\xef\xbf\xbd"},
        {0x110000, "\xef\xbf\xbd"},
        {0xffffffff, "\xef\xbf\xbd"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char out[5] = {0};

        CHECK_INT(utf8_encode(rows[i].cp, out), strlen(rows[i].want));
        CHECK_STR(out, rows[i].want);
    }
}

/* Every code point survives a round trip. */
static void test_utf8_round_trip(void)
{
    unsigned int wrong = 0;

    for (uint32_t cp = 1; cp <= 0x10ffff; cp++) {
        char out[4];
        uint32_t back;
        size_t len = utf8_encode(cp, out);
        bool surrogate = cp >= 0xd800 && cp <= 0xdfff;

        wrong += utf8_decode(out, len, &back) != len || back != (surrogate ? UTF8_REPLACEMENT : cp);
    }
    CHECK_INT(wrong, 0);
}

/* Decodes from a copy of the exact length, so that a sanitizer detects a read past the end. */
static size_t decode(const char *bytes, size_t len, uint32_t *cp)
{
    char *copy = malloc(len);
    size_t n;

    if (!copy)
        abort();
    memcpy(copy, bytes, len);
    n = utf8_decode(copy, len, cp);
    free(copy);
    return n;
}

static void test_utf8_invalid(void)
{
    static const char *const rows[] = {
        "\x80",             /* a lone continuation byte */
        "\xbf\x80",         /* two of them */
        "\xc0\x80",         /* overlong NUL */
        "\xc1\xbf",         /* overlong 0x7f */
        "\xe0\x80\x80",     /* overlong */
        "\xe0\x9f\xbf",     /* overlong 0x7ff */
        "\xf0\x80\x80\x80", /* overlong */
        "\xf0\x8f\xbf\xbf", /* overlong 0xffff */
        "\xed\xa0\x80",     /* surrogates */
        "\xed\xbf\xbf",     /* */
        "\xf4\x90\x80\x80", /* above 0x10ffff */
        "\xf7\xbf\xbf\xbf", /* */
        "\xf8\x88\x80\x80", /* five bytes */
        "\xfc\x84\x80\x80", /* six */
        "\xfe",             /* never */
        "\xff",             /* never */
        "\xc3",             /* truncated */
        "\xe2\x82",         /* truncated */
        "\xf0\x9f\x90",     /* truncated */
        "\xc3(",            /* the next byte is no continuation */
        "\xe2(\xa1",        /* */
        "\xe2\x82(",        /* */
        "\xf0\x9f\x90(",    /* */
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t cp = 0;

        CHECK_INT(decode(rows[i], strlen(rows[i]), &cp), 1);
        CHECK_INT(cp, UTF8_REPLACEMENT);
    }
}

static void test_utf8_next(void)
{
    static const char text[] = "a\xc3\xa9\xff\xf0\x9f\x90\x8d\xe2\x82"; /* ends within a character */
    static const uint32_t want[] = {'a', 0xe9, UTF8_REPLACEMENT, 0x1f40d, UTF8_REPLACEMENT, UTF8_REPLACEMENT};
    char *copy = strdup(text), *s = copy; /* of the exact length, so that a read past the end is seen */
    size_t n = 0, len;
    uint32_t cp;

    if (!copy)
        abort();
    for (; (len = utf8_next(s, &cp)) > 0; s += len, n++)
        CHECK_INT(cp, want[n]);
    CHECK_INT(n, sizeof(want) / sizeof(want[0]));
    CHECK(*s == '\0');
    free(copy);
}

static void test_utf8_clean(void)
{
    static const char in[] = "a\0b\xff\xc3\xa9\xed\xa0\x80\xf0\x9f\x90\x8d\xe2\x82";
    char out[3 * sizeof(in)], *exact;
    size_t len = utf8_clean(in, sizeof(in) - 1, out);

    out[len] = '\0';
    CHECK_STR(out, "a\xef\xbf\xbd"
                   "b\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xf0\x9f\x90\x8d\xef\xbf\xbd\xef\xbf\xbd");
    CHECK_INT(utf8_clean("", 0, out), 0);
    /* The documented buffer size is sufficient. */
    exact = malloc(300);
    if (!exact)
        abort();
    for (int byte = 0; byte < 256; byte++) {
        char same[100];

        memset(same, byte, sizeof(same));
        CHECK(utf8_clean(same, sizeof(same), exact) <= 300);
    }
    free(exact);
}

static void test_intern(void)
{
    struct intern *in = intern_new();
    const char *a, *empty, *big, *kept[2000];
    char text[32], *huge = malloc(200000);

    if (!in || !huge)
        abort();
    a = intern_str(in, "alpha");
    empty = intern_str(in, "");
    CHECK_STR(a, "alpha");
    CHECK_STR(empty, "");
    CHECK(intern_bytes(in, "alphabet", 5) == a);
    CHECK(intern_bytes(in, "al\0ha", 5) != a);
    CHECK(intern_bytes(in, "al\0ha", 5) == intern_bytes(in, "al\0ha", 5));
    CHECK(intern_bytes(in, "x", 0) == empty);
    memset(huge, 'x', 200000); /* more than a chunk */
    big = intern_bytes(in, huge, 200000);
    CHECK_INT(strlen(big), 200000);
    for (int i = 0; i < 2000; i++) { /* more than the initial table holds */
        snprintf(text, sizeof(text), "name-%d", i);
        kept[i] = intern_str(in, text);
    }
    for (int i = 0; i < 2000; i++) {
        snprintf(text, sizeof(text), "name-%d", i);
        if (intern_str(in, text) != kept[i] || strcmp(kept[i], text) != 0)
            CHECK_STR(kept[i], text);
    }
    CHECK(intern_str(in, "alpha") == a);
    CHECK(intern_bytes(in, huge, 200000) == big);
    free(huge);
    CHECK(intern_free(in) == NULL);
    CHECK(intern_free(NULL) == NULL);
}

static void test_grow(void)
{
    uint64_t *items = NULL;
    size_t cap = 0, before;

    CHECK_INT(grow_array((void **)&items, &cap, 0, 8), 0);
    CHECK(items == NULL && cap == 0);
    for (size_t i = 0; i < 1000; i++) {
        if (grow_array((void **)&items, &cap, i + 1, sizeof(*items)) < 0)
            abort();
        CHECK(items[i] == 0 && cap > i); /* new room is zeroed */
        items[i] = i + 1;
    }
    CHECK(items[0] == 1 && items[999] == 1000);
    before = cap;
    CHECK_INT(grow_array((void **)&items, &cap, SIZE_MAX, 8), ERR_NOMEM);
    CHECK_INT(grow_array((void **)&items, &cap, SIZE_MAX / 8, 16), ERR_NOMEM);
    CHECK(cap == before && items[999] == 1000);
    free(items);
}

static void test_hash(void)
{
    char text[64] = {0};
    unsigned int equal = 0;

    CHECK(hash_bytes("abc", 3) == hash_bytes("abcd", 3));
    CHECK(hash_bytes("abc", 3) != hash_bytes("abd", 3));
    CHECK(hash_bytes("", 0) != hash_bytes("\0", 1));
    for (size_t len = 1; len < sizeof(text); len++) /* each byte matters */
        for (size_t at = 0; at < len; at++) {
            uint64_t clean = hash_bytes(text, len);

            text[at] = 1;
            equal += hash_bytes(text, len) == clean;
            text[at] = 0;
        }
    CHECK_INT(equal, 0);
}

static void test_err(void)
{
    struct err_note note = {0};
    char path[2 * sizeof(note.path)];

    for (int code = ERR_NOMEM; code < ERR_END_; code++)
        CHECK(err_name(code) != NULL && err_name(code)[0] != '\0');
    CHECK_STR(err_name(ERR_TORN), "torn read");
    CHECK_STR(err_name(-5), err_name(ERR_INTERNAL));
    CHECK_STR(err_name(ERR_END_), err_name(ERR_INTERNAL));
    CHECK_STR(err_name(ERR_NOMEM - 1), err_name(ERR_INTERNAL));
    memset(path, 'y', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    CHECK_INT(err_because(NULL, ERR_READ, &(struct err_facts){.reason = REASON_ZOMBIE}), ERR_READ);
    CHECK_INT(err_because(&note, ERR_CORE, &(struct err_facts){.reason = REASON_CORE_EMPTY, .path = path}), ERR_CORE);
    CHECK(note.facts.reason == REASON_CORE_EMPTY && !note.facts.other);
    CHECK(note.facts.path == note.path && strlen(note.path) == sizeof(note.path) - 1); /* a copy: cut, not overrun */
    CHECK_INT(err_because(&note, ERR_GONE, &(struct err_facts){.reason = REASON_ZOMBIE, .pid = 7}), ERR_GONE);
    CHECK(note.facts.pid == 7 && !note.facts.path);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_utf8_encode);
    TEST_RUN(test_utf8_round_trip);
    TEST_RUN(test_utf8_invalid);
    TEST_RUN(test_utf8_next);
    TEST_RUN(test_utf8_clean);
    TEST_RUN(test_intern);
    TEST_RUN(test_grow);
    TEST_RUN(test_hash);
    TEST_RUN(test_err);
    return test_finish("test_base");
}
