/*
 * Entry point: sets up the process state that every command relies on (see cmd.h), runs one command, and checks
 * standard output at the end.
 */
#include "base/hash.h"
#include "base/helper.h"
#include "cmd/build_info.h"
#include "cmd/cmd.h"
#include "cmd/log_session.h"
#include "cmd/offer.h"
#include "cmd/status.h"
#include "target/setuid_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* The status that a shell reports for a program killed by SIGPIPE. */
enum { STATUS_CLOSED_PIPE = 128 + SIGPIPE };

static const struct cmd cmds[ARGS_COMMANDS_] = {
    [ARGS_RECORD] = {cmd_record, false, true}, [ARGS_DUMP] = {cmd_dump, true, true},
    [ARGS_LIST] = {cmd_list, true, true},      [ARGS_MERGE] = {cmd_merge, false, true},
    [ARGS_GROUP] = {cmd_group, true, true},    [ARGS_RAY] = {cmd_ray, true, false},
    [ARGS_DOCTOR] = {cmd_doctor, true, true},  [ARGS_COMPLETIONS] = {cmd_completions, true, false},
};

/* Otherwise a file opened later could become descriptor 0, 1 or 2 and receive our messages. Reading or writing must still fail,
 * as on a closed descriptor: output that goes nowhere is an error. */
static void open_standard_fds(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_PATH) != fd)
            _exit(1);
}

/* The signal mask and ignored signals survive exec. Ray's actors block SIGINT but use it to stop us. */
static void reset_signals(void)
{
    sigset_t wanted;

    sigemptyset(&wanted);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGHUP);
    sigaddset(&wanted, SIGUSR1);
    sigaddset(&wanted, SIGCHLD);
    sigaddset(&wanted, SIGQUIT);
    sigprocmask(SIG_UNBLOCK, &wanted, NULL);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGINT, SIG_DFL); /* a shell without job control ignores it in background jobs */
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

static bool stdout_is_closed_pipe(int error)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};

    return error == EPIPE || (poll(&p, 1, 0) > 0 && (p.revents & POLLERR));
}

/* Flushes standard output. Returns `status`, or an error status if a write failed. */
static int finish_stdout(int status, struct status *events)
{
    struct error_text text = {0};

    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) {
        if (!status_has_ended(events))
            status_finished(events, &(struct status_end){0}, NULL, NULL);
        return status;
    }
    int error = errno;
    if ((fcntl(STDOUT_FILENO, F_GETFL) & O_ACCMODE) == O_RDONLY) {
        error_text_what(&text, ERR_DISK, "standard output is not open for writing");
        error_text_hint(&text, "Redirect it to a file or a pipe.");
    } else {
        error_text_what(&text, ERR_DISK, "standard output: %s", strerror(error ? error : EIO));
        error_text_hint(&text, "Free some disk space, or redirect the output elsewhere.");
    }
    if (!status_has_ended(events))
        status_error(events, ERR_DISK, &text, true);
    return stdout_is_closed_pipe(error) ? STATUS_CLOSED_PIPE : error_text_print(stderr, ERR_DISK, &text);
}

static int show_help(const struct options *o)
{
    help_write(o, o->bare ? stderr : stdout);
    return o->bare ? 2 : finish_stdout(0, NULL);
}

static int show_version(const struct options *o)
{
    puts(args_version(o));
    if (o->verbose && !o->as_py_spy) /* callers of py-spy expect one line */
        build_info_write(stdout);
    return finish_stdout(0, NULL);
}

/* `spyglass NAME`: an unknown command may be the name of a process. */
static void offer_name(const struct options *o, struct error_text *text)
{
    struct error_text offer = {0};

    if (offer_processes(o, &offer) < 0)
        *text = offer;
    helper_end();
}

/* Bad arguments, or a descriptor that is not open. The caller hears of it on --status-fd, if that came before the mistake. */
static int fail_start(struct options *o, int error, const struct error_text *text)
{
    if (!o->status)
        status_open(o->status_fd, &o->status, NULL);
    status_error(o->status, error, text, true);
    status_close(o->status);
    return error_text_print(stderr, error, text);
}

int main(int argc, char **argv)
{
    struct options o = {.status_fd = -1};
    struct err_note note = {0};
    struct error_text text = {0};
    struct launch_origin origin;

    hash_seed_randomize();
    launch_origin_read(&origin);
    open_standard_fds();
    reset_signals();
    int r = error_text_explain(&text, setuid_guard_drop_privileges(&note), &note.facts);
    if (r == 0)
        r = args_parse(argc, argv, &o, &text);
    if (r == ERR_USAGE && o.word && o.command == ARGS_NONE)
        offer_name(&o, &text);
    if (r == 0)
        r = status_open(o.status_fd, &o.status, &text);
    if (r < 0)
        return fail_start(&o, r, &text);
    if (o.show_version)
        return show_version(&o);
    if (o.show_help)
        return show_help(&o);
    o.origin = &origin;
    r = cmds[o.command].logs ? log_session_start(&o, build_info_write, &text) : 0;
    if (r < 0)
        return error_text_print(stderr, r, &text);
    int status = cmds[o.command].run(&o);
    if (cmds[o.command].prints)
        status = finish_stdout(status, o.status);
    status_close(o.status);
    helper_end();
    log_session_end(status);
    return status;
}
