/*
 * A launched program that we also trace: its exit status goes to launch_poll(), and its stops to the tracer. Signals: none is
 * lost, and none is forwarded to a program that has been reaped.
 */
#include "cmd/signals.h"
#include "pause/tracer.h"
#include "target/launch.h"

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the program ---- */

static int wait_for_input(void *arg)
{
    char byte;

    (void)arg;
    _exit(read(STDIN_FILENO, &byte, 1) < 0);
}

/* As vfork() does: the main thread sleeps uninterruptibly until its child has read a byte. Then it waits for a signal. */
static int run_program(void)
{
    static char stack[65536] __attribute__((aligned(16)));

    clone(wait_for_input, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    pause();
    return 0;
}

static char state_of(pid_t pid)
{
    char path[32], text[256] = "";
    const char *end;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 'X';
    if (read(fd, text, sizeof(text) - 1) < 0)
        text[0] = '\0';
    close(fd);
    end = strrchr(text, ')');
    return end && end[1] ? end[2] : 'X';
}

/* For as long as it takes: Meson ends a test that hangs. */
static void wait_state(pid_t pid, char state)
{
    while (state_of(pid) != state)
        usleep(1000);
}

/* A program in vfork that the tracer has not been able to stop. Writing to `ret_input` lets the program continue. */
static bool start_late(struct launch *ret, struct tracer *tracer, int *ret_input)
{
    char self[] = "/proc/self/exe", arg[] = "--program";
    char *argv[] = {self, arg, NULL};
    struct launch_options options = {.before_reap = signals_forget_program};
    int ends[2], saved = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);

    CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
    dup2(ends[0], STDIN_FILENO);
    CHECK_INT(launch_start(argv, &options, ret, NULL), 0);
    dup2(saved, STDIN_FILENO);
    close(saved);
    close(ends[0]);
    *ret_input = ends[1];
    wait_state(ret->pid, 'D');
    tracer->child = ret->pid;
    if (tracer_attach(tracer, ret->pid, 0, false) == ERR_STOP && tracer->n_late == 1)
        return true;
    test_skip("ptrace is not permitted");
    kill(ret->pid, SIGKILL);
    launch_wait(ret, UINT64_MAX);
    launch_close(ret);
    close(ends[1]);
    return false;
}

static void test_killed_while_traced(void)
{
    struct tracer tracer = {0};
    struct launch l;
    int input;

    if (!start_late(&l, &tracer, &input))
        return;
    kill(l.pid, SIGKILL);
    wait_state(l.pid, 'Z');
    tracer_sweep(&tracer);
    CHECK_INT(tracer.n_late, 0);
    CHECK(launch_poll(&l));
    CHECK_INT(launch_exit_status(&l), 128 + SIGKILL);
    close(input);
    launch_close(&l);
}

static void test_stop_is_no_exit(void)
{
    struct tracer tracer = {0};
    struct launch l;
    int input;

    if (!start_late(&l, &tracer, &input))
        return;
    l.adopts = true; /* launch_poll() looks at all children */
    CHECK_INT(write(input, "x", 1), 1);
    wait_state(l.pid, 't');
    CHECK(!launch_poll(&l));
    CHECK_INT(launch_exit_status(&l), 0);
    tracer_sweep(&tracer);
    if (CHECK_INT(tracer.n_late, 0)) {
        wait_state(l.pid, 'S'); /* it runs again */
        kill(l.pid, SIGTERM);
        while (!launch_poll(&l))
            usleep(1000);
        CHECK_INT(launch_exit_status(&l), 128 + SIGTERM);
    } else {
        kill(l.pid, SIGKILL); /* it is still stopped */
    }
    close(input);
    launch_close(&l);
}

/* ---- signals ---- */

/* Takes requests twice, and stops before each. Exits with their number. */
static void take_twice(void)
{
    bool first, second;

    signals_catch(NULL);
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0)
        _exit(77);
    kill(getpid(), SIGSTOP);
    first = signals_take_snapshot();
    kill(getpid(), SIGSTOP);
    second = signals_take_snapshot();
    _exit(first + second);
}

static int resume(pid_t pid, enum __ptrace_request how, int sig)
{
    int status = 0;

    ptrace(how, pid, 0, (void *)(uintptr_t)sig);
    waitpid(pid, &status, 0);
    return status;
}

static bool is_stopped_by(int status, int sig)
{
    return WIFSTOPPED(status) && WSTOPSIG(status) == sig;
}

/* Whichever instruction of signals_take_snapshot() the signal comes after, exactly one call returns true. */
static void test_no_request_is_lost(void)
{
    bool done = false;

    for (int steps = 0; !done; steps++) {
        pid_t child = fork();
        int status = 0;

        if (child == 0)
            take_twice();
        waitpid(child, &status, 0);
        if (!is_stopped_by(status, SIGSTOP)) {
            test_skip("ptrace is not permitted");
            return;
        }
        for (int i = 0; i < steps && !done; i++)
            done = is_stopped_by(resume(child, PTRACE_SINGLESTEP, 0), SIGSTOP);
        if (!done)
            CHECK(is_stopped_by(resume(child, PTRACE_CONT, SIGUSR1), SIGSTOP));
        status = resume(child, PTRACE_CONT, 0);
        if (!done && !CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1))
            fprintf(stderr, "    after %d steps: status %#x\n", steps, (unsigned)status);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--program") == 0)
        return run_program();
    test_start(argc, argv);
    TEST_RUN(test_killed_while_traced);
    TEST_RUN(test_stop_is_no_exit);
    TEST_RUN(test_no_request_is_lost);
    return test_finish("test_launch");
}
