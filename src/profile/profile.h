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

/* With these, a profile takes some 150 MB at most. */
#define PROFILE_MAX_NODES 1500000
#define PROFILE_MAX_SPANS 2500000

struct profile_options {
    uint64_t interval_ns; /* between two samples, as asked for */
    bool processes;       /* a root per process (--subprocesses) */
    bool threads;         /* a root per thread (--threads) */
    bool by_function;     /* --function: a frame's line is its function's first line */
    bool no_lines;        /* --nolineno: lines are 0 */
    bool timeline;        /* keep the order of samples, for speedscope and chrometrace */
    size_t max_nodes;     /* bounds on memory: 0 for PROFILE_MAX_NODES and PROFILE_MAX_SPANS */
    size_t max_spans;
};

/* A node: frame `frame` called from node `parent`, which always has the lower index. Node 0 is the root. */
struct profile_node {
    uint32_t parent;
    uint32_t frame; /* index into frames; the root has none */
    uint64_t self;  /* samples that ended here */
};

/* A distinct (function, line), or a made-up root of a process or thread: then `label` is set, `func` is NULL. */
struct profile_frame {
    const struct func *func;
    int line;
    char *label;                     /* `process 1:"cmd"`, `thread (2): name` */
    const struct proc_info *process; /* of a process root */
};

/* `count` equal samples of one thread in a row, from `time_ns` to `last_ns` since the start. */
struct profile_span {
    uint64_t time_ns;
    uint64_t last_ns;
    uint32_t node;
    uint32_t count;
};

struct profile_thread {
    const struct proc_info *process;
    uint64_t thread_id;
    pid_t os_thread_id;
    const char *name; /* NULL when unknown; the newest name seen */
    uint32_t root;    /* the node its stacks hang from */
    uint32_t frame;   /* its made-up root frame, with options.threads */
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
    uint64_t pruned;      /* calls that were folded into their callers to keep to the bound */
    uint64_t coarsened;   /* how often neighbours in the time line were joined to keep to the bound */
    size_t n_spans;       /* of all threads */
    struct profile_index *index;
};

struct profile *profile_new(const struct profile_options *options); /* NULL when out of memory */
struct profile *profile_free(struct profile *p);                    /* accepts NULL, returns NULL */

/* Traces with one of these keys can be added without their frames. Valid as long as the profile. */
const struct known_keys *profile_known_keys(const struct profile *p);

/* Adds one stack seen `time_ns` after the start. An empty one is ignored. 0 or ERR_NOMEM. */
int profile_add(struct profile *p, const struct trace *trace, uint64_t time_ns);

/* Half as many calls and spans: the rarest calls become their callers', neighbours in time are joined. 0 or ERR_NOMEM. */
int profile_shrink(struct profile *p);

/* Two spans of a thread belong together when no tick was missed between them. */
bool profile_follows(const struct profile *p, uint64_t last_ns, uint64_t time_ns);

/* The nodes from the root to a node, root first, without the made-up ones. Zero it, reuse it, free it. */
struct profile_path {
    uint32_t *nodes;
    size_t n, cap;
};

int profile_path_fill(struct profile_path *path, const struct profile *p, uint32_t node); /* 0 or ERR_NOMEM */
void profile_path_free(struct profile_path *path);

#endif
