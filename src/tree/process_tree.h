/*
 * The processes to sample: one or several, the roots, or these with all their descendants. A process keeps its place in
 * the tree after its parent has ended. sample/sampled_tree.h attaches to the processes and samples them.
 */
#ifndef TREE_PROCESS_TREE_H
#define TREE_PROCESS_TREE_H

#include "base/err.h"
#include "base/hash_table.h"
#include "target/proc.h"
#include "tree/new_pids.h"
#include "tree/proc_connector.h"
#include "tree/process_node.h"

#define PROCESS_TREE_PAST      64 /* ended processes whose session or process group may live on */
#define PROCESS_TREE_ANCESTORS 32

struct process; /* sample/process.h */
struct sampler; /* sample/sampler.h */

struct tree_entry {
    pid_t pid;
    uint64_t start_time;
    uint64_t image;            /* of proc_stat; it changes with an exec */
    uint64_t cpu_ns;           /* CPU time at the last check */
    struct process_node *node; /* what is shown of the process, and its parent */
    struct process *process;   /* NULL: not Python, or not attached yet */
    bool rejected;             /* not Python, or not readable: skip it until it calls exec */
    bool is_profiler;          /* a profiler: skip it and its children */
    bool dead;                 /* drop it at the next refresh */
    bool was_attached;         /* now, or before it called exec */
    bool recheck;              /* reading failed, or it called exec: check it at the next refresh */
    int error;                 /* why it was rejected or is not attached yet */
    enum err_reason reason;    /* of `error` */
    uint64_t retry_ns;
};

struct past_process {
    pid_t pid; /* 0: none */
    struct process_node *node;
};

/* The process that was attached last. */
struct followed_process {
    pid_t pid; /* 0: none so far */
    uint64_t start_time;
    uint64_t image;
    uint64_t ended_ns; /* when it was found to have ended; 0: it runs */
};

struct process_tree {
    struct sampler *sampler;                            /* used only by sampled_tree.c, like tree_entry.process */
    struct process *(*free_process)(struct process *p); /* frees tree_entry.process; set by sampled_tree.c */
    bool subprocesses;
    bool manual_attach;        /* the caller attaches to each process itself */
    bool one_at_a_time;        /* with subprocesses: attach to the root or, until it is Python, to one descendant */
    bool is_subreaper;         /* we are the subreaper of the root: the kernel reparents its orphans to us */
    unsigned max_depth;        /* levels below the root; 0: all */
    uint64_t attach_budget_ns; /* how long one refresh may spend on attaching; 0: no limit */
    /* State. */
    struct tree_entry *items; /* in order of discovery: parents before children */
    size_t n, cap;
    struct hash_table by_pid; /* index of `items` */
    struct process_node *pinned;
    bool watching;                    /* `new_pids` or `connector` is open */
    bool scanned;                     /* all processes that existed at the first refresh have been found */
    bool has_children_file;           /* the kernel has /proc/PID/task/TID/children */
    bool has_python;                  /* at least one process was attached so far */
    struct followed_process followed; /* with one_at_a_time */
    int refused; /* with one_at_a_time: why a process could not be attached, though it may be Python */
    struct err_note *refusal_note; /* for `refused`; NULL: not needed */
    pid_t *prior_children; /* our children from before the root; they and their orphans are not part of the tree */
    size_t n_prior_children;
    struct new_pids new_pids;
    struct proc_connector connector; /* reports forks and execs; where it works, new_pids is not read */
    size_t next_check;               /* index of the next entry to check for an exec and for children */
    size_t next_attach;              /* index of the entry to attach first in the next refresh */
    size_t next_cpu;                 /* index of the entry whose CPU time to measure first in the next refresh */
    struct past_process past[PROCESS_TREE_PAST];
    size_t n_past;
    pid_t ancestors[PROCESS_TREE_ANCESTORS]; /* of the roots, parents first: they may adopt their orphans */
    size_t n_ancestors;
    bool image_is_shared; /* processes outside of the tree may have the image of a root */
};

/* Reports processes that are created from now on. Call it before starting the root: a process that the root forks at
 * once and orphans can only be found this way. Otherwise the first refresh calls it. 0 or ERR_NOMEM. */
int process_tree_watch(struct process_tree *t);

/* Adds a process below `parent`, which is NULL for a root. 0, ERR_NOMEM, or ERR_BOUNDS when there are too many. */
int process_tree_insert(struct process_tree *t, pid_t pid, const struct proc_stat *st, struct process_node *parent);

/* Adds new processes, drops processes that have ended, and notices execs. 0 or ERR_NOMEM. */
int process_tree_refresh(struct process_tree *t);

/* NULL when the pid is not in the tree. Valid until the tree changes. */
struct tree_entry *process_tree_find(const struct process_tree *t, pid_t pid);

/* True while the root process exists; of several, the first one, which stays in the list when it has ended. */
bool process_tree_root_alive(const struct process_tree *t);
/* True when the tree is one readable process and subprocesses are not followed. */
bool process_tree_is_single(const struct process_tree *t);
/* True when no process but the root is left, apart from profilers. */
bool process_tree_has_only_root(const struct process_tree *t);
/* True when a process other than the root is Python, or may become Python. With one_at_a_time, once the root has ended,
 * only the followed process counts, and what it has forked: a daemon goes on in a fork. */
bool process_tree_has_python(const struct process_tree *t);

/* The process that is followed; NULL if there is none, or it has ended. */
struct tree_entry *process_tree_followed(const struct process_tree *t);
/* Forgets the descendants, and looks for no others. 0 or ERR_NOMEM. */
int process_tree_keep_root(struct process_tree *t);

/* True when the process is not Python and we descend from it: sudo, a shell or timeout that started us. */
bool process_tree_is_our_ancestor(const struct process_tree *t, const struct tree_entry *e);

const struct proc_info *process_tree_entry_info(const struct tree_entry *e);

void process_tree_free(struct process_tree *t);

#endif
