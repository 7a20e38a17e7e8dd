/*
 * Messages shared by several commands.
 */
#include "cmd/report.h"

#include "base/helper.h"
#include "base/text.h"
#include "cmd/list.h"
#include "sample/sampled_tree.h"
#include "target/access.h"
#include "target/container.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LISTED_MAX    4
#define SEARCHED_MAX  256
#define WRITE_WAIT_MS 200

FILE *report_stream(const struct options *o, bool output_is_stdout)
{
    return o->as_py_spy && !output_is_stdout ? stdout : stderr;
}

/* False if a pipe is full and nobody reads it: that must not stop a recording. */
static bool is_writable(FILE *out)
{
    struct pollfd p = {.fd = fileno(out), .events = POLLOUT};
    int n;

    if (out != stderr || isatty(p.fd)) /* Ctrl-S stops output to a terminal on purpose */
        return true;
    do
        n = poll(&p, 1, WRITE_WAIT_MS);
    while (n < 0 && errno == EINTR);
    return n != 0;
}

/* Standard error is not buffered, and a launched program may write to it, too: write the line in one piece. */
void report_line(FILE *out, const struct options *o, const char *fmt, va_list args)
{
    char *text = NULL, *line = NULL;
    size_t len = 0;
    FILE *whole = open_memstream(&line, &len);

    if (whole && vasprintf(&text, fmt, args) >= 0) {
        fputs(args_prefix(o), whole);
        text_print_safe(whole, text); /* it may hold paths */
        fputc('\n', whole);
        free(text);
    }
    if (whole && fclose(whole) == 0 && is_writable(out))
        fwrite(line, 1, len, out);
    free(line);
    fflush(out);
}

void report_loss(const struct helper_loss *loss, char ret[REPORT_LOSS_ROOM])
{
    if (loss->kind == HELPER_LOST_FILES)
        snprintf(ret, REPORT_LOSS_ROOM,
                 "the file system at %s does not answer: names and lines from %s and other files there are missing.",
                 loss->point[0] ? loss->point : "an unknown place", loss->path);
    else if (loss->kind == HELPER_LOST_PROCESS)
        snprintf(ret, REPORT_LOSS_ROOM,
                 "the memory of process %d does not answer, probably because of a hung file system: skipped it.",
                 (int)loss->pid);
    else if (loss->kind == HELPER_LOST_TIME)
        snprintf(ret, REPORT_LOSS_ROOM, "not enough time to read %s: names and lines from it are missing.", loss->path);
    else
        snprintf(
            ret, REPORT_LOSS_ROOM,
            "could not read the symbols of %s, perhaps for lack of memory: some of its names and lines are missing.",
            loss->path);
}

void report_losses(void)
{
    const struct helper_loss *losses;
    size_t n = helper_losses(&losses);

    for (size_t i = 0; i < n; i++) {
        char text[REPORT_LOSS_ROOM];

        report_loss(&losses[i], text);
        fputs("Note: ", stderr);
        text_print_safe(stderr, text);
        fputc('\n', stderr);
    }
}

const char *report_skip_reason(int error, enum err_reason reason)
{
    switch (reason) {
    case REASON_NOT_INITIALIZED:
        return "it has loaded Python but has not initialized it";
    case REASON_PYPY:
        return "PyPy is not supported";
    case REASON_FREE_THREADED:
        return "free-threaded builds are not supported";
    case REASON_ZOMBIE:
        return "zombie";
    default:
        return error == ERR_PERMISSION ? "permission denied" : err_name(error);
    }
}

struct error_text report_pause_refusal(pid_t pid)
{
    struct err_facts facts = access_pause_refusal(pid);
    struct error_text text = {0};

    error_text_explain(&text, ERR_STOP, &facts);
    return text;
}

void report_hint_container_pid(struct error_text *text, pid_t pid)
{
    pid_t pids[LISTED_MAX];
    size_t n = access_find_container_pids(pid, pids, LISTED_MAX), used = 0;
    char list[256] = "";
    struct container c;

    for (size_t i = 0; i < n; i++, used = strlen(list))
        if (container_of(pids[i], &c))
            snprintf(list + used, sizeof(list) - used, "%s%d (%s/%.12s)", i ? ", " : "", (int)pids[i], c.runtime, c.id);
        else
            snprintf(list + used, sizeof(list) - used, "%s%d", i ? ", " : "", (int)pids[i]);
    if (n)
        error_text_hint(text, "PID %d in the container is PID %s on this host.", (int)pid, list);
}

bool report_hint_python_below(struct error_text *text, const struct options *o, pid_t pid)
{
    struct sampler *s = sampler_new(&(struct sampler_options){0});
    struct process_tree tree = {.sampler = s, .subprocesses = true, .manual_attach = true};
    bool found = false;

    if (s && sampled_tree_add_root(&tree, pid, 0, false, NULL) == 0 && sampled_tree_refresh(&tree) == 0)
        for (size_t i = 1; i < tree.n && i <= SEARCHED_MAX && !found; i++) {
            found = !tree.items[i].is_profiler && sampled_tree_attach(&tree, &tree.items[i], 0) == 0;
            if (found)
                error_text_hint(
                    text,
                    "Process %d, which it started, runs Python: %s %s --pid %d (or add --subprocesses for all "
                    "processes that it started)",
                    (int)tree.items[i].pid, args_name(o), args_command_row(o->command)->name, (int)tree.items[i].pid);
        }
    process_tree_free(&tree);
    sampler_free(s);
    return found;
}

int report_missing_target(const struct options *o)
{
    const char *command = args_command_row(o->command)->name;
    struct error_text text = {0};
    struct list_counts counts;

    error_text_what(&text, ERR_USAGE, "no process given; use %sPID, or %s", o->as_py_spy ? "--pid " : "",
                    o->command == ARGS_DUMP ? "--core FILE for a core file" : "put a program to launch after --");
    error_text_hint(&text, "To list the Python processes, run: %s list", args_name(o));
    if (isatty(STDERR_FILENO) && list_write(false, SIZE_MAX, stderr, &counts) == 0 && counts.shown)
        error_text_hint(&text, "Choose one of the processes above: %s %s %sPID", args_name(o), command,
                        o->as_py_spy ? "--pid " : "");
    return error_text_print(stderr, ERR_USAGE, &text);
}
