/*
 * A core file and the files it refers to, opened for dump.
 */
#ifndef CMD_POSTMORTEM_H
#define CMD_POSTMORTEM_H

#include "cmd/error_text.h"
#include "sample/process.h"
#include "target/files.h"

struct postmortem {
    struct core_file *core;
    struct files files;
    struct mem *mem;
    struct process *process; /* NULL: no Python found */
};

/* `root` and `exe` are the flag values, or NULL. Call postmortem_report and postmortem_close even on failure. */
int postmortem_open(struct postmortem *pm, struct sampler *s, const char *path, const char *root, const char *exe,
                    struct error_text *text);
int postmortem_sample(struct postmortem *pm, process_sink sink, void *arg, struct error_text *text);
/* Prints notes to standard error on what was missing from the core file. */
void postmortem_report(const struct postmortem *pm);
void postmortem_close(struct postmortem *pm);

#endif
