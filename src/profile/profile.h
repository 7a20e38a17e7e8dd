/*
 * Traces in, a call tree and (where the format wants it) a time line out. Knows nothing of processes'
 * memory: its only input is struct trace.
 *
 *     struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10000000});
 *     profile_add(p, &trace, now_ns);
 *     format->write(p, &out_options, file);
 *     p = profile_free(p);
 */
#ifndef PROFILE_PROFILE_H
#define PROFILE_PROFILE_H

#include "sample/trace.h"

struct profile_options {
    uint64_t interval_ns; /* between two samples, as asked for */
    bool processes;       /* a root per process (--subprocesses) */
    bool threads;         /* a root per thread (--threads) */
    bool by_function;     /* --function: a frame's line is its function's first line */
    bool no_lines;        /* --nolineno: lines are 0 */
    bool timeline;        /* keep the order of samples, for speedscope and chrometrace */
};

/* A node of the tree: frame `frame` called from node `parent`. Node 0 is the root and has no frame. */
struct profile_node {
    uint32_t parent;
    uint32_t frame;  /* index into frames */
    uint64_t self;   /* samples that ended here */
};

/* A distinct (function, line), or a made-up root of a process or thread: then `label` is set instead. */
struct profile_frame {
    const struct func *func;
    int line;
    const char *label; /* `process 1:"cmd"`, `thread (2): name` */
};

/* `count` equal samples of one thread in a row, the first at `time_ns` since the start. */
struct profile_span {
    uint64_t time_ns;
    uint32_t node;
    uint32_t count;
};

struct profile_thread {
    const struct proc_info *process;
    uint64_t thread_id;
    pid_t os_thread_id;
    const char *name; /* NULL when unknown; the newest name seen */
    struct profile_span *spans;
    size_t n_spans, cap_spans;
};

struct profile {
    struct profile_options options;
    struct profile_node *nodes;
    size_t n_nodes;
    struct profile_frame *frames;
    size_t n_frames;
    struct profile_thread *threads; /* in order of first sight */
    size_t n_threads;
    uint64_t samples;     /* stacks added */
    uint64_t duration_ns; /* of the whole recording: set by the recorder before a format writes */
    struct profile_index *index;
};

struct profile *profile_new(const struct profile_options *options); /* NULL when out of memory */
struct profile *profile_free(struct profile *p);                    /* accepts NULL, returns NULL */

/* Adds one stack seen `time_ns` after the start. A trace without frames is ignored. 0 or ERR_NOMEM. */
int profile_add(struct profile *p, const struct trace *trace, uint64_t time_ns);

#endif
