/*
 * The tasks of the event loops of one process, and its greenlets, as `dump` shows them. Like traces (sample/trace.h), they are all that
 * the output gets from the sampler; strings are interned and come from the target.
 */
#ifndef SAMPLE_TASK_SET_H
#define SAMPLE_TASK_SET_H

#include "sample/trace.h"

enum task_state {
    TASK_NEW,     /* its coroutine has not started */
    TASK_READY,   /* what it waited for is done: it runs as soon as the loop gets to it */
    TASK_RUNNING, /* its frames are those of the loop's thread */
    TASK_WAITING,
};

/*
 * What a task waits for. Kinds: sleep, task (another one), tasks (gather and the like), lock, event, queue, socket, process, executor,
 * thread, connections, future.
 */
struct task_wait {
    const char *kind;                    /* NULL: it does not wait */
    const char *what;                    /* "Queue.get", "gather", the class of a future; may be NULL */
    uint64_t object;                     /* address of the queue, lock or future; 0: unknown */
    bool has_fd;                         /* socket: `number` is its file descriptor */
    int64_t number;                      /* process: its PID; 0: unknown */
    double seconds;                      /* sleep: negative when unknown, */
    bool is_left;                        /* else the time left, or the time that it was to sleep */
    bool is_queued;                      /* executor: the job has not started */
    const uint32_t *held_by;             /* lock: the tasks that hold it, as positions in task_set.tasks, */
    size_t n_held_by, n_waiting;         /* `n_waiting` tasks wait for the same lock */
    bool is_owner;                       /* which the lock itself says; else they are within its `async with` block */
    const char *protocol, *local, *peer; /* socket: "TCP", "10.0.0.7:5432"; each may be NULL */
};

/* A task, or a greenlet, which is suspended in TASK_WAITING. */
struct async_task {
    uint64_t addr;
    const char *name; /* NULL: it has none */
    enum task_state state;
    bool unsure; /* it ran while it was read, or after other tasks were read */
    struct task_wait wait;
    const struct frame *frames; /* of a task outermost first, of a greenlet innermost first */
    size_t n_frames;
    const uint32_t *awaits, *awaited_by; /* positions in task_set.tasks */
    size_t n_awaits, n_awaited_by;
    size_t n_in_groups; /* of `awaits`, the last ones: in a TaskGroup whose block it is in */
    /* trio only: `awaits` are the tasks in its nurseries. */
    bool has_deadline;
    double seconds_to_cancel; /* until the deadline of a cancel scope */
    bool is_cancelled;        /* its scope is cancelled: the next checkpoint ends it */
    /* Greenlets only. */
    const char *type; /* the name of its class: "Greenlet", "Hub" */
    uint64_t parent;  /* 0: none, or unknown */
    bool is_main;     /* the one that a thread begins with */
};

/* An event loop, or the greenlets of a thread. */
struct task_loop {
    bool is_greenlets, is_trio;
    uint64_t addr;
    const char *type;   /* "_UnixSelectorEventLoop"; NULL when unknown */
    bool running;       /* in this thread: */
    uint64_t thread_id; /* as in struct trace */
    pid_t os_thread_id;
    const char *thread_name;
    uint64_t run_count, run_ns; /* of that thread when the tasks were read; 0: unknown */
    size_t first, n;            /* in task_set.tasks */
};

struct task_set {
    const struct proc_info *process;
    struct task_loop *loops;
    size_t n_loops, cap_loops;
    struct async_task *tasks; /* by loop, and by name */
    size_t n, cap;
    uint32_t *holders; /* what `held_by` points into */
    uint32_t *links;   /* what `awaits` and `awaited_by` point into */
    bool incomplete;   /* some tasks or links are missing */
    size_t n_unsure;
    size_t n_new_greenlets, n_dead_greenlets; /* not started, or ended: these are not in `tasks` */
    uint64_t searched, total;                 /* bytes of memory; less than all: greenlets may be missing */
};

#endif
