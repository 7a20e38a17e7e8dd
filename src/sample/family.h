/*
 * The set of processes that are sampled: one, or a process with all its descendants.
 *
 *     family_add(&tree, pid, patience, &note);
 *     family_refresh(&tree);                         // with subprocesses: children that have come
 *     family_sample(&tree, sink, arg);
 */
#ifndef SAMPLE_FAMILY_H
#define SAMPLE_FAMILY_H

#include "sample/process.h"

struct family_entry {
    pid_t pid;
    pid_t parent; /* 0 for the root */
    uint64_t start_time;
    struct process *process; /* NULL: not Python, or not yet */
    struct proc_info *info;  /* what is shown of one that is not Python */
    bool given_up;           /* not Python, not readable: passed over from now on */
    int error;               /* why */
    uint64_t retry_ns;
};

struct family {
    struct sampler *sampler;
    bool subprocesses;
    struct family_entry *items; /* in order of discovery: a parent before its children */
    size_t n, cap;
};

/* Attaches the root. With subprocesses a root that is not Python is no error: ERR_NOT_PYTHON is only returned if
 * `must_be_python`. */
int family_add(struct family *t, pid_t pid, uint64_t patience_ns, bool must_be_python, struct err_note *note);

/* Looks for new children and tries those again that were starting. `patience_ns`: for each of them. */
int family_refresh(struct family *t, uint64_t patience_ns);

/* Samples every process. ERR_GONE when none is left. */
int family_sample(struct family *t, process_sink sink, void *arg);

/* True while the root is there. */
bool family_root_alive(const struct family *t);

/* What is shown of an entry. */
const struct proc_info *family_entry_info(const struct family_entry *e);

void family_free(struct family *t);

#endif
