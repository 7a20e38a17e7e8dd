/*
 * base/log: levels, the form of a line, what a line may hold, limits, a reader that does not read.
 */
#include "base/log.h"

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static int pipe_fds[2];

/* Starts the log anew, into an empty pipe. */
static void start(enum log_level level)
{
    if (pipe_fds[0]) {
        close(pipe_fds[0]);
        close(pipe_fds[1]);
    }
    if (pipe2(pipe_fds, O_NONBLOCK | O_CLOEXEC) < 0)
        abort();
    log_start(level, pipe_fds[1]);
}

/* What was written since the last call. */
static const char *written(void)
{
    static char buf[65536 + 1];
    ssize_t n = read(pipe_fds[0], buf, sizeof(buf) - 1);

    buf[n > 0 ? n : 0] = '\0';
    return buf;
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;

    while ((text = strstr(text, word))) {
        n++;
        text += strlen(word);
    }
    return n;
}

static unsigned evaluated;

static int evaluate(void)
{
    return (int)++evaluated;
}

static void test_levels(void)
{
    static const char *const titles[] = {" ERROR a: 1\n", " WARN a: 2\n", " INFO a: 3\n", " DEBUG a: 4\n"};

    for (enum log_level level = LOG_LEVEL_OFF; level < LOG_LEVELS; level++) {
        start(level);
        log_error("a", "%d", 1);
        log_warning("a", "%d", 2);
        log_info("a", "%d", 3);
        log_debug("a", "%d", 4);
        const char *text = written();
        CHECK_INT(count(text, "\n"), level);
        for (int i = 0; i < 4; i++)
            CHECK_INT(strstr(text, titles[i]) != NULL, i < (int)level);
    }
}

static void test_names(void)
{
    CHECK_INT(log_level_by_name("error"), LOG_LEVEL_ERROR);
    CHECK_INT(log_level_by_name("warning"), LOG_LEVEL_WARNING);
    CHECK_INT(log_level_by_name("info"), LOG_LEVEL_INFO);
    CHECK_INT(log_level_by_name("debug"), LOG_LEVEL_DEBUG);
    CHECK_INT(log_level_by_name("off"), LOG_LEVEL_OFF);
    CHECK_INT(log_level_by_name("DEBUG"), LOG_LEVEL_OFF);
    CHECK_INT(log_level_by_name(""), LOG_LEVEL_OFF);
    CHECK(!log_level_name(LOG_LEVEL_OFF) && !log_level_name(LOG_LEVELS));
    CHECK_STR(log_level_name(LOG_LEVEL_WARNING), "warning");
}

static void test_arguments(void)
{
    start(LOG_LEVEL_INFO);
    evaluated = 0;
    log_debug("a", "%d", evaluate());
    log_often(LOG_LEVEL_DEBUG, "a", evaluate(), "%d", evaluate());
    log_changed(LOG_LEVEL_DEBUG, "a", evaluate(), evaluate(), "%d", evaluate());
    CHECK_INT(evaluated, 0);
    log_info("a", "%d", evaluate());
    CHECK_INT(evaluated, 1);
    errno = EPERM;
    log_info("a", "x");
    log_often(LOG_LEVEL_INFO, "a", 0, "y");
    log_changed(LOG_LEVEL_INFO, "a", 0, 0, "z");
    CHECK_INT(errno, EPERM);
}

static void test_form(void)
{
    int hour, minute, second, ms, end = 0;

    start(LOG_LEVEL_DEBUG);
    log_debug("pause", "tid %d: %s", 7, "asleep");
    sscanf(written(), "%2d:%2d:%2d.%3d DEBUG pause: tid 7: asleep\n%n", &hour, &minute, &second, &ms, &end);
    CHECK_INT(end, strlen("00:00:00.000 DEBUG pause: tid 7: asleep\n"));
}

static void test_sanitizing(void)
{
    start(LOG_LEVEL_INFO);
    log_info("a", "%s",
             "x\x1b[31m\r\n\xff\xe2\x80\xae"
             "y");
    CHECK(strstr(written(), "a: x\\x1b[31m\\r\\n\\xff\\u202ey\n"));
}

static void test_length(void)
{
    static const char *const pieces[] = {"x", "\x1b", "\xe2\x82\xac", "\xf0\x9f\x90\x8d"};
    char text[8000];

    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
        for (size_t shift = 0; shift < 4; shift++) {
            text[0] = '\0';
            memset(text, '.', shift);
            text[shift] = '\0';
            for (size_t n = shift; n + 5 < sizeof(text); n += strlen(pieces[i]))
                strcpy(text + n, pieces[i]);
            start(LOG_LEVEL_INFO);
            log_info("a", "%s", text);
            const char *line = written();
            CHECK(strlen(line) <= LOG_LINE_MAX && strlen(line) > 900);
            CHECK_INT(count(line, "\n"), 1);
            CHECK(strlen(line) > 4 && strcmp(line + strlen(line) - 4, "...\n") == 0);
            CHECK(i == 1 || !strstr(line, "\\x")); /* no character is cut */
        }
}

static void test_often(void)
{
    const char *text;

    start(LOG_LEVEL_DEBUG);
    for (int i = 0; i < 100; i++) {
        log_often(LOG_LEVEL_DEBUG, "a", 1, "one %d", i);
        log_often(LOG_LEVEL_DEBUG, "a", 2, "one %d", i);
    }
    text = written();
    CHECK_INT(count(text, "one"), 10); /* five for each key */
    CHECK(strstr(text, "one 4\n") && !strstr(text, "one 5\n"));
    for (size_t i = 0; i < LOG_SITES; i++) /* a second later */
        log_state.sites[i].written_ns -= 1000000000;
    log_often(LOG_LEVEL_DEBUG, "a", 1, "other");
    for (int i = 0; i < 10; i++)
        log_often(LOG_LEVEL_DEBUG, "a", 3, "one %d", i);
    CHECK_INT(count(written(), "\n"), 6);
}

static void often(int i)
{
    log_often(LOG_LEVEL_DEBUG, "a", 1, "often %d", i);
}

static void changed(uint64_t key, uint64_t value)
{
    log_changed(LOG_LEVEL_DEBUG, "a", key, value, "value %d", (int)value);
}

static void test_counts_suppressed(void)
{
    start(LOG_LEVEL_DEBUG);
    for (int i = 0; i < 100; i++)
        often(i);
    written();
    for (size_t i = 0; i < LOG_SITES; i++)
        log_state.sites[i].written_ns -= 1000000000;
    often(100);
    often(101);
    CHECK(strstr(written(), "a: often 100 (and 95 times more)\n"));
    log_finish();
    CHECK(strstr(written(), "INFO log: suppressed 1 more lines like: often %d\n"));
    log_error("a", "x"); /* off by now */
    CHECK_STR(written(), "");
}

static void test_changed(void)
{
    start(LOG_LEVEL_DEBUG);
    for (int i = 0; i < 1000; i++) {
        changed(1, 5);
        changed(2, (uint64_t)i / 500);
    }
    CHECK_INT(count(written(), "\n"), 3);
    for (uint64_t i = 0; i < 100; i++) /* it alternates: five lines in all */
        changed(1, i % 2);
    CHECK_INT(count(written(), "\n"), 4);
    for (size_t i = 0; i < LOG_SITES; i++)
        log_state.sites[i].written_ns -= 1000000000;
    changed(1, 77); /* a change that was suppressed is not lost */
    CHECK(strstr(written(), "a: value 77 (and "));
    for (uint64_t key = 100; key < 600; key++) /* as many threads: 200 lines for all keys together */
        changed(key, 1);
    CHECK_INT(count(written(), "\n"), 192);
}

/* More keys than there are sites: lines may come again, but nothing breaks. */
static void test_many_keys(void)
{
    start(LOG_LEVEL_DEBUG);
    for (uint64_t key = 0; key < 100000; key++)
        log_often(LOG_LEVEL_DEBUG, "a", key, "k");
    size_t n = count(written(), "\n"); /* on a slow machine some of those that are due every 50 ms */
    CHECK(n >= 200 && n < 1000);
    log_finish();
}

static void test_blocked(void)
{
    char fill[4096] = {0};
    const char *text;

    start(LOG_LEVEL_INFO);
    while (write(pipe_fds[1], fill, sizeof(fill)) > 0)
        ;
    for (int i = 0; i < 100; i++)
        log_info("a", "lost");
    while (read(pipe_fds[0], fill, sizeof(fill)) > 0)
        ;
    log_info("a", "back");
    log_info("a", "again");
    text = written();
    CHECK(strstr(text, "a: back (100 lines before this one were dropped"));
    CHECK(strstr(text, "a: again\n"));
}

/* The progress line is on the same terminal: it is erased first, and drawn again by its next update. */
static void test_terminal(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), slave;
    char buf[256] = "";

    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 ||
        (slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0) {
        test_skip("no pseudo terminal");
        return;
    }
    setenv("TERM", "xterm", 1);
    log_start(LOG_LEVEL_INFO, slave);
    log_info("a", "x");
    CHECK(read(master, buf, sizeof(buf) - 1) > 0);
    CHECK(strncmp(buf, "\r\033[K", 4) == 0 && strstr(buf, " INFO a: x\r\n"));
    setenv("TERM", "dumb", 1);
    log_start(LOG_LEVEL_INFO, slave);
    log_info("a", "y");
    memset(buf, 0, sizeof(buf));
    CHECK(read(master, buf, sizeof(buf) - 1) > 0 && !strchr(buf, '\033'));
    log_start(LOG_LEVEL_OFF, -1);
    close(slave);
    close(master);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_levels);
    TEST_RUN(test_names);
    TEST_RUN(test_arguments);
    TEST_RUN(test_form);
    TEST_RUN(test_sanitizing);
    TEST_RUN(test_length);
    TEST_RUN(test_often);
    TEST_RUN(test_counts_suppressed);
    TEST_RUN(test_changed);
    TEST_RUN(test_many_keys);
    TEST_RUN(test_blocked);
    TEST_RUN(test_terminal);
    return test_finish("test_log");
}
