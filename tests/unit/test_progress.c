/*
 * The progress line: its texts and widths; and, on a pseudoterminal, that it is redrawn rarely, in place, and erased at
 * the end.
 */
#include "ui/progress.h"

#include "test.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char *line(struct progress_counts counts, size_t width)
{
    static char buf[256];
    size_t n = progress_line(buf, sizeof(buf), &counts, width);

    CHECK_INT(n, strlen(buf));
    CHECK(n <= width);
    return buf;
}

static void test_texts(void)
{
    struct progress_counts c = {1234, 5, 99.6, 100, 12.34, 30};

    CHECK_STR(line(c, 200), "12.3s of 30.0s | 1234 samples | 5 errors | 100 of 100 Hz");
    c.duration = 0;
    c.rate_held = 0;
    CHECK_STR(line(c, 200), "12.3s | 1234 samples | 5 errors | 100 Hz");
    c.rate_asked = 0.5;
    c.rate_held = 0.48;
    CHECK_STR(line(c, 200), "12.3s | 1234 samples | 5 errors | 0.5 of 0.5 Hz");
}

static void test_times(void)
{
    CHECK_STR(line((struct progress_counts){.elapsed = 59.94}, 8), "59.9s");
    CHECK_STR(line((struct progress_counts){.elapsed = 60, .duration = 90}, 16), "1:00 of 1:30");
    CHECK_STR(line((struct progress_counts){.elapsed = 3599.9}, 8), "59:59");
    CHECK_STR(line((struct progress_counts){.elapsed = 3723}, 8), "1:02:03");
    CHECK_STR(line((struct progress_counts){.elapsed = -1}, 8), "0.0s");
    CHECK_STR(line((struct progress_counts){.elapsed = __builtin_nan("")}, 8), "0.0s");
    CHECK_STR(line((struct progress_counts){.elapsed = 1e300}, 20), "277777777:46:40");
}

static void test_widths(void)
{
    struct progress_counts c = {UINT64_MAX, UINT64_MAX, 1e308, 1e308, 1e308, 1e308};
    char small[4] = "xyz";

    for (size_t width = 0; width < 300; width++)
        line(c, width);
    c = (struct progress_counts){1234, 5, 100, 100, 12.34, 30};
    CHECK_STR(line(c, 31), "12.3s of 30.0s | 1234 samples");
    CHECK_STR(line(c, 28), "12.3s of 30.0s");
    CHECK_STR(line(c, 5), "");
    CHECK_INT(progress_line(small, sizeof(small), &c, 80), 0);
    CHECK_STR(small, "");
    CHECK_INT(progress_line(NULL, 0, &c, 80), 0);
}

static void test_not_a_terminal(void)
{
    int ends[2];

    CHECK_INT(pipe(ends), 0);
    struct progress *pr = progress_new(ends[1], false);
    CHECK(pr == NULL);
    progress_update(pr, &(struct progress_counts){0}, 1);
    progress_erase(pr);
    CHECK(progress_free(pr) == NULL);
    close(ends[0]);
    close(ends[1]);
}

/* The two ends of a pseudoterminal. */
static bool open_terminal(int *ret_master, int *ret_terminal)
{
    struct winsize size = {.ws_row = 24, .ws_col = 40};

    *ret_master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    if (*ret_master < 0 || grantpt(*ret_master) < 0 || unlockpt(*ret_master) < 0)
        return false;
    *ret_terminal = open(ptsname(*ret_master), O_RDWR | O_NOCTTY);
    return *ret_terminal >= 0 && ioctl(*ret_terminal, TIOCSWINSZ, &size) == 0;
}

static const char *screen(int master)
{
    static char buf[512];
    ssize_t n = read(master, buf, sizeof(buf) - 1);

    buf[n > 0 ? n : 0] = '\0';
    return buf;
}

static void test_terminal(void)
{
    struct progress_counts c = {7, 0, 0, 100, 0.5, 0};
    int master = -1, terminal = -1;

    setenv("TERM", "xterm", 1);
    if (!CHECK(open_terminal(&master, &terminal)))
        return;
    CHECK(progress_new(terminal, true) == NULL);
    struct progress *pr = progress_new(terminal, false);
    CHECK(pr != NULL);
    progress_erase(pr);
    CHECK_STR(screen(master), "");
    progress_update(pr, &c, 1000);
    CHECK_STR(screen(master), "\r0.5s | 7 samples | 0 errors | 100 Hz\033[K");
    for (uint64_t now = 2000; now < 100000000; now += 1000000)
        progress_update(pr, &c, now);
    CHECK_STR(screen(master), "");
    c.samples = 12345678;
    progress_update(pr, &c, 100001000);
    CHECK_STR(screen(master), "\r0.5s | 12345678 samples | 0 errors\033[K");
    progress_erase(pr);
    CHECK_STR(screen(master), "\r\033[K");
    progress_update(pr, &c, 100001001);
    CHECK(screen(master)[0] == '\r');
    CHECK(progress_free(pr) == NULL);
    CHECK_STR(screen(master), "\r\033[K");
    setenv("TERM", "dumb", 1);
    CHECK(progress_new(terminal, false) == NULL);
    close(terminal);
    close(master);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_texts);
    TEST_RUN(test_times);
    TEST_RUN(test_widths);
    TEST_RUN(test_not_a_terminal);
    TEST_RUN(test_terminal);
    return test_finish("test_progress");
}
