/*
 * Messages shared by several commands.
 */
#include "cmd/report.h"

#include "base/text.h"
#include "sample/process.h"
#include "target/proc.h"

#include <stdlib.h>
#include <unistd.h>

void report_line(FILE *out, const struct options *o, const char *fmt, va_list args)
{
    char *line = NULL;

    fputs(args_prefix(o), out);
    if (vasprintf(&line, fmt, args) >= 0) {
        text_print_safe(out, line); /* it may hold paths */
        free(line);
    }
    fputc('\n', out);
    fflush(out);
}

int report_contradiction(const struct options *o, struct err_note *note)
{
    if (!o->nonblocking || !(o->native || o->native_all))
        return 0;
    err_note_what(note, ERR_USAGE,
                  "--native and --nonblocking cannot be combined: reading registers requires stopping the thread");
    err_note_hint(note, "Remove one of the two flags.");
    return ERR_USAGE;
}

#define COMMAND_COLUMNS 100

static void print_process(const struct proc_info *info)
{
    char command[4 * COMMAND_COLUMNS + 1];

    fprintf(stderr, "%9d  %d.%d.%d%-4s  ", (int)info->pid, info->major, info->minor, info->patch, info->version_suffix);
    /* Truncate long command lines, so that the list stays readable. */
    snprintf(command, sizeof(command), "%s", info->command);
    command[text_fit(command, COMMAND_COLUMNS)] = '\0';
    text_print_safe(stderr, command);
    fputc('\n', stderr);
}

/* Lists all Python processes that we can read. Returns their number. */
static size_t list_pythons(void)
{
    struct sampler *s = sampler_new(&(struct sampler_options){0});
    pid_t *pids;
    size_t n, found = 0;

    if (!s || proc_pids_read(&pids, &n) < 0) {
        sampler_free(s);
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        struct process *p;

        if (pids[i] == getpid() || process_attach(s, pids[i], 0, &p, NULL) < 0)
            continue;
        if (!found++)
            fprintf(stderr, "%9s  %-10s  %s\n", "PID", "PYTHON", "COMMAND");
        print_process(process_info(p));
        process_free(p);
    }
    free(pids);
    sampler_free(s);
    return found;
}

int report_missing_target(const struct options *o)
{
    struct err_note note = {0};
    const char *command = args_command_row(o->command)->name;

    err_note_what(&note, ERR_USAGE, "%s",
                  o->command == ARGS_DUMP ? "no process given; use --pid PID, or --core FILE for a core file"
                                          : "no process given; use --pid PID, or put a program to launch after --");
    err_note_hint(&note, "For more information try: %s %s --help", args_name(o), command);
    if (isatty(STDERR_FILENO) && !list_pythons())
        fprintf(stderr, "Found no Python process that you have permission to read.\n");
    return err_print(stderr, ERR_USAGE, &note);
}
