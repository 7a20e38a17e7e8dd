/*
 * Lines of the target's source files, for `dump --source`. A helper process reads them: see base/helper.h.
 */
#ifndef SAMPLE_SOURCE_LINES_H
#define SAMPLE_SOURCE_LINES_H

#include "sample/process.h"

#define SOURCE_LINE_MAX 512 /* bytes shown of a line */

/* A line to read. `file` is interned, as in a struct func. */
struct source_line {
    const char *file;
    int line;
    bool native;  /* `file` comes from debug info */
    bool changed; /* set if the file has changed since the process started: it may be another line now */
    struct frame_source
        *to; /* its `text` is set to the line, interned; NULL if it is not available, or may be another one */
};

/* Reads the lines, each file once, as the target sees its files, and with no more rights than the target's user has. Sorts
 * `items` by file and line. */
void source_lines_read(struct process *p, struct source_line *items, size_t n);

#endif
