/*
 * The set of processes that are sampled: one, or a process with all its descendants.
 *
 *     process_tree_watch(&tree);                           // with subprocesses, before the root is started
 *     process_tree_add(&tree, pid, patience, true, &note);
 *     process_tree_refresh(&tree);                         // with subprocesses: children that have come
 *     process_tree_sample(&tree, sink, arg);
 *     process_tree_free(&tree);
 *
 * A process stays where it was found: one whose parent ends keeps its place below it.
 */
#ifndef SAMPLE_PROCESS_TREE_H
#define SAMPLE_PROCESS_TREE_H

#include "sample/process.h"
#include "tree/new_pids.h"
#include "tree/proc_connector.h"
#include "tree/process_node.h"

#define PROCESS_TREE_PAST      64 /* members that ended, whose sessions and groups may live on */
#define PROCESS_TREE_ANCESTORS 32

struct tree_entry {
    pid_t pid;
    uint64_t start_time;
    uint64_t image;            /* of proc_stat: another one means an exec */
    uint64_t cpu_ns;           /* its CPU time when that was last looked at */
    struct process_node *node; /* what is shown of it, and its parent */
    struct process *process;   /* NULL: not Python, or not yet */
    bool rejected;             /* not Python, not readable: passed over until it executes something else */
    bool is_profiler;          /* a profiler: neither it nor its children are the program's */
    bool dead;                 /* to be dropped at the next refresh */
    bool recheck;              /* reading failed: its image is to be looked at */
    int error;                 /* why it was given up, or is not there yet */
    uint64_t retry_ns;
};

struct past_process {
    pid_t pid; /* 0: none */
    struct process_node *node;
};

struct process_tree {
    struct sampler *sampler;
    bool subprocesses;
    bool manual_attach;        /* who joins is not attached: process_tree_attach does that for one */
    bool is_subreaper;         /* we are the subreaper of the root: its orphans come to us */
    unsigned max_depth;        /* generations below the root; 0: all */
    uint64_t attach_budget_ns; /* how long one refresh may attach; 0: as long as it takes */
    /* Set by us. */
    struct tree_entry *items; /* in order of discovery: a parent before its children */
    size_t n, cap;
    uint32_t *slots; /* pid -> position in items + 1 */
    size_t n_slots;
    struct process_node *pinned;
    bool watching;          /* births are told */
    bool scanned;           /* those that were there at the first look have been found */
    bool has_children_file; /* the kernel lists the children of a process */
    bool has_python;        /* one of them was, at some time */
    pid_t *prior_children;  /* children that we had before the root: they and what they leave us are not its own */
    size_t n_prior_children;
    struct new_pids new_pids;
    struct proc_connector connector; /* where the kernel tells them, births are not looked for */
    size_t next_check;               /* whose image, whose children are looked at next */
    size_t next_attach;              /* who is attached first the next time */
    struct past_process past[PROCESS_TREE_PAST];
    size_t n_past;
    pid_t ancestors[PROCESS_TREE_ANCESTORS]; /* of the root, its parent first: where orphans may go */
    size_t n_ancestors;
    bool image_is_shared; /* processes that are not ours may have the root's image */
};

/* What is born from now on will be told. For a root that is yet to be started: what it forks at once, and leaves behind,
 * is known by that alone. Otherwise the first refresh does it. 0 or ERR_NOMEM. */
int process_tree_watch(struct process_tree *t);

/* Attaches the root. With subprocesses a root that is not Python is no error: ERR_NOT_PYTHON is only returned if
 * `must_be_python`. */
int process_tree_add(struct process_tree *t, pid_t pid, uint64_t patience_ns, bool must_be_python,
                     struct err_note *note);

/* Looks for new children, for those that have become another program, and tries those again that were starting. */
int process_tree_refresh(struct process_tree *t);

/* Samples every process. ERR_GONE when none is left. */
int process_tree_sample(struct process_tree *t, process_sink sink, void *arg);

/* Attaches one that joined lazily; waits up to `patience_ns` for a Python that is just starting. 0, or why it is passed
 * over. */
int process_tree_attach(struct process_tree *t, struct tree_entry *e, uint64_t patience_ns);
/* Frees what was needed to sample it; what is shown of it stays. */
void process_tree_detach(struct tree_entry *e);

/* True while the root is there. */
bool process_tree_root_alive(const struct process_tree *t);
/* True when there is but the root, it can be read, and nobody else is looked for. */
bool process_tree_is_single(const struct process_tree *t);
/* True when there is no process besides the root. */
bool process_tree_has_only_root(const struct process_tree *t);
/* True when one besides the root is Python, or may be about to become it. */
bool process_tree_has_python(const struct process_tree *t);

/* True when it is no Python and we are among its descendants: sudo, a shell or timeout that started us. */
bool process_tree_is_our_ancestor(const struct process_tree *t, const struct tree_entry *e);

/* What is shown of an entry. */
const struct proc_info *process_tree_entry_info(const struct tree_entry *e);

void process_tree_free(struct process_tree *t);

#endif
