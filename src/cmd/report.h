/*
 * Messages shared by several commands.
 */
#ifndef CMD_REPORT_H
#define CMD_REPORT_H

#include "cmd/args.h"

#include <stdarg.h>
#include <stdio.h>

/* Where record and merge print their messages. Standard output belongs to the launched program and to `-o -`; but callers
 * of py-spy read its messages there. */
FILE *report_stream(const struct options *o, bool output_is_stdout);

/* Prints one line with the prefix "spyglass> " or "py-spy> ". */
__attribute__((format(printf, 3, 0))) void report_line(FILE *out, const struct options *o, const char *fmt,
                                                       va_list args);

/* Reports that no target was given; on a terminal, also lists the Python processes. Returns the exit status. */
int report_missing_target(const struct options *o);

/* Why a process is left out, in a few words: "not Python". */
const char *report_skip_reason(int error, enum err_reason reason);

/* `what` is why spyglass can read the process but not pause it, as part of a sentence: "process 4242 is tracing it". */
struct error_text report_pause_refusal(pid_t pid);

/* If a descendant of `pid`, which is not Python, is Python: replaces the hint with the command for it. False if none is. */
bool report_hint_python_below(struct error_text *text, const struct options *o, pid_t pid);

/* If processes in containers have `pid` in their own pid namespace, replaces the hint with their pids on this host. Only
 * a hint: `--pid` always means the pid in our own namespace. */
void report_hint_container_pid(struct error_text *text, pid_t pid);

/* What was left out because a file system does not answer, or because a helper process died (base/helper.h): one line each, as
 * "Note: ..." or as messages of a recording. */
#define REPORT_LOSS_ROOM 3072
struct helper_loss;
void report_loss(const struct helper_loss *loss, char ret[REPORT_LOSS_ROOM]);
/* Prints a note on standard error for each of them. */
void report_losses(void);

#endif
