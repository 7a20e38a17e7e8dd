/*
 * The set of processes that are sampled: one, or a process with all its descendants.
 *
 *     family_watch(&tree);                           // with subprocesses, before the root is started
 *     family_add(&tree, pid, patience, true, &note);
 *     family_refresh(&tree);                         // with subprocesses: children that have come
 *     family_sample(&tree, sink, arg);
 *     family_free(&tree);
 *
 * A process stays where it was found: one whose parent ends keeps its place below it.
 */
#ifndef SAMPLE_FAMILY_H
#define SAMPLE_FAMILY_H

#include "sample/kin.h"
#include "sample/process.h"
#include "target/births.h"
#include "target/forks.h"

#define FAMILY_PAST      64 /* members that ended, whose sessions and groups may live on */
#define FAMILY_ANCESTORS 32

struct family_entry {
    pid_t pid;
    uint64_t start_time;
    uint64_t image;          /* of proc_stat: another one means an exec */
    uint64_t cpu_ns;         /* its CPU time when that was last looked at */
    struct kin *kin;         /* what is shown of it, and its parent */
    struct process *process; /* NULL: not Python, or not yet */
    bool given_up;           /* not Python, not readable: passed over until it executes something else */
    bool left_out;           /* a profiler: neither it nor its children are the program's */
    bool dead;               /* to be dropped at the next refresh */
    bool suspect;            /* reading failed: its image is to be looked at */
    int error;               /* why it was given up, or is not there yet */
    uint64_t retry_ns;
};

struct family_member {
    pid_t pid; /* 0: none */
    struct kin *kin;
};

struct family {
    struct sampler *sampler;
    bool subprocesses;
    bool lazy;          /* who joins is not attached: family_attach does that for one */
    bool is_adopter;    /* we are the subreaper of the root: its orphans come to us */
    unsigned max_depth; /* generations below the root; 0: all */
    uint64_t budget_ns; /* how long one refresh may attach; 0: as long as it takes */
    /* Set by us. */
    struct family_entry *items; /* in order of discovery: a parent before its children */
    size_t n, cap;
    uint32_t *slots; /* pid -> position in items + 1 */
    size_t n_slots;
    struct kin *pinned;
    bool watching;   /* births are told */
    bool settled;    /* those that were there at the first look have been found */
    bool has_lists;  /* the kernel lists the children of a process */
    bool has_python; /* one of them was, at some time */
    pid_t *elders;   /* children that we had before the root: they and what they leave us are not its own */
    size_t n_elders;
    struct births births;
    struct forks forks; /* where the kernel tells them, births are not looked for */
    size_t turn;        /* whose image, whose children are looked at next */
    size_t attach_turn; /* who is attached first the next time */
    struct family_member past[FAMILY_PAST];
    size_t n_past;
    pid_t ancestors[FAMILY_ANCESTORS]; /* of the root, its parent first: where orphans may go */
    size_t n_ancestors;
    bool shared_image; /* processes that are not ours may have the root's image */
};

/* What is born from now on will be told. For a root that is yet to be started: what it forks at once, and leaves behind,
 * is known by that alone. Otherwise the first refresh does it. 0 or ERR_NOMEM. */
int family_watch(struct family *t);

/* Attaches the root. With subprocesses a root that is not Python is no error: ERR_NOT_PYTHON is only returned if
 * `must_be_python`. */
int family_add(struct family *t, pid_t pid, uint64_t patience_ns, bool must_be_python, struct err_note *note);

/* Looks for new children, for those that have become another program, and tries those again that were starting. */
int family_refresh(struct family *t);

/* Samples every process. ERR_GONE when none is left. */
int family_sample(struct family *t, process_sink sink, void *arg);

/* Attaches one that joined lazily; waits up to `patience_ns` for a Python that is just starting. 0, or why it is passed
 * over. */
int family_attach(struct family *t, struct family_entry *e, uint64_t patience_ns);
/* Frees what was needed to sample it; what is shown of it stays. */
void family_detach(struct family_entry *e);

/* True while the root is there. */
bool family_root_alive(const struct family *t);
/* True when there is but the root, it can be read, and nobody else is looked for. */
bool family_is_calm(const struct family *t);
/* True when there is no process besides the root. */
bool family_is_alone(const struct family *t);
/* True when one besides the root is Python, or may be about to become it. */
bool family_has_python(const struct family *t);

/* True when it is no Python and we are among its descendants: sudo, a shell or timeout that started us. */
bool family_is_way_to_us(const struct family *t, const struct family_entry *e);

/* What is shown of an entry. */
const struct proc_info *family_entry_info(const struct family_entry *e);

void family_free(struct family *t);

#endif
