/*
 * What is known of each thread of a process between two samples, by its thread state.
 */
#ifndef SAMPLE_THREAD_TABLE_H
#define SAMPLE_THREAD_TABLE_H

#include "base/hash_table.h"
#include "pause/perf_regs.h"
#include "python/frames.h"
#include "python/names.h"
#include "python/threads.h"
#include "target/ahead.h"
#include "target/task.h"

#include <sys/types.h>

struct core_file;

struct known_thread {
    addr_t tstate; /* 0: it is new */
    addr_t interp;
    uint64_t thread_id;
    uint64_t native_id; /* as the target has it: another one after a fork */
    pid_t tid;          /* the kernel's id as we see it; 0 when unknown */
    struct task task;   /* open when tid is not 0 */
    bool dead;          /* of a core file: there is no task; `was_active` when it died */
    bool was_active;
    const char *name; /* NULL when unknown */
    uint64_t seen;    /* the round it was last there */
    bool looked;      /* it has been sampled since it came */
    bool ended;       /* as the kernel says: the thread state may be another's by now */
    struct frames_hint hint;
    addr_t odd_root;     /* a generator that its last stacks ended in */
    uint64_t odd_run_ns; /* how long it had run when that was seen first */
    unsigned odd_looks;  /* how often it was seen since, and never a whole stack */
    /* As of the last look at it. */
    bool still;  /* it did not run, and will not have run while its turns are these */
    bool active; /* it was about to run all the same: we were on its core */
    struct sched_stats turns;
    bool has_turns; /* `turns` were read just now: it has run since the last look */
    bool has_stack; /* the stack of `key` is the one it had then */
    uint64_t key;
    size_t n_frames;
    bool owned_gil;
    uint64_t native_key; /* of its native frames then, and their number */
    size_t n_native;
    bool rests; /* it slept, and was held then: there, by its registers */
    uint64_t rest_sp, rest_pc;
    uint64_t look_again_ns; /* unheld: until then it counts as running */
    /* As we left it on its core: when, and its turns by then; 0: we were not there. */
    uint64_t left_ns;
    struct sched_stats left;
    bool steady; /* from one sample to the next it had one turn, and nobody else any */
    struct ahead_list ahead;
    struct perf_regs switched; /* with native stacks */
};

struct tid_pair {
    pid_t inner, outer;
};

struct thread_table {
    const struct core_file *core; /* the threads are those of a core file; NULL: they live */
    struct known_thread *items;
    size_t n, cap;
    struct hash_table by_tstate; /* index of `items` */
    uint64_t round;
    int tid_offset; /* up to 3.10; NO when unknown */
    bool tid_searched;
    uint64_t named_ns; /* when the names were read last */
    struct thread_names names;
    uint64_t names_due_ns; /* some have no name yet: when to look again; 0: there are none, or they will never have */
    unsigned name_tries;
    /* Thread ids inside the target's pid namespace and ours, when that is not our own. */
    struct tid_pair *tids;
    size_t n_tids, cap_tids;
    uint64_t tids_round; /* the round in which they were read */
};

void thread_table_free(struct thread_table *t);

/* Brings the table up to date with `threads`: opens new ones, closes those that have gone, reads names. */
int thread_table_update(struct thread_table *t, const struct python *py, pid_t pid, const struct py_threads *threads);

/* Is it time for an update, though no thread has come? */
bool thread_table_is_due(const struct thread_table *t, uint64_t now);

/* The entry of a thread that thread_table_update has seen. */
struct known_thread *thread_table_find(struct thread_table *t, addr_t tstate);

#endif
