/*
 * A profile: aggregates traces into a call tree and, if the format needs it, a timeline per thread. Its only input is
 * struct trace.
 *
 *     struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10000000});
 *     profile_add(p, &trace, now_ns);
 *     format->write(p, &out_options, file);
 *     p = profile_free(p);
 */
#ifndef PROFILE_PROFILE_H
#define PROFILE_PROFILE_H

#include "sample/trace.h"

/* With these limits, a profile uses at most about 200 MB. */
#define PROFILE_MAX_NODES   1500000
#define PROFILE_MAX_SPANS   2500000
#define PROFILE_MAX_THREADS 30000

struct profile_options {
    uint64_t interval_ns; /* nominal sampling interval */
    bool processes;       /* a root per process (--subprocesses) */
    bool threads;         /* a root per thread (--threads) */
    bool by_function;     /* --function: a frame's line is its function's first line */
    bool no_lines;        /* --nolineno: lines are 0 */
    const char *measure;  /* nodes count nanoseconds of this, such as "CPU time"; NULL: samples */
    bool by_state;        /* below each stack, what the thread did or waited for */
    bool timeline;        /* keep the order of samples, for speedscope and chrometrace */
    size_t max_nodes;     /* 0 means PROFILE_MAX_NODES */
    size_t max_spans;     /* 0 means PROFILE_MAX_SPANS */
    size_t max_threads;   /* 0 means PROFILE_MAX_THREADS */
};

/* Frame `frame` called from node `parent`, which always has a lower index. Node 0 is the root. */
struct profile_node {
    uint32_t parent;
    uint32_t frame;   /* index into frames; the root has none */
    uint64_t self;    /* samples, or nanoseconds, whose innermost frame is this node */
    uint64_t samples; /* the number of these samples */
};

/* A distinct (function, line), or the synthetic root of a process or thread, which has a `label` and no `func`. */
struct profile_frame {
    const struct func *func;
    int line;
    char *label;                     /* `process 1:"cmd"`, `thread (2): name` */
    const struct proc_info *process; /* set for the root of a process */
    bool is_other;                   /* the root of threads or processes that were merged (fold.h) */
};

/* Equal samples of one thread in a row. Times are since the start of the recording. */
struct profile_span {
    uint64_t time_ns;
    uint64_t end_ns;    /* when the last of them ends; the next span begins then, or after a gap */
    uint64_t weight_ns; /* what they count for together */
    uint32_t node;
    uint32_t count;
};

struct profile_thread {
    const struct proc_info *process;
    uint64_t thread_id;
    pid_t os_thread_id;
    const char *name; /* the latest name, or NULL if unknown; the kernel's only if Python has none */
    bool is_kernel_name;
    bool is_other;  /* threads that were merged (fold.h); it has no root */
    uint64_t total; /* its samples, or nanoseconds */
    uint32_t root;  /* the node above its outermost frames */
    uint32_t frame; /* with options.threads: the frame of its synthetic root */
    struct profile_span *spans;
    size_t n_spans, cap_spans;
};

struct profile {
    struct profile_options options;
    struct profile_node *nodes;
    size_t n_nodes;
    struct profile_frame *frames;
    size_t n_frames;
    struct profile_thread *threads; /* in the order of their first sample */
    size_t n_threads;
    uint64_t samples;     /* stacks added */
    uint64_t total;       /* the sum of all nodes */
    uint64_t duration_ns; /* of the recording; the caller sets it before a format writes */
    uint64_t pruned;      /* nodes merged into their callers to stay within max_nodes */
    uint64_t coarsened;   /* times the timeline was halved to stay within max_spans */
    uint64_t folded;      /* threads merged to stay within max_threads */
    size_t n_spans;       /* of all threads */
    struct profile_index *index;
};

struct profile *profile_new(const struct profile_options *options); /* NULL if out of memory */
struct profile *profile_free(struct profile *p);                    /* accepts NULL, returns NULL */

/* Traces with one of these keys can be added without their frames. Valid as long as the profile. */
const struct known_keys *profile_known_keys(const struct profile *p);

/* Adds a stack sampled `time_ns` after the start. Ignores an empty stack. Returns 0, ERR_NOMEM, or ERR_INTERNAL if the
 * trace has no frames and its key is unknown (see profile_known_keys). */
int profile_add(struct profile *p, const struct trace *trace, uint64_t time_ns);

/* True if the tree, the timeline or the number of threads exceeds its limit: call profile_enforce_limits, which takes a
 * long time. */
bool profile_is_full(const struct profile *p);
/* Shrinks what exceeds its limit. Renumbers all nodes but 0. Returns 0 or ERR_NOMEM. */
int profile_enforce_limits(struct profile *p);

/* Adds CPU time that belongs to no stack, as a root of its own. 0 or ERR_NOMEM. */
int profile_add_unattributed(struct profile *p, uint64_t ns);

/* The processes that the profile refers to, sorted by address; their ancestors may be missing. The caller frees *ret. Returns 0
 * or ERR_NOMEM. */
int profile_list_processes(const struct profile *p, const struct proc_info ***ret, size_t *ret_n);

/* Halves the numbers of nodes and spans: merges the rarest calls into their callers and neighbouring spans into one.
 * Returns 0 or ERR_NOMEM. */
int profile_shrink(struct profile *p);

/* The nodes from the root to a node, root first, without synthetic roots. Initialize to zero; may be reused. */
struct profile_path {
    uint32_t *nodes;
    size_t n, cap;
};

int profile_path_fill(struct profile_path *path, const struct profile *p, uint32_t node); /* 0 or ERR_NOMEM */
void profile_path_free(struct profile_path *path);

#endif
