/*
 * A small unit test harness: each test executable is one file that includes this header.
 *
 *     static void test_adds(void) { CHECK(add(1, 2) == 3); CHECK_INT(add(1, 2), 3); }
 *     int main(int argc, char **argv)
 *     {
 *         test_start(argc, argv);
 *         TEST_RUN(test_adds);
 *         return test_finish("test_add");
 *     }
 *
 * The output is TAP, which Meson reads: one line per test function, then the number of checks.
 *
 *     ok 1 - test_adds
 *     1..1
 *     # test_add: 2 checks passed, 0 failed
 *
 * A failing check prints file:line, and the test continues. A check evaluates its arguments exactly once.
 */
#ifndef TESTS_UNIT_TEST_H
#define TESTS_UNIT_TEST_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test_state {
    unsigned passed, failed; /* checks */
    unsigned tests;          /* test functions so far */
    const char *skipped;     /* why the current test was skipped */
    const char *running;     /* name of the current test function */
    const char *dir;         /* argv[1]: a directory of golden files, or NULL */
    bool update;             /* argv[2] is --update */
};

/* Mutable on purpose: a test executable is one file and one thread. */
static struct test_state test_now;

static inline void test_start(int argc, char **argv)
{
    test_now.dir = argc > 1 ? argv[1] : NULL;
    test_now.update = argc > 2 && strcmp(argv[2], "--update") == 0;
}

static inline bool test_count(bool ok, const char *file, int line, const char *what)
{
    if (ok) {
        test_now.passed++;
        return true;
    }
    test_now.failed++;
    fprintf(stderr, "%s:%d: %s: failed: %s\n", file, line, test_now.running ? test_now.running : "?", what);
    return false;
}

static inline bool test_count_int(int64_t got, int64_t want, const char *file, int line, const char *what)
{
    bool ok = test_count(got == want, file, line, what);
    if (!ok)
        fprintf(stderr, "    got %" PRId64 ", want %" PRId64 "\n", got, want);
    return ok;
}

static inline bool test_count_str(const char *got, const char *want, const char *file, int line, const char *what)
{
    bool same = got == want || (got != NULL && want != NULL && strcmp(got, want) == 0);
    bool ok = test_count(same, file, line, what);
    if (!ok)
        fprintf(stderr, "    got  \"%s\"\n    want \"%s\"\n", got ? got : "(null)", want ? want : "(null)");
    return ok;
}

/* Prints the result line of a test; `failed_before` is the number of failed checks when it began. */
static inline void test_report(const char *name, unsigned failed_before)
{
    printf("%sok %u - %s", test_now.failed == failed_before ? "" : "not ", ++test_now.tests, name);
    if (test_now.skipped)
        printf(" # SKIP %s", test_now.skipped);
    putchar('\n');
    fflush(stdout);
    test_now.skipped = NULL;
}

/* For a test function that returns early because this machine or user does not allow it. */
static inline void test_skip(const char *why)
{
    test_now.skipped = why;
}

static inline void test_run(void (*function)(void), const char *name)
{
    unsigned failed_before = test_now.failed;

    test_now.running = name;
    function();
    test_report(name, failed_before);
}

static inline int test_finish(const char *name)
{
    printf("1..%u\n# %s: %u checks passed, %u failed\n", test_now.tests, name, test_now.passed, test_now.failed);
    return test_now.failed == 0 && test_now.passed != 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#define CHECK(cond)          test_count((cond), __FILE__, __LINE__, #cond)
#define CHECK_INT(got, want) test_count_int((int64_t)(got), (int64_t)(want), __FILE__, __LINE__, #got " == " #want)
#define CHECK_STR(got, want) test_count_str((got), (want), __FILE__, __LINE__, #got " == " #want)
#define TEST_RUN(function)   test_run((function), #function)

#endif
