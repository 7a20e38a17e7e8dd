/*
 * pause/hold_guard: a process that is stopped while the guard is on resumes by itself, as often as it is stopped; without the
 * guard it stays stopped. And it resumes the thread that it holds.
 */
#include "base/clock.h"
#include "pause/hold_guard.h"
#include "pause/tracer.h"
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static int next_change(pid_t pid)
{
    int status = -1;

    return waitpid(pid, &status, WUNTRACED | WCONTINUED) == pid ? status : -1;
}

/* Stops, and when it runs again waits until the parent knows: waitpid shows the latest change only. */
static void stop_with(int sig, int told)
{
    char byte;

    raise(sig);
    if (read(told, &byte, 1) != 1)
        _exit(8);
}

/* Stops six times with the guard on, once after it is off, and then with Ctrl-Z's signal, which takes effect at the end. */
static void stop_often(int told)
{
    for (int i = 0; i < 3; i++) {
        hold_guard_begin();
        stop_with(SIGSTOP, told);
        stop_with(SIGSTOP, told);
        hold_guard_end();
    }
    stop_with(SIGSTOP, told);
    hold_guard_begin();
    raise(SIGTSTP);
    hold_guard_end();
    _exit(7);
}

static void test_resumes(void)
{
    pid_t pid;
    int status, tell[2];

    if (!CHECK(pipe(tell) == 0))
        return;
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        setpgid(0, 0); /* SIGTSTP does not stop an orphaned process group, and ours may be one */
        stop_often(tell[0]);
    }
    for (int i = 0; i < 6; i++) {
        status = next_change(pid);
        CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
        CHECK(WIFCONTINUED(next_change(pid)) && write(tell[1], "x", 1) == 1);
    }
    status = next_change(pid);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    kill(pid, SIGCONT);
    CHECK(WIFCONTINUED(next_change(pid)) && write(tell[1], "x", 1) == 1);
    status = next_change(pid);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTSTP);
    kill(pid, SIGCONT);
    status = next_change(pid);
    if (WIFCONTINUED(status)) /* unless it has exited before we looked */
        status = next_change(pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    close(tell[0]);
    close(tell[1]);
}

/* Holds the target, is stopped, and lets it go. */
static void hold_and_stop(pid_t target)
{
    struct tracer s = {0};
    int r = tracer_attach(&s, target, 60 * NS_PER_S, false);

    if (r == 0) {
        raise(SIGSTOP);
        tracer_detach(&s);
    }
    _exit(r == 0 ? 7 : 8);
}

static void test_releases(void)
{
    pid_t target, holder;
    int status, pipes[2];
    char byte;

    if (!CHECK(pipe(pipes) == 0))
        return;
    fflush(NULL);
    target = fork();
    if (target == 0)
        for (;;)
            if (write(pipes[1], "x", 1) < 0)
                _exit(1);
    holder = fork();
    if (holder == 0)
        hold_and_stop(target);
    status = next_change(holder);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 8) {
        test_skip("ptrace is not allowed here");
    } else {
        CHECK(WIFSTOPPED(status));
        status = next_change(holder);
        if (WIFCONTINUED(status))
            status = next_change(holder);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        for (int i = 0; i < 1 << 17; i++) /* more than the pipe can hold: the target runs */
            if (read(pipes[0], &byte, 1) != 1 && !CHECK(false))
                break;
    }
    kill(target, SIGKILL);
    waitpid(target, NULL, 0);
    close(pipes[0]);
    close(pipes[1]);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_resumes);
    TEST_RUN(test_releases);
    return test_finish("test_hold_guard");
}
