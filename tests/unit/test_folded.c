/*
 * Parses folded lines into profiles: what is a root and what a function, that text survives a round trip, what is
 * rejected, and that hostile files stay within bounds; each format of a merge against golden files.
 *
 *     test_folded tests/golden            compare
 *     test_folded tests/golden --update   rewrite them; read the diff
 */
#include "base/err.h"
#include "cost.h"
#include "out/format.h"
#include "profile/folded.h"
#include "test.h"

#define ESC  "\x1b"
#define BIDI "\xe2\x80\xae" /* U+202E */

struct merged {
    struct profile *p;
    struct folded *f;
    const char *why;
};

static struct merged open_merged(bool timeline)
{
    struct profile_options options = {.interval_ns = 10000000, .timeline = timeline};
    struct merged m = {.p = profile_new(&options)};

    m.f = folded_new(m.p);
    return m;
}

static void close_merged(struct merged *m)
{
    m->p = profile_free(m->p);
    m->f = folded_free(m->f);
}

static int add(struct merged *m, const char *root, const char *line)
{
    return folded_add(m->f, root, line, strlen(line), &m->why);
}

static char *write_as(const struct merged *m, const char *format)
{
    struct out_options options = {.title = "a <merge>", .exporter = "spyglass 0.1.0", .show_lines = true};
    char *text = NULL;
    size_t len = 0;
    FILE *mem = open_memstream(&text, &len);

    CHECK_INT(format_by_name(format)->write(m->p, &options, mem), 0);
    fclose(mem);
    return text;
}

/* A single line survives a round trip, below `roots` roots. */
static void check_line(const char *line, size_t roots)
{
    struct merged m = open_merged(true);
    char want[4096], *got;
    size_t labels = 0;

    snprintf(want, sizeof(want), "%s\n", line);
    CHECK_INT(add(&m, "", line), 0);
    got = write_as(&m, "raw");
    CHECK_STR(got, want);
    for (size_t i = 0; i < m.p->n_frames; i++)
        labels += m.p->frames[i].label != NULL;
    if (!CHECK_INT(labels, roots))
        fprintf(stderr, "    %s\n", line);
    free(got);
    close_merged(&m);
}

static void test_lines(void)
{
    check_line("<module> (a.py:6);f (a.py:3) 99", 0);
    check_line("f (a.py) 1", 0);
    check_line("process 1:\"python a.py\";thread (2): name;f (a.py:3) 7", 2);
    check_line("process 1:\"a (b)\";thread (2);f (a.py:3) 7", 2);
    check_line("thread (0x7F00AA);f (a.py:3) 7", 1);
    check_line("node 1;worker 3;f (a.py:3) 7", 2);
    check_line("node 1;process 1:\"x\";f (a.py:3);g 7", 2);
    check_line("thread (x);f (a.py:3) 7", 0); /* a function in a file x */
    check_line("f (a.py:3);node 1;g (a.py:4) 7", 0);
    check_line("process 1:\"x\" 7", 0); /* the innermost is a frame, whatever it looks like */
    check_line("node 1 7", 0);
}

static void test_lines_of_other_tools(void)
{
    check_line("main;foo;bar 3", 0);
    check_line("process 1:\"x\";main;bar 3", 1);
    check_line("[unverified] (changed while being read) 3", 0);
    check_line("_start (python3);clock_nanosleep (libc.so.6) 3", 0);
    check_line("std::function<void (int)>::operator() (functional:12) 3", 0);
    check_line("f (a (copy)/x.py:3) 3", 0);
    check_line("f (a) (b.py:3);g (h) 3", 0);
    check_line("h (x.py:0);f ();g (:3);i (x.py:03);j (x.py:1234567890);k (3) 3", 0);
    check_line("unbalanced ) (;f );( (x 3", 0);
    check_line("two  blanks (a b.py:3);  (x.py:1) 3", 0);
}

/* What a frame is parsed as. */
static void check_frame(const char *line, const char *name, const char *file, int number)
{
    struct merged m = open_merged(false);

    CHECK_INT(add(&m, "", line), 0);
    if (CHECK_INT(m.p->n_frames, 1)) {
        CHECK_STR(m.p->frames[0].func->name, name);
        CHECK_STR(m.p->frames[0].func->filename, file);
        CHECK_STR(m.p->frames[0].func->short_filename, file);
        CHECK_INT(m.p->frames[0].line, number);
    }
    close_merged(&m);
}

static void test_frames(void)
{
    check_frame("f (a.py:3) 1", "f", "a.py", 3);
    check_frame("f (a.py:3) 1\r", "f", "a.py", 3);
    check_frame("operator() (x.cpp:77) 1", "operator()", "x.cpp", 77);
    check_frame("f (a (copy)/x.py:3) 1", "f", "a (copy)/x.py", 3);
    check_frame("clock_nanosleep (libc.so.6) 1", "clock_nanosleep", "libc.so.6", 0);
    check_frame("f (x.py:0) 1", "f", "x.py:0", 0);
    check_frame("f (x.py:1234567890) 1", "f", "x.py:1234567890", 0);
    check_frame("f(x) 1", "f(x)", "", 0);
    check_frame("a\xff\xed\xa0\x80z (x.py:1) 1", "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz", "x.py", 1);
}

static void check_refused(const char *line, size_t len)
{
    struct merged m = open_merged(false);

    CHECK_INT(folded_add(m.f, "", line, len, &m.why), ERR_PROFILE);
    CHECK(m.why != NULL && *m.why);
    CHECK_INT(m.p->samples, 0);
    close_merged(&m);
}

static void test_rejected(void)
{
    static const char *const lines[] = {
        "f", "f (a.py:3)", "12", " 12", "f -1", "f 1.5", "f 1e3", "f\t12", "f 12 ", " 1", "f 1000000000000000000000"};

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        check_refused(lines[i], strlen(lines[i]));
    check_refused("f 9\0", 4);
    check_refused("f 999999999999999999", 20);
}

static void test_ignored(void)
{
    struct merged m = open_merged(false);

    CHECK_INT(add(&m, "r", ""), 0);
    CHECK_INT(add(&m, "r", "\r"), 0);
    CHECK_INT(add(&m, "r", "f (a.py:1) 0"), 0);
    CHECK_INT(m.p->samples, 0);
    CHECK_INT(m.p->n_nodes, 1);
    close_merged(&m);
}

static void test_sums(void)
{
    struct merged m = open_merged(true);
    char *got;

    add(&m, "n 1", "<module> (a.py:6);f (a.py:3) 2");
    add(&m, "n 2", "<module> (a.py:6);f (a.py:3) 5");
    add(&m, "n 1", "<module> (a.py:6);f (a.py:3) 40");
    add(&m, "n 1", "<module> (a.py:6) 1");
    got = write_as(&m, "raw");
    CHECK_STR(got, "n 1;<module> (a.py:6) 1\nn 1;<module> (a.py:6);f (a.py:3) 42\n"
                   "n 2;<module> (a.py:6);f (a.py:3) 5\n");
    CHECK_INT(m.p->n_threads, 2);
    CHECK_INT(m.p->samples, 48);
    free(got);
    close_merged(&m);
}

/* The sum of all counts must fit the arithmetic of the formats. */
static void test_counts_add_up(void)
{
    struct merged m = open_merged(true);
    uint64_t most = (uint64_t)INT64_MAX / 10000000;
    char line[64], *got;

    snprintf(line, sizeof(line), "f (a.py:1) %" PRIu64, most - 10);
    CHECK_INT(add(&m, "", line), 0);
    CHECK_INT(add(&m, "", "f (a.py:1) 11"), ERR_PROFILE);
    CHECK_INT(add(&m, "", "f (a.py:1) 10"), 0);
    CHECK_INT(add(&m, "", "f (a.py:1) 1"), ERR_PROFILE);
    CHECK_INT(m.p->samples, most);
    got = write_as(&m, "speedscope");
    CHECK(strstr(got, "\"endValue\":9223372036.85") != NULL);
    free(got);
    free(write_as(&m, "chrometrace"));
    free(write_as(&m, "flamegraph"));
    close_merged(&m);
}

static void fill_golden(struct merged *m)
{
    static const char *const one[] = {
        "<module> (main.py:6) 2",
        "<module> (main.py:6);handle (web/views.py:14);JSONDecoder.decode (json/decoder.py:340) 30",
        "<module> (main.py:6);handle (web/views.py:14);clock_nanosleep (libc.so.6) 12",
    };
    static const char *const two[] = {
        "process 100:\"python main.py\";thread (100): MainThread;<module> (main.py:6);handle (web/views.py:14) 9",
        "process 100:\"python main.py\";thread (101);run (threading.py:975);</script>]]> (' & <b>.py:7) 4",
        "process 100:\"python main.py\";thread (101);run (threading.py:975);" ESC "[31m" BIDI " (x.py:1) 3",
    };
    static const char *const three[] = {"main;foo;bar 5", "main;\xff\xfe 1"};

    for (size_t i = 0; i < sizeof(one) / sizeof(one[0]); i++)
        CHECK_INT(add(m, "10.0.0.1;worker 7", one[i]), 0);
    for (size_t i = 0; i < sizeof(two) / sizeof(two[0]); i++)
        CHECK_INT(add(m, "10.0.0.2", two[i]), 0);
    for (size_t i = 0; i < sizeof(three) / sizeof(three[0]); i++)
        CHECK_INT(add(m, "", three[i]), 0);
}

static void check_golden(const char *name, const char *got)
{
    char path[4096], *want = NULL;
    size_t cap = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", test_now.dir ? test_now.dir : "tests/golden", name);
    if (test_now.update && (f = fopen(path, "w")) != NULL) {
        fputs(got, f);
        fclose(f);
    }
    f = fopen(path, "r");
    if (f != NULL && getdelim(&want, &cap, '\0', f) < 0 && want != NULL)
        want[0] = '\0';
    if (f != NULL)
        fclose(f);
    if (!test_count(want != NULL && strcmp(want, got) == 0, __FILE__, __LINE__, name))
        fprintf(stderr, "    %s differs; run with --update and read the difference\n", path);
    free(want);
}

static void test_goldens(void)
{
    static const char *const files[][2] = {{"raw", "merged.raw"},
                                           {"flamegraph", "merged.svg"},
                                           {"speedscope", "merged.speedscope.json"},
                                           {"chrometrace", "merged.trace.json"}};

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct merged m = open_merged(format_by_name(files[i][0])->timeline);
        char *got;

        fill_golden(&m);
        got = write_as(&m, files[i][0]);
        check_golden(files[i][1], got);
        free(got);
        close_merged(&m);
    }
}

static char *merge_text(const char *text, size_t want_threads)
{
    struct merged m = open_merged(false);
    char *got;

    for (const char *end; (end = strchr(text, '\n')) != NULL; text = end + 1)
        CHECK_INT(folded_add(m.f, "", text, (size_t)(end - text), &m.why), 0);
    CHECK_INT(m.p->n_threads, want_threads);
    got = write_as(&m, "raw");
    close_merged(&m);
    return got;
}

/* Merged output can be merged again. The first time, escaping may change the order. */
static void test_merge_again(void)
{
    struct merged m = open_merged(false);
    char *first, *second, *third;

    fill_golden(&m);
    first = write_as(&m, "raw");
    second = merge_text(first, m.p->n_threads);
    third = merge_text(second, m.p->n_threads);
    CHECK_STR(third, second);
    CHECK_INT(strlen(first), strlen(second));
    free(first);
    free(second);
    free(third);
    close_merged(&m);
}

/* More names, roots, levels and lines than anyone needs. */
static void test_many(void)
{
    struct merged m = open_merged(true);
    char line[128];
    size_t failed = 0;

    for (unsigned i = 0; i < 700000; i++) {
        snprintf(line, sizeof(line), "root %u;sub %u;f (a.py:%u);g%u (b.py:1) 1", i, i % 7, i + 1, i);
        failed += add(&m, "", line) < 0;
    }
    CHECK_INT(failed, 0);
    CHECK_INT(m.p->samples, 700000);
    CHECK_INT(m.p->n_threads, FOLDED_MAX_ROOTS + 1); /* and the root of lines without one */
    CHECK(m.p->n_frames <= FOLDED_MAX_NAMES + 2);
    CHECK(cost_resident_mb() < 1000);
    free(write_as(&m, "flamegraph"));
    free(write_as(&m, "speedscope"));
    close_merged(&m);
}

static void test_deep(void)
{
    struct merged m = open_merged(true);
    size_t n = 1000000, len = 0;
    char *line = malloc(2 * n + 64);

    for (size_t i = 0; i < n; i++)
        len += (size_t)sprintf(line + len, "x;");
    strcpy(line + len, "f (a.py:1) 1");
    CHECK_INT(add(&m, "", line), ERR_PROFILE); /* too deep */
    CHECK_INT(m.p->samples, 0);
    CHECK_INT(add(&m, "", line + 2 * (n - 300000)), 0);
    CHECK_INT(m.p->samples, 1);
    CHECK_INT(m.p->n_nodes, 300002);
    CHECK_INT(m.p->n_threads, 1);
    memset(line, ';', 200000);
    strcpy(line + 200000, " 5");
    CHECK_INT(add(&m, "", line), 0); /* 200,001 frames without a name */
    free(write_as(&m, "raw"));
    free(line);
    close_merged(&m);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_lines);
    TEST_RUN(test_lines_of_other_tools);
    TEST_RUN(test_frames);
    TEST_RUN(test_rejected);
    TEST_RUN(test_ignored);
    TEST_RUN(test_sums);
    TEST_RUN(test_counts_add_up);
    TEST_RUN(test_goldens);
    TEST_RUN(test_merge_again);
    TEST_RUN(test_deep);
    TEST_RUN(test_many);
    return test_finish("test_folded");
}
