/*
 * What is known of each thread of a process between two samples, by its thread state.
 */
#ifndef SAMPLE_THREAD_TABLE_H
#define SAMPLE_THREAD_TABLE_H

#include "pause/pause.h"
#include "python/frames.h"
#include "python/names.h"
#include "python/threads.h"

#include <sys/types.h>

struct core_file;

/* The stack that the last sample of a thread found. While the thread's run count is the same, so is its stack. */
struct last_stack {
    bool off_cpu;   /* the thread did not run then, and has not run while its run count is that of `os.stats` */
    bool active;    /* it counts as running all the same: only we kept it off its core */
    bool has_stack; /* `key` and what follows belong to it */
    uint64_t key;
    size_t n_frames;
    bool owns_gil;
    uint64_t native_key;
    size_t n_native;
    bool blocked; /* ptrace interrupted a system call, which the kernel restarts: there, by its registers */
    uint64_t blocked_sp, blocked_pc;
};

/* A stack that ends in a generator: most often torn, but C code can resume a generator with no Python frame below. */
struct generator_root {
    addr_t generator;   /* that its last stacks ended in; 0: none */
    uint64_t run_ns;    /* CPU time of the thread when that was first seen */
    unsigned n_samples; /* how often since, with no whole stack in between */
};

struct sampled_thread {
    addr_t tstate; /* 0: a free slot */
    addr_t interp;
    uint64_t thread_id; /* pthread_t */
    uint64_t native_id; /* as the target has it: it changes with a fork */
    const char *name;   /* NULL when unknown */
    uint64_t seen;      /* the round in which it was last listed */
    bool was_sampled;   /* since it was first listed */
    bool ended;         /* the kernel thread is gone: the thread state may be another thread's by now */
    struct os_thread os;
    struct frames_state frames;
    struct read_plan plan;
    struct generator_root generator_root;
    struct last_stack last;
};

struct tid_pair {
    pid_t inner, outer;
};

struct thread_table {
    const struct core_file *core; /* the threads are those of a core file; NULL: they live */
    struct sampled_thread *slots;
    size_t n, cap;
    uint64_t round;
    int tid_offset; /* up to 3.10; NO when unknown */
    bool tid_searched;
    uint64_t names_read_ns; /* when the names were read last */
    struct thread_names names;
    uint64_t names_retry_ns; /* some have no name yet: when to look again; 0: there are none, or they will never have */
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
bool thread_table_needs_update(const struct thread_table *t, uint64_t now);

/* The entry of a thread that thread_table_update has seen. */
struct sampled_thread *thread_table_find(struct thread_table *t, addr_t tstate);

#endif
