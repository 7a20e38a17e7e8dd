/*
 * A core file and what belongs to it, opened for a command.
 *
 *     r = postmortem_open(&pm, sampler, "core.1234", NULL, NULL, &note);
 *     if (r == 0)
 *         r = postmortem_sample(&pm, sink, arg, &note);
 *     postmortem_report(&pm);                              // what was missing, to standard error
 *     postmortem_close(&pm);
 */
#ifndef CMD_POSTMORTEM_H
#define CMD_POSTMORTEM_H

#include "sample/process.h"
#include "target/files.h"

struct postmortem {
    struct core_file *core;
    struct files files;
    struct mem *mem;
    struct process *process; /* NULL: no Python was found */
};

/* `root` and `exe` are as the user gave them, or NULL. On failure `pm` is to be reported and closed all the same. */
int postmortem_open(struct postmortem *pm, struct sampler *s, const char *path, const char *root, const char *exe,
                    struct err_note *note);
int postmortem_sample(struct postmortem *pm, process_sink sink, void *arg, struct err_note *note);
void postmortem_report(const struct postmortem *pm);
void postmortem_close(struct postmortem *pm);

#endif
