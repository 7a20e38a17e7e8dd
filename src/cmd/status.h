/*
 * --status-fd: reports progress to the program that started spyglass, as one JSON object per line.
 * docs/machine-interface.md describes the events.
 *
 * A reader cannot disturb a recording. No function here blocks. An event that does not fit into the pipe is dropped, and
 * after a failed write all later ones are. Every function accepts NULL, the status of a run without --status-fd.
 */
#ifndef CMD_STATUS_H
#define CMD_STATUS_H

#include "cmd/error_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct status;

struct status_started {
    const char *program; /* "spyglass 0.1.0" */
    const char *command; /* "record" or "dump" */
    pid_t pid;           /* 0: a program to launch, or a core file */
    const char *format;  /* NULL: the command has none */
    const char *output;  /* NULL: standard output */
};

struct status_counts {
    uint64_t elapsed_ns;
    uint64_t samples;
    uint64_t errors;        /* stacks that could not be read */
    uint64_t missed;        /* ticks */
    uint64_t cpu_ns;        /* CPU time of the processes; 0: not measured */
    uint64_t native_cpu_ns; /* the part of it in threads without Python */
    size_t processes;
};

struct status_end {
    const char *reason;            /* "duration", "exited", "signal" or "parent"; NULL: the command ends by itself */
    const char *signal;            /* "SIGINT", with the reason "signal" */
    const struct error_text *text; /* why there are no samples; NULL: there are some */
};

/* Opens the descriptor `fd`, which we inherited; a negative one gives NULL. A program that we launch does not inherit it,
 * unless it is a standard stream. 0, ERR_NOMEM, or ERR_USAGE with `text` filled if it is not open for writing. */
int status_open(int fd, struct status **ret, struct error_text *text);
/* Returns NULL. */
struct status *status_close(struct status *s);

void status_started(struct status *s, const struct status_started *e);
/* Sampling begins. `command_line` is that of the process `pid`; NULL and 0: nothing is attached yet. */
void status_ready(struct status *s, pid_t pid, const char *command_line, size_t processes);
/* True if the last samples event is at least half a second old and the reader keeps up. `now_ns` is monotonic. */
bool status_samples_due(const struct status *s, uint64_t now_ns);
void status_samples(struct status *s, const struct status_counts *counts, uint64_t now_ns);
/* The output was written while the recording goes on. */
void status_snapshot(struct status *s, const struct status_counts *counts, const char *output);
/* `counts` and `output` are NULL for dump. */
void status_finished(struct status *s, const struct status_end *end, const struct status_counts *counts,
                     const char *output);
/* `fatal`: the command fails with it. */
void status_error(struct status *s, int code, const struct error_text *text, bool fatal);
/* True after status_finished, or a fatal error. */
bool status_has_ended(const struct status *s);
/* A process that was given is left out; the command goes on. */
void status_left_out(struct status *s, pid_t pid, int code, const struct error_text *text);

/* The name of an error code in an error event: "no_process". Never changes once released. */
const char *status_code(int code);

#endif
