/*
 * --status-fd: every event is one line of at most PIPE_BUF bytes, and no reader can make a writer wait.
 */
#include "cmd/status.h"

#include "base/clock.h"
#include "test.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct status_counts counts = {.elapsed_ns = 1500000000,
                                            .samples = 150,
                                            .errors = 1,
                                            .missed = 2,
                                            .cpu_ns = 2000000000,
                                            .native_cpu_ns = 1250000000,
                                            .processes = 3};

/* A status that writes into a pipe; the descriptors are fds[0] and fds[1]. */
static struct status *open_pipe(int fds[2])
{
    struct status *s = NULL;

    CHECK_INT(pipe(fds), 0);
    CHECK_INT(status_open(fds[1], &s, NULL), 0);
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    return s;
}

static struct status *close_pipe(struct status *s, int fds[2])
{
    close(fds[0]);
    close(fds[1]);
    return status_close(s);
}

/* All that can be read now, as a string. */
static const char *read_all(int fd)
{
    static char text[1 << 17];
    size_t n = 0;
    ssize_t got;

    while ((got = read(fd, text + n, sizeof(text) - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = '\0';
    return text;
}

static void test_events(void)
{
    struct error_text text = {.what = "all 9 stacks were idle", .hint = "Add --idle."};
    int fds[2];
    struct status *s = open_pipe(fds);
    char want[256];

    status_started(s, &(struct status_started){"spyglass 1", "record", 7, "raw", "a\"b"});
    snprintf(
        want, sizeof(want),
        "{\"event\":\"started\",\"version\":1,\"program\":\"spyglass 1\",\"profiler_pid\":%d,\"command\":\"record\","
        "\"pid\":7,\"format\":\"raw\",\"output\":\"a\\\"b\"}\n",
        (int)getpid());
    CHECK_STR(read_all(fds[0]), want);
    status_ready(s, 7, "python x.py", 1);
    CHECK_STR(read_all(fds[0]), "{\"event\":\"ready\",\"version\":1,\"pid\":7,\"command_line\":\"python "
                                "x.py\",\"processes\":1}\n");
    status_ready(s, 0, NULL, 0);
    CHECK_STR(read_all(fds[0]), "{\"event\":\"ready\",\"version\":1,\"pid\":null,\"command_line\":null,"
                                "\"processes\":0}\n");
    status_samples(s, &counts, 1);
    CHECK_STR(read_all(fds[0]), "{\"event\":\"samples\",\"version\":1,\"elapsed\":1.5,\"samples\":150,\"errors\":1,"
                                "\"missed\":2,\"processes\":3}\n");
    status_snapshot(s, &counts, "/nowhere");
    CHECK_STR(read_all(fds[0]), "{\"event\":\"snapshot\",\"version\":1,\"elapsed\":1.5,\"samples\":150,\"errors\":1,"
                                "\"output\":\"/nowhere\",\"bytes\":null}\n");
    status_finished(s, &(struct status_end){"signal", "SIGINT", &text}, &counts, "-");
    CHECK_STR(
        read_all(fds[0]),
        "{\"event\":\"finished\",\"version\":1,\"reason\":\"signal\",\"signal\":\"SIGINT\",\"elapsed\":1.5,"
        "\"samples\":150,\"errors\":1,\"missed\":2,\"cpu_time\":2.0,\"cpu_time_without_python\":1.25,\"output\":\"-"
        "\",\"bytes\":null,"
        "\"message\":\"all 9 stacks were idle\",\"advice\":\"Add --idle.\"}\n");
    status_finished(s, &(struct status_end){0}, NULL, NULL);
    CHECK_STR(read_all(fds[0]), "{\"event\":\"finished\",\"version\":1}\n");
    close_pipe(s, fds);
}

/* The message is what error_text_print prints. */
static void test_errors(void)
{
    struct error_text text = {.what = "process 7", .hint = "one two"};
    int fds[2];
    struct status *s = open_pipe(fds);
    const char *line;

    CHECK(!status_has_ended(s) && !status_has_ended(NULL));
    status_error(s, ERR_NO_PROCESS, &text, true);
    CHECK(status_has_ended(s));
    line = read_all(fds[0]);
    CHECK(strstr(line, "{\"event\":\"error\",\"version\":1,\"code\":\"no_process\",\"message\":\"") == line);
    CHECK(strstr(line, "process 7") && strstr(line, ",\"advice\":\"one two\",\"fatal\":true}\n"));
    status_error(s, ERR_IO, NULL, false);
    line = read_all(fds[0]);
    CHECK(strstr(line, "\"code\":\"io\"") && strstr(line, ",\"advice\":null,\"fatal\":false}\n"));
    status_left_out(s, 7, ERR_NO_PROCESS, &text);
    CHECK(strstr(read_all(fds[0]), ",\"advice\":\"one two\",\"fatal\":false,\"pid\":7}\n"));
    close_pipe(s, fds);
}

static void test_codes(void)
{
    for (int code = ERR_NOMEM; code < ERR_END_; code++) {
        CHECK(code == ERR_INTERNAL || strcmp(status_code(code), "internal") != 0);
        for (int other = ERR_NOMEM; other < code; other++)
            CHECK(strcmp(status_code(code), status_code(other)) != 0);
    }
    CHECK_STR(status_code(0), "internal");
    CHECK_STR(status_code(-1), "internal");
    CHECK_STR(status_code(ERR_PERMISSION), "permission");
}

/* Long strings, and strings that escapes make longer, are cut; the line says so. */
static void test_long_lines(void)
{
    static const char *const pieces[] = {"x", "\x01", "\xc3\xa9", "\xff", "\xf0\x9f\x90\x8d"};
    char text[3 * PIPE_BUF];
    int fds[2];
    struct status *s = open_pipe(fds);

    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        const char *line;
        size_t n = 0, len = strlen(pieces[i]);

        for (; n + len < sizeof(text); n += len)
            memcpy(text + n, pieces[i], len);
        text[n] = '\0';
        status_started(s, &(struct status_started){text, "record", 7, text, text});
        line = read_all(fds[0]);
        CHECK(strlen(line) <= PIPE_BUF && strlen(line) > PIPE_BUF / 4);
        CHECK(strstr(line, "\",\"truncated\":true}\n") && strchr(line, '\n') == line + strlen(line) - 1);
        if (pieces[i][0] != '\xff')
            CHECK(!strstr(line, "\xef\xbf\xbd")); /* no half of a character */
    }
    close_pipe(s, fds);
}

/* Nobody reads: samples leave room for what comes once, and nothing waits. */
static void test_full_pipe(void)
{
    int fds[2], lines = 0;
    struct status *s = open_pipe(fds);
    const char *text;

    status_ready(s, 7, "python", 1);
    CHECK(!status_samples_due(s, clock_now_ns()));
    for (uint64_t now = UINT64_C(1) << 62; status_samples_due(s, now) && lines < 10000; now += 500000000, lines++) {
        status_samples(s, &counts, now);
        CHECK(!status_samples_due(s, now + 499999999));
    }
    CHECK(lines > 100 && lines < 10000);
    status_finished(s, &(struct status_end){.reason = "duration"}, &counts, "out.svg");
    text = read_all(fds[0]);
    CHECK(strstr(text, "\"event\":\"finished\"") && text[strlen(text) - 1] == '\n');
    CHECK(status_samples_due(s, UINT64_MAX)); /* there is room again */
    for (int i = 0; i < 10000; i++)
        status_samples(s, &counts, 0);
    text = read_all(fds[0]);
    CHECK(strlen(text) > PIPE_BUF && text[strlen(text) - 1] == '\n'); /* whole lines alone */
    /* The flags of the descriptor are as they were: it may be shared. */
    CHECK_INT(fcntl(fds[1], F_GETFL) & O_NONBLOCK, 0);
    CHECK_INT(fcntl(fds[1], F_GETFD), FD_CLOEXEC);
    close_pipe(s, fds);
}

static void test_reader_gone(void)
{
    int fds[2];
    struct status *s = open_pipe(fds);

    close(fds[0]);
    fds[0] = -1;
    status_ready(s, 7, "python", 1);
    CHECK(!status_samples_due(s, UINT64_MAX));
    status_samples(s, &counts, 1);
    status_error(s, ERR_IO, NULL, true);
    close_pipe(s, fds);

    /* Before the beginning. */
    CHECK_INT(pipe(fds), 0);
    close(fds[0]);
    CHECK_INT(status_open(fds[1], &s, NULL), 0);
    status_ready(s, 7, "python", 1);
    CHECK(!status_samples_due(s, UINT64_MAX));
    close(fds[1]);
    status_close(s);
}

/* A socket takes parts of lines; they are completed before the next one. */
static void test_socket(void)
{
    int fds[2], size = 4096;
    struct status *s = NULL;
    const char *text;

    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    CHECK_INT(status_open(fds[1], &s, NULL), 0);
    for (int i = 0; i < 1000; i++)
        status_samples(s, &counts, 0);
    CHECK(!status_samples_due(s, UINT64_MAX));
    CHECK(strlen(read_all(fds[0])) > 0);
    status_finished(s, &(struct status_end){0}, NULL, NULL);
    text = read_all(fds[0]);
    CHECK(strstr(text, "{\"event\":\"finished\",\"version\":1}\n") != NULL);
    CHECK_INT(fcntl(fds[1], F_GETFL) & O_NONBLOCK, 0);
    close_pipe(s, fds);
}

static void test_files(void)
{
    int fd = open("status.json", O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct status *s = NULL;
    char text[64] = "";

    CHECK_INT(write(fd, "#\n", 2), 2);
    CHECK_INT(status_open(fd, &s, NULL), 0);
    status_finished(s, &(struct status_end){0}, NULL, NULL);
    s = status_close(s);
    CHECK(pread(fd, text, sizeof(text) - 1, 0) > 0);
    CHECK_STR(text, "#\n{\"event\":\"finished\",\"version\":1}\n");
    close(fd);
    unlink("status.json");
}

static void test_refused(void)
{
    struct error_text text = {0};
    struct status *s = NULL;
    int fd = open("/dev/null", O_RDONLY);

    CHECK_INT(status_open(-1, &s, &text), 0);
    CHECK(s == NULL);
    CHECK_INT(status_open(fd, &s, &text), ERR_USAGE);
    CHECK(strstr(text.what, "not open for writing") && text.hint[0]);
    close(fd);
    CHECK_INT(status_open(fd, &s, &text), ERR_USAGE);
    CHECK(strstr(text.what, "not open") && !strstr(text.what, "for writing") && !s);
}

/* Without --status-fd. */
static void test_none(void)
{
    status_started(NULL, &(struct status_started){0});
    status_ready(NULL, 1, "", 1);
    CHECK(!status_samples_due(NULL, UINT64_MAX));
    status_samples(NULL, &counts, 1);
    status_snapshot(NULL, &counts, "x");
    status_finished(NULL, &(struct status_end){0}, &counts, "x");
    status_error(NULL, ERR_IO, NULL, true);
    CHECK(status_close(NULL) == NULL);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    TEST_RUN(test_events);
    TEST_RUN(test_errors);
    TEST_RUN(test_codes);
    TEST_RUN(test_long_lines);
    TEST_RUN(test_full_pipe);
    TEST_RUN(test_reader_gone);
    TEST_RUN(test_socket);
    TEST_RUN(test_files);
    TEST_RUN(test_refused);
    TEST_RUN(test_none);
    return test_finish("test_status");
}
