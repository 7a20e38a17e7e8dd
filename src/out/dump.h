/*
 * The output of `dump`, as text and as JSON, compatible with py-spy's. Traces are grouped by process, with the main
 * thread first; then come the tasks of its event loops. The first process is the one that the user named; the others are its descendants.
 */
#ifndef OUT_DUMP_H
#define OUT_DUMP_H

#include "sample/task_set.h"
#include "sample/verdict.h"

#include <stdio.h>

struct dump_options {
    bool verdict; /* say why the process does not continue */
    /* For JSON only. */
    bool several; /* also describe processes without a parent, since the reader did not name a single one */
    /* For text only. */
    bool full_filenames;
    bool as_py_spy;    /* a thread that waits for the GIL is "idle", since callers parse the status */
    bool color;        /* for a terminal */
    size_t max_frames; /* frames shown of each thread, half innermost and half outermost; 0 means all */
};

/* Prints one process as text. All but the first are preceded by a blank line and a rule. */
void dump_text(const struct proc_info *process, const struct trace *traces, size_t n_traces,
               const struct dump_options *options, bool first, FILE *out);

/* Prints the tasks of the process that was printed last. 0 or ERR_NOMEM. */
int dump_text_tasks(const struct task_set *set, const struct dump_options *options, FILE *out);

/* Prints the traces of all processes as one JSON array. Frames have both the full and the short file name. A thread that runs an event
 * loop has its tasks, from the set of its process; there may be no sets. */
void dump_json(const struct trace *traces, size_t n_traces, const struct task_set *sets, size_t n_sets,
               const struct dump_options *options, FILE *out);

/* Prints why the process does not continue, as one or more sentences without a newline. Prints nothing for VERDICT_NONE. */
void dump_text_verdict(const struct verdict *verdict, FILE *out);

#endif
