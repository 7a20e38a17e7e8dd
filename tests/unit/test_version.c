/*
 * --version with and without --verbose, and the names of signals.
 */
#include "base/signame.h"
#include "cmd/args.h"

#include "test.h"

#include <signal.h>

static bool wants_more(const char *const *words)
{
    struct options o;
    struct error_text text = {0};
    int argc = 0;

    while (words[argc])
        argc++;
    CHECK_INT(args_parse(argc, (char *const *)words, &o, &text), 0);
    CHECK(o.show_version);
    return o.verbose;
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_verbose(void)
{
    CHECK(!wants_more(WORDS("spyglass", "--version")));
    CHECK(!wants_more(WORDS("spyglass", "-V")));
    CHECK(wants_more(WORDS("spyglass", "--version", "--verbose")));
    CHECK(wants_more(WORDS("spyglass", "--verbose", "--version")));
    CHECK(wants_more(WORDS("spyglass", "-V", "-v")));
    CHECK(wants_more(WORDS("spyglass", "-Vv")));
    CHECK(wants_more(WORDS("spyglass", "record", "--version", "--verbose")));
    /* What follows is not parsed. */
    CHECK(!wants_more(WORDS("spyglass", "--version", "--no-such-flag")));
    CHECK(!wants_more(WORDS("spyglass", "record", "--version", "--", "program", "--verbose")));
}

static void test_signame(void)
{
    CHECK_STR(signame_of(SIGHUP), "HUP");
    CHECK_STR(signame_of(SIGTERM), "TERM");
    CHECK_STR(signame_of(SIGSEGV), "SEGV");
    CHECK_STR(signame_of(SIGSYS), "SYS");
    CHECK(!signame_of(0) && !signame_of(-1) && !signame_of(32) && !signame_of(SIGRTMIN) && !signame_of(1000));
#if __GLIBC_PREREQ(2, 32)
    for (int i = 1; i < 32; i++)
        CHECK_STR(signame_of(i), sigabbrev_np(i));
#endif
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_verbose);
    TEST_RUN(test_signame);
    return test_finish("test_version");
}
