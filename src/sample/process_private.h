/*
 * struct process, shared by the files that sample it: process.c attaches, process_sample.c goes through the threads,
 * native_threads.c adds threads without Python, emit_trace.c builds traces.
 */
#ifndef SAMPLE_PROCESS_PRIVATE_H
#define SAMPLE_PROCESS_PRIVATE_H

#include "sample/lock_waits.h"
#include "sample/merge_frames.h"
#include "sample/native.h"
#include "sample/native_cpu.h"
#include "sample/process.h"
#include "sample/running_threads.h"
#include "sample/shorten.h"
#include "sample/stack.h"
#include "sample/task_samples.h"
#include "sample/thread_table.h"
#include "target/files.h"
#include "target/run_as_user.h"
#include "target/system_call.h"

struct process {
    struct sampler *sampler;
    pid_t pid;
    uint64_t start_time;      /* identifies the process together with the pid */
    int pidfd;                /* -1 on kernels before 5.3 */
    struct run_as_user *user; /* read the process as this user; NULL: as ourselves */
    struct proc_info *info;   /* `own_info`, or in the process_node of the tree */
    struct proc_info own_info;
    struct snapshot *snapshot;
    struct mem *mem;  /* reads through `snapshot` */
    bool has_guarded; /* parts of it are on file systems that may stop answering: see mem_set_maps */
    const struct files *files;
    struct files own_files;       /* for a live process */
    const struct core_file *core; /* NULL: a live process */
    struct python py;
    struct code_cache *codes;
    struct short_names short_names; /* of the files of `codes` */
    struct py_threads threads;
    struct thread_table table;
    struct stack stack;
    struct frame *frames; /* of the current trace */
    size_t cap_frames;
    struct local *locals; /* of `frames` */
    size_t cap_locals;
    struct frame_source *sources; /* of `frames` */
    size_t cap_sources;
    struct tasks *tasks; /* for the awaiters of running tasks; NULL: not requested */
    struct task_samples task_samples;
    struct wait_reason wait; /* of the current trace */
    struct system_call call; /* that the thread slept in before its stack was read, with --native; else row is NULL */
    struct lock_waits locks;
    struct native native; /* opened at the first stack that needs it */
    struct merged_frames merged;
    struct sampled_thread *native_threads; /* all kernel threads; those without Python are sampled (--native-all) */
    size_t n_native_threads, cap_native_threads;
    uint64_t native_threads_listed_ns; /* when `native_threads` were listed */
    uint64_t native_threads_marked_ns; /* `listed_ns` when those with Python were marked */
    struct native_cpu native_cpu;
    uint64_t accounted_ns; /* CPU time that was attributed to stacks, or is known to belong to none */
    size_t n_failed;       /* consecutive samples that failed */
    uint64_t detected_ns;
    uint64_t listed_ns; /* when the threads were listed; 0: list them again */
    struct running_threads running;
    uint64_t looks;            /* samples for which the threads were listed and looked at */
    uint64_t now_ns;           /* start of this sample */
    uint64_t heads_checked_ns; /* when the heads of the thread lists were last checked for new threads */
    bool listed_after;         /* the threads were listed again after this sample had read them */
    bool check_heads;          /* check them with the next stack, in the same read */
    bool has_execed;           /* the process called exec: what we know about it is stale */
};

/* Detects the interpreter again after an exec, at most every 50 ms; ERR_STARTING if it is too early. */
int process_detect_again(struct process *p);

/* Lists the Python threads. 0 or an error. */
int process_list_threads(struct process *p, uint64_t now);

/* Reads the stack of a thread, and unwinds its native stack if requested. Returns what stack_read returns, or
 * ERR_NOMEM. */
int process_read_stack(struct process *p, const struct stack_source *src, struct sampled_thread *th);

/* The function of a code object, with its short file name. NULL if out of memory. */
const struct func *process_func(struct process *p, const struct code *code);

/* Which part of its line a frame executes: all but the text of the line. */
void process_position(const struct code *code, int64_t at, struct frame_source *ret);

/* Passes the stack that was just read to the sink, and returns the sink's result or ERR_NOMEM. */
int emit_stack(struct process *p, struct sampled_thread *th, bool active, process_sink sink, void *arg);
/* The same for a thread that there is no time to read: a marker takes the place of its stack. */
int emit_unread(struct process *p, struct sampled_thread *th, process_sink sink, void *arg);

/* Counts the CPU time of a thread since its last stack as lost: its stack cannot be read. */
void emit_lost(struct process *p, struct sampled_thread *th);

/* The thread was checked, but what it was doing is unknown: do not show a gap in its timeline. */
void emit_unknown(const struct process *p, struct sampled_thread *th);

/* Reuses the last stack of a thread that has not run since. True when the stack was passed to the sink, with the
 * sink's result in `ret`, or when it is not wanted because the thread is idle. False: read the stack. */
bool emit_unchanged(struct process *p, struct sampled_thread *th, process_sink sink, void *arg, int *ret);

/* Samples the threads that have no Python thread state (--native-all). */
int native_threads_sample(struct process *p, process_sink sink, void *arg);
void native_threads_free(struct process *p);

#endif
