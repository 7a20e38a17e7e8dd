/*
 * fork, exec, wait. Called by cmd/record.
 */
#include "target/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child: never returns. What is ignored here would stay ignored there. */
static void child_exec(char *const argv[], int output, int report)
{
    int error;

    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    if (output >= 0) {
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
    }
    execvp(argv[0], argv);
    error = errno;
    if (write(report, &error, sizeof(error)) < 0)
        _exit(126);
    _exit(127);
}

/* Empty when exec closed the pipe; otherwise why it failed. */
static int exec_error(int report)
{
    int error = 0;
    ssize_t got;

    do
        got = read(report, &error, sizeof(error));
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof(error) ? error : 0;
}

int launch_start(char *const argv[], bool capture, struct launch *ret, struct err_note *note)
{
    struct launch l = {.output = capture ? memfd_create("output", MFD_CLOEXEC) : -1};
    int report[2], error;

    if (pipe2(report, O_CLOEXEC) < 0)
        return err_note_what(note, ERR_LAUNCH, "%s", strerror(errno));
    l.pid = fork();
    if (l.pid == 0)
        child_exec(argv, l.output, report[1]);
    close(report[1]);
    error = l.pid < 0 ? errno : exec_error(report[0]);
    close(report[0]);
    if (!error) {
        *ret = l;
        return 0;
    }
    if (l.pid > 0)
        waitpid(l.pid, NULL, 0);
    launch_close(&l);
    err_note_what(note, ERR_LAUNCH, "'%s': %s", argv[0], strerror(error));
    err_note_hint(note, "Give the program and its arguments after --, as you would in a shell.");
    return ERR_LAUNCH;
}

void launch_set_ended(struct launch *l, int status)
{
    l->ended = true;
    l->status = status;
}

bool launch_poll(struct launch *l)
{
    int status;

    if (!l->ended && waitpid(l->pid, &status, WNOHANG) == l->pid)
        launch_set_ended(l, status);
    return l->ended;
}

int launch_exit_status(const struct launch *l)
{
    if (!l->ended)
        return 0;
    return WIFSIGNALED(l->status) ? 128 + WTERMSIG(l->status) : WEXITSTATUS(l->status);
}

void launch_show_output(const struct launch *l, FILE *out)
{
    char buf[4096];
    off_t at = 0;
    ssize_t got;

    while (l->output >= 0 && (got = pread(l->output, buf, sizeof(buf), at)) > 0) {
        fwrite(buf, 1, (size_t)got, out);
        at += got;
    }
}

void launch_close(struct launch *l)
{
    if (l->output >= 0)
        close(l->output);
    l->output = -1;
}
