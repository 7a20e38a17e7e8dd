/*
 * What a process is to the files that sample it: process.c attaches, process_sample.c goes over its threads, deliver.c
 * makes traces.
 */
#ifndef SAMPLE_PROCESS_PRIVATE_H
#define SAMPLE_PROCESS_PRIVATE_H

#include "sample/merge_frames.h"
#include "sample/native.h"
#include "sample/process.h"
#include "sample/running_threads.h"
#include "sample/stack.h"
#include "sample/thread_table.h"
#include "target/files.h"
#include "target/run_as_user.h"

struct process {
    struct sampler *sampler;
    pid_t pid;
    uint64_t start_time;      /* with the pid it names the process for good */
    int pidfd;                /* -1 on kernels before 5.3 */
    struct run_as_user *user; /* as whom it is read; NULL: as ourselves */
    struct proc_info *info;   /* `own_info`, or where the tree of processes keeps it */
    struct proc_info own_info;
    struct snapshot *snapshot;
    struct mem *mem; /* through `snapshot` */
    const struct files *files;
    struct files own_files;       /* of a live process */
    const struct core_file *core; /* all that is left of it; NULL: it is alive */
    struct python py;
    struct code_cache *codes;
    struct py_threads threads;
    struct thread_table table;
    struct stack stack;
    struct frame *frames; /* of the trace that is delivered */
    size_t cap_frames;
    struct local *locals; /* of these */
    size_t cap_locals;
    struct native native; /* opened when it is asked for */
    struct merged_frames merged;
    struct sampled_thread *native_threads; /* threads without Python, when they are asked for */
    size_t n_native_threads, cap_native_threads;
    uint64_t native_threads_listed_ns; /* when these were looked for */
    size_t n_failed;                   /* samples in a row that got nothing */
    uint64_t detected_ns;
    uint64_t listed_ns; /* when the list of threads was read; 0: it must be */
    struct running_threads running;
    uint64_t now_ns;           /* when this sample began */
    uint64_t heads_checked_ns; /* when it was last looked whether new ones have come */
    bool check_heads;          /* look with the next stack: then it costs nothing */
    bool has_execed;           /* it has executed another program: nothing of the old one holds */
};

/* After an exec nothing is where it was. */
int process_detect_again(struct process *p);

/* Reads the stack of a thread, with its native frames if these are asked for: what stack_read gives. */
int process_read_stack(struct process *p, const struct stack_source *src, struct sampled_thread *th);

/* Hands the stack that was just read to the sink. */
int emit_stack(struct process *p, struct sampled_thread *th, bool active, process_sink sink, void *arg);

/* A thread that has not run since it was last read still has the stack that it had then: true when that was handed
 * over, or is not wanted; `ret` is what came of it. */
bool emit_unchanged(struct process *p, struct sampled_thread *th, process_sink sink, void *arg, int *ret);

/* Threads that have no Python (--native-all). */
int native_threads_sample(struct process *p, process_sink sink, void *arg);
void native_threads_free(struct process *p);

#endif
