/*
 * One Python process that is sampled: attached once, then asked for its threads' stacks again and again.
 *
 *     r = process_attach(sampler, pid, &p, &note);
 *     r = process_sample(p, sink, arg);           // calls sink once for each thread's stack
 *     p = process_free(p);
 */
#ifndef SAMPLE_PROCESS_H
#define SAMPLE_PROCESS_H

#include "sample/sampler.h"

struct process;
struct core_file;
struct files;
struct mem;

/* 0; ERR_NO_PROCESS, ERR_PERMISSION, ERR_NOT_PYTHON, ERR_STARTING, ERR_VERSION, … with `note` filled. Waits up to
 * `patience_ns` for a Python that is just starting. */
int process_attach(struct sampler *s, pid_t pid, uint64_t patience_ns, struct process **ret, struct err_note *note);
/* The same for one that was forked from `like` and has executed nothing since: what is known of that one holds for it.
 * An error when that turns out not to be so: then process_attach. */
int process_attach_fork(struct sampler *s, pid_t pid, const struct process *parent, struct process **ret);
/* The same for what a core file has of a process: its memory, the files it had. All are borrowed. */
int process_open_core(struct sampler *s, const struct core_file *core, const struct files *files, struct mem *mem,
                      struct process **ret, struct err_note *note);
struct process *process_free(struct process *p);

/* What is shown of it. Valid as long as the process, or as long as where it was moved to: `to` keeps its parent. */
const struct proc_info *process_info(const struct process *p);
void process_move_info(struct process *p, struct proc_info *to);

/* Takes what there is to `sink`; the trace and its frames are good only during the call. A nonzero return of the
 * sink ends the sampling and is returned. */
typedef int (*process_sink)(const struct trace *trace, void *arg);

/* One stack of each thread. Failures of single threads are counted in the sampler and passed over.
 * ERR_GONE when the process has ended; other errors when nothing could be read. */
int process_sample(struct process *p, process_sink sink, void *arg);

/* True while the very process that was attached is there. */
bool process_alive(const struct process *p);

#endif
