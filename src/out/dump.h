/*
 * dump's two forms: traces -> bytes, in the shape that py-spy's callers parse. Traces come process by
 * process, main thread first; the first process is the one asked for, the others its descendants.
 */
#ifndef OUT_DUMP_H
#define OUT_DUMP_H

#include "sample/trace.h"

#include <stdio.h>

struct dump_options {
    bool full_filenames;
    size_t max_frames; /* of a thread in text: the innermost and outermost ones; 0: all */
};

/* One process as text. `first` is false for each further one (blank line, a rule, its parent's line). */
void dump_text(const struct proc_info *process, const struct trace *traces, size_t n_traces,
               const struct dump_options *options, bool first, FILE *out);

/* All traces of all processes as one JSON array. */
void dump_json(const struct trace *traces, size_t n_traces, const struct dump_options *options, FILE *out);

#endif
