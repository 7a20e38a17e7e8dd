/*
 * The threads of a process, by thread state, with what the sampler remembers of each from one sample to the next.
 */
#ifndef SAMPLE_THREAD_TABLE_H
#define SAMPLE_THREAD_TABLE_H

#include "base/hash_table.h"
#include "pause/pause.h"
#include "python/frames.h"
#include "python/gil.h"
#include "python/names.h"
#include "python/threads.h"
#include "sample/thread_time.h"
#include "sample/trace.h"

#include <sys/types.h>

struct core_file;

/* The stack found by the last sample of a thread. It is valid while the thread's run count is unchanged. */
struct last_stack {
    bool on_cpu;            /* it was on a CPU when the sampler arrived; also true if that is unknown */
    bool off_cpu;           /* the thread was off-CPU; while its run count equals os.stats, it has not run since */
    bool active;            /* it counts as running anyway: only the sampler kept it off its core */
    bool has_stack;         /* `key` and the fields below are valid */
    enum trace_state state; /* what it waits for, if it is not active */
    uint64_t key;
    size_t n_frames;
    bool owns_gil;
    bool waits_for_gil;
    uint64_t native_key;
    size_t n_native;
    bool blocked; /* ptrace interrupted a system call, which the kernel restarts; these were its registers */
    uint64_t blocked_sp, blocked_pc;
};

/* A stack whose outermost frame is a generator. Such a stack is usually torn, but C code can resume a generator with
 * no Python frame below it. */
struct generator_root {
    addr_t generator;   /* the outermost frame of the last stacks; 0: none */
    uint64_t run_ns;    /* CPU time of the thread when this was first seen */
    unsigned n_samples; /* how often since then, with no complete stack in between */
};

#define ENTRY_NONE    UINT64_MAX
#define ENTRY_UNKNOWN (UINT64_MAX - 1)

struct sampled_thread {
    addr_t tstate; /* 0: it is new */
    addr_t interp;
    uint64_t thread_id;      /* pthread_t */
    uint64_t native_id;      /* as Python stores it; a fork changes it */
    const char *name;        /* Python's; NULL when unknown */
    const char *kernel_name; /* for a thread without a name; NULL: not read */
    bool has_python;         /* of an entry without `tstate`, in native_threads.c: the thread has one in the table */
    uint64_t seen;           /* the last round in which it was listed */
    uint64_t shown;          /* the last look (process.looks) at which it had a trace, or could not be read; 0: none */
    bool was_sampled;        /* at least once since it was first listed */
    bool ended;              /* the kernel thread has ended; another thread may reuse the thread state */
    struct os_thread os;
    struct gil_locks gil; /* of the interpreter, if gil_found */
    bool gil_found;
    struct frames_state frames;
    addr_t entry; /* where the C stack entered Python last; ENTRY_UNKNOWN; ENTRY_NONE: no frames; 0: never read */
    struct read_plan plan;
    struct generator_root generator_root;
    struct thread_time time;
    uint64_t start_time; /* in clock ticks since boot, if table.since_ticks is set */
    struct last_stack last;
};

struct tid_pair {
    pid_t inner, outer;
};

/* A thread that lost its thread state but keeps running: C code that calls Python occasionally. */
struct left_thread {
    pid_t tid;
    uint64_t start_time;
    struct thread_time time;
};

struct thread_table {
    const struct core_file *core; /* NULL: a live process */
    struct sampled_thread *items;
    size_t n, cap;
    struct hash_table by_tstate; /* index of `items` */
    uint64_t round;
    int tid_offset; /* offset of the tid in the C library's thread struct, up to 3.10; NO: unknown */
    bool tid_searched;
    uint64_t names_read_ns; /* when all names were last read */
    struct thread_names names;
    uint64_t names_retry_ns; /* when to look for missing names again; 0: never */
    unsigned name_tries;
    /* Thread ids in the target's pid namespace and in ours, if the namespaces differ. */
    struct tid_pair *tids;
    size_t n_tids, cap_tids;
    uint64_t tids_round; /* the round in which `tids` were read */
    /* For `time` of each thread. */
    uint64_t since_ticks; /* start of the recording in clock ticks since boot; 0: not a recording */
    struct left_thread *left;
    size_t n_left, cap_left;
    struct intern
        *kernel_names; /* where to keep the kernel's names of threads without a name; NULL: do not read them */
};

/* Sorted thread ids. */
struct tid_list {
    pid_t *items; /* the caller frees them */
    size_t n;
    bool complete; /* the kernel thread of every Python thread is known */
};

void thread_table_free(struct thread_table *t);

/* Updates the table from `threads`: opens new threads, closes threads that have ended, reads names. 0 or an error. */
int thread_table_update(struct thread_table *t, const struct python *py, pid_t pid, const struct py_threads *threads);

/* True when thread_table_update should run even though no thread has started. */
bool thread_table_needs_update(const struct thread_table *t, uint64_t now);

/* Replaces the contents of `ret` with the kernel threads of all threads in the table. 0 or ERR_NOMEM. */
int thread_table_tids(const struct thread_table *t, struct tid_list *ret);
bool tid_list_has(const struct tid_list *l, pid_t tid);

/* The kernel's name of a thread (/proc/PID/task/TID/comm), interned; NULL if it cannot be read. */
const char *thread_kernel_name(struct intern *names, pid_t pid, pid_t tid);

/* The entry of a thread that the last thread_table_update listed; NULL when there is none. */
struct sampled_thread *thread_table_find(struct thread_table *t, addr_t tstate);

#endif
