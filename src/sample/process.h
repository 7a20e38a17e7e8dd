/*
 * One Python process: attach once, then sample the stacks of its threads any number of times.
 *
 *     r = process_attach(sampler, pid, patience_ns, &p, &note);
 *     r = process_sample(p, sink, arg);           // calls sink once per thread
 *     p = process_free(p);
 */
#ifndef SAMPLE_PROCESS_H
#define SAMPLE_PROCESS_H

#include "sample/sampler.h"

struct process;
struct core_file;
struct files;
struct mem;

/* 0; ERR_NO_PROCESS, ERR_PERMISSION, ERR_NOT_PYTHON, ERR_STARTING, ERR_VERSION and others, with `note` filled. Waits
 * up to `patience_ns` for an interpreter that is starting. */
int process_attach(struct sampler *s, pid_t pid, uint64_t patience_ns, struct process **ret, struct err_note *note);
/* Attaches to a fork of `parent` that has not called exec since, and reuses what is known about `parent`. On any error
 * but ERR_NOMEM, call process_attach instead. */
int process_attach_fork(struct sampler *s, pid_t pid, const struct process *parent, struct process **ret);
/* Opens the process in a core file. Borrows `core`, `files` and `mem`. */
int process_open_core(struct sampler *s, const struct core_file *core, const struct files *files, struct mem *mem,
                      struct process **ret, struct err_note *note);
struct process *process_free(struct process *p);

/* The process has called exec: the CPU time that its threads have used so far is not the new program's. */
void process_count_from_now(struct process *p);

/* Describes the process. Valid as long as the process, or after process_move_info as long as `to`, whose parent stays
 * as it is. */
const struct proc_info *process_info(const struct process *p);
void process_move_info(struct process *p, struct proc_info *to);

/* Receives one stack. The trace and its frames are valid during the call only. A nonzero return value ends the sample
 * and is passed on to the caller. */
typedef int (*process_sink)(const struct trace *trace, void *arg);

/* Samples the stack of each thread. Errors of single threads are counted in the sampler and skipped. ERR_GONE when the
 * process has ended; ERR_STARTING after an exec; other errors when nothing could be read. */
int process_sample(struct process *p, process_sink sink, void *arg);

/* With native stacks: reads symbols that will be needed, so that the first samples do not wait for them. 0 or ERR_NOMEM. */
int process_warm_up(struct process *p);

/* At the end of a recording: counts the CPU time of its threads that was not attributed to any stack. */
void process_settle(struct process *p);

/* True while the process that was attached exists. Another process with the same pid does not count. */
bool process_alive(const struct process *p);

/* True unless another process may have its pid. What was read before the call is then its own. A process that has exited keeps
 * its pid until its parent waits for it. */
bool process_has_pid(const struct process *p);

#endif
