/*
 * Functions that run in a helper process: answers, errors, and helpers that die or hang.
 */
#include "base/clock.h"
#include "base/deadline.h"
#include "base/helper.h"

#include "base/err.h"
#include "base/mounts.h"
#include "test.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static void on_signal(int sig)
{
    (void)sig;
}

static int run_echo(struct unpack *in, struct pack *out)
{
    uint64_t number = unpack_number(in);
    const char *text = unpack_text(in), *none = unpack_text(in);
    size_t len;
    const void *bytes = unpack_bytes(in, &len);

    if (in->failed || none || !helper_is_inside())
        return ERR_READ;
    pack_number(out, number);
    pack_text(out, text);
    pack_bytes(out, bytes, len);
    return 0;
}

static int run_fail(struct unpack *in, struct pack *out)
{
    pack_number(out, unpack_number(in));
    return ERR_GONE;
}

static int run_exit(struct unpack *in, struct pack *out)
{
    (void)in, (void)out;
    _exit(1);
}

static int run_abort(struct unpack *in, struct pack *out)
{
    (void)in, (void)out;
    abort();
}

static int run_hang(struct unpack *in, struct pack *out)
{
    (void)in, (void)out;
    for (;;)
        pause();
    return 0;
}

/* A helper that computes is not stuck. */
static int run_compute(struct unpack *in, struct pack *out)
{
    uint64_t end = clock_now_ns() + 3 * NS_PER_S; /* longer than a helper may be stuck */

    while (clock_now_ns() < end)
        ;
    return run_echo(in, out);
}

static int run_pid(struct unpack *in, struct pack *out)
{
    (void)in;
    pack_number(out, (uint64_t)getpid());
    return 0;
}

static int run_descriptors(struct unpack *in, struct pack *out)
{
    uint64_t n = 0;

    (void)in;
    for (int fd = 3; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    pack_number(out, n);
    return 0;
}

/* Signals that are caught or blocked, and whether the scheduling policy is another than the normal one. */
static int run_inherited(struct unpack *in, struct pack *out)
{
    uint64_t n = sched_getscheduler(0) != SCHED_OTHER;
    struct sigaction action;
    sigset_t blocked;

    (void)in;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (int sig = 1; sig < SIGRTMAX; sig++)
        n += sigismember(&blocked, sig) == 1;
    for (int sig = 1; sig < SIGRTMAX; sig++)
        n += sigaction(sig, NULL, &action) == 0 && action.sa_handler == on_signal;
    pack_number(out, n + 1);
    return 0;
}

static int call(helper_function f, struct helper_answer *ret)
{
    struct pack in = {0};
    int r;

    pack_number(&in, 42);
    r = helper_call(f, &in, &(struct helper_about){.path = "/some/file"}, ret);
    pack_free(&in);
    return r;
}

static uint64_t call_number(helper_function f)
{
    struct helper_answer answer;
    uint64_t n = call(f, &answer) == 0 ? unpack_number(&answer.out) : 0;

    helper_answer_free(&answer);
    return n;
}

static void check_echo(helper_function f, size_t len)
{
    struct helper_answer answer;
    struct pack in = {0};
    char *bytes = malloc(len + 1);
    const void *got;
    size_t got_len;

    memset(bytes, 'x', len);
    pack_number(&in, 42);
    pack_text(&in, "text");
    pack_text(&in, NULL);
    pack_bytes(&in, bytes, len);
    CHECK_INT(helper_call(f, &in, &(struct helper_about){.pid = 0}, &answer), 0);
    CHECK_INT(unpack_number(&answer.out), 42);
    CHECK_STR(unpack_text(&answer.out), "text");
    got = unpack_bytes(&answer.out, &got_len);
    CHECK(got && got_len == len && memcmp(got, bytes, len) == 0);
    CHECK(answer.out.left == 0 && !answer.out.failed);
    CHECK_INT(unpack_number(&answer.out), 0); /* beyond the end */
    CHECK(answer.out.failed && !unpack_text(&answer.out));
    helper_answer_free(&answer);
    pack_free(&in);
    free(bytes);
}

static void test_answers(void)
{
    struct helper_answer answer;
    pid_t pid;

    check_echo(run_echo, 0);
    check_echo(run_echo, 100);
    check_echo(run_echo, (size_t)8192 - 40);
    check_echo(run_echo, (size_t)10 << 20);
    CHECK_INT(call(run_fail, &answer), ERR_GONE);
    CHECK(!answer.bytes);
    pid = (pid_t)call_number(run_pid);
    CHECK(pid > 0 && pid != getpid() && helper_is(pid) && !helper_is(getpid()));
    CHECK_INT((pid_t)call_number(run_pid), pid); /* the same helper serves all calls */
    CHECK(!helper_is_inside());
}

/* It keeps none of our descriptors and signal handlers, and is nobody's child to wait for. */
static void test_isolation(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGTSTP, SIGXCPU};
    sigset_t blocked, before;
    int fds[2];

    CHECK_INT(pipe(fds), 0);
    CHECK_INT(call_number(run_exit), 0);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        signal(signals[i], on_signal);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTSTP);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    CHECK_INT(call_number(run_descriptors), 1);
    CHECK_INT(call_number(run_inherited), 1);
    CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);
    sigprocmask(SIG_SETMASK, &before, NULL);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        signal(signals[i], SIG_DFL);
    close(fds[0]);
    close(fds[1]);
}

static void test_death(void)
{
    const struct helper_loss *losses;
    uint64_t before = helper_generation();

    CHECK_INT(call(run_exit, NULL), HELPER_DIED);
    CHECK(helper_generation() != before);
    before = helper_generation();
    CHECK_INT(helper_generation(), before);
    CHECK_INT(call(run_abort, NULL), HELPER_DIED);
    check_echo(run_echo, 100);
    CHECK_INT(helper_losses(&losses), 1); /* each file is reported once */
    CHECK_INT(losses[0].kind, HELPER_LOST_SYMBOLS);
    CHECK_STR(losses[0].path, "/some/file");
}

static void test_hang(void)
{
    const struct helper_loss *losses;
    pid_t pid = (pid_t)call_number(run_pid);

    check_echo(run_compute, 100);
    CHECK_INT((pid_t)call_number(run_pid), pid);
    CHECK_INT(call(run_hang, NULL), HELPER_STUCK);
    CHECK((pid_t)call_number(run_pid) != pid);
    CHECK_INT(helper_losses(&losses), 2);
    CHECK_INT(losses[1].kind, HELPER_LOST_FILES);
    CHECK(!helper_skips_device(0) && !helper_skips_device(1));
}

/* After the deadline nothing is waited for. Names are given up before it. */
static void test_deadline(void)
{
    const struct helper_about names = {.path = "/names", .names = true};
    const struct helper_loss *losses;
    struct pack in = {0};
    size_t before = helper_losses(&losses);
    pid_t pid = (pid_t)call_number(run_pid);

    CHECK(!deadline_passed() && deadline_cap(5) == 5 && deadline_cap(UINT64_MAX) == UINT64_MAX);
    deadline_set(100 * NS_PER_MS);
    CHECK(deadline_cap(UINT64_MAX) <= 100 * NS_PER_MS);
    CHECK_INT(call(run_hang, NULL), HELPER_LATE); /* sooner than a hang is noticed */
    CHECK(deadline_passed() && deadline_passed_for_names() && deadline_cap(UINT64_MAX) == 0);
    CHECK_INT(call(run_echo, NULL), HELPER_LATE);
    deadline_set(1000 * NS_PER_S);
    CHECK(!deadline_passed() && !deadline_passed_for_names());
    CHECK((pid_t)call_number(run_pid) != pid);
    deadline_set(2);
    CHECK_INT(helper_call(run_echo, &in, &names, NULL), HELPER_LATE);
    deadline_set(0);
    CHECK(helper_call(run_echo, &in, &names, NULL) != HELPER_LATE);
    CHECK_INT(helper_losses(&losses), before + 2);
    CHECK_INT(losses[before].kind, HELPER_LOST_TIME);
    CHECK_STR(losses[before + 1].path, "/names");
}

/* Nothing is left, not even a zombie. The next call starts another helper. */
static void test_end(void)
{
    pid_t pid = (pid_t)call_number(run_pid);

    CHECK(kill(pid, 0) == 0);
    helper_end();
    CHECK(kill(pid, 0) < 0 && !helper_is(pid));
    CHECK((pid_t)call_number(run_pid) != pid);
    helper_end();
}

/* As a user who has as many processes as allowed. */
static int call_without_fork(void)
{
    struct rlimit none = {0, 0};

    if ((geteuid() == 0 && setuid(NOBODY) < 0) || setrlimit(RLIMIT_NPROC, &none) < 0)
        return 0; /* cannot be tried here */
    return (pid_t)call_number(run_pid) != getpid();
}

/* If we cannot fork, we look at the files ourselves. Before all other tests: a helper that runs already would answer. */
static void test_cannot_fork(void)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0)
        _exit(call_without_fork());
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_mounts(void)
{
    struct mount root, proc;

    CHECK(mounts_contain("/", "/a") && mounts_contain("/a", "/a") && mounts_contain("/a", "/a/b"));
    CHECK(!mounts_contain("/a", "/ab") && !mounts_contain("/a/b", "/a"));
    CHECK(mounts_find(0, 0, "/", &root) && mounts_find(getpid(), 0, "/proc/self/maps", &proc));
    CHECK_STR(root.point, "/");
    CHECK_STR(proc.point, "/proc");
    CHECK(proc.is_local && proc.device != root.device);
    CHECK(mounts_find(0, proc.device, "/", &root) && strcmp(root.point, "/") != 0); /* the device decides */
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_cannot_fork);
    TEST_RUN(test_answers);
    TEST_RUN(test_isolation);
    TEST_RUN(test_death);
    TEST_RUN(test_hang);
    TEST_RUN(test_deadline);
    TEST_RUN(test_end);
    TEST_RUN(test_mounts);
    return test_finish("test_helper");
}
