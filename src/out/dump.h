/*
 * The output of `dump`, as text and as JSON, compatible with py-spy's. Traces are grouped by process, with the main
 * thread first. The first process is the one that the user named; the others are its descendants.
 */
#ifndef OUT_DUMP_H
#define OUT_DUMP_H

#include "sample/trace.h"

#include <stdio.h>

/* For text only. */
struct dump_options {
    bool full_filenames;
    bool as_py_spy;    /* a thread that waits for the GIL is "idle", since callers parse the status */
    size_t max_frames; /* frames shown of each thread, half innermost and half outermost; 0 means all */
};

/* Prints one process as text. All but the first are preceded by a blank line and a rule. */
void dump_text(const struct proc_info *process, const struct trace *traces, size_t n_traces,
               const struct dump_options *options, bool first, FILE *out);

/* Prints the traces of all processes as one JSON array. Frames have both the full and the short file name. */
void dump_json(const struct trace *traces, size_t n_traces, FILE *out);

#endif
