/*
 * The source lines of a dump (--source).
 */
#ifndef CMD_DUMP_SOURCE_H
#define CMD_DUMP_SOURCE_H

#include "sample/process.h"
#include "sample/task_set.h"

#define CHANGED_FILES_SHOWN 8

/* Source files that are newer than the process. */
struct changed_files {
    const char *names[CHANGED_FILES_SHOWN]; /* the first ones; interned */
    size_t n;                               /* all */
};

/* Reads the source line of each frame. The frames belong to the caller, and have a struct frame_source. */
void dump_source_read(struct process *p, const struct trace *traces, size_t n, struct changed_files *changed);

/* The same for the frames of tasks. */
void dump_source_read_tasks(struct process *p, const struct task_set *set, struct changed_files *changed);

/* Prints a note on standard error for each of them. */
void dump_source_note(const struct changed_files *changed, const char *since);

#endif
