/*
 * A trace is one stack of one thread. Traces are all that the profile and the output formats get from the sampler.
 *
 * All strings and `struct func` are interned for the session (base/intern.h): equal content means equal pointers. They
 * are valid UTF-8 and outlive the profile. Their content comes from the target and may contain any character but NUL:
 * control characters, markup, bidi marks. Escape them before showing them.
 */
#ifndef SAMPLE_TRACE_H
#define SAMPLE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A Python code object or a native function. */
struct func {
    const char *name;           /* qualified on 3.11+: "A.m.<locals>.<listcomp>" */
    const char *filename;       /* Python: full path as in the code object; native: source file or module */
    const char *short_filename; /* relative to the outermost package: "json/decoder.py"; never NULL */
    const char *module;         /* native functions only: the ELF file; NULL for Python */
    int first_line;             /* of the code object; 0 when unknown */
};

/* A local variable of a frame. `value` is text in the style of Python's repr(). */
struct local {
    const char *name;
    const char *value;
    uint64_t addr; /* of the object in the target */
    bool is_arg;
};

/* The line that a frame is in, and the part of it that is being executed: `dump --source` only. */
struct frame_source {
    const char *text;       /* the line without its newline, shortened if it is long; NULL: not available */
    int end_line;           /* where the part ends; 0: unknown, and so are the columns */
    int column, end_column; /* UTF-8 byte offsets, as in co_positions() */
};

struct frame {
    const struct func *func;
    int line; /* the current line; 0 when unknown */
    bool is_entry;
    bool is_shim_entry;
    size_t n_locals;
    const struct local *locals;        /* arguments first; valid as long as the trace; NULL: not requested */
    const struct frame_source *source; /* valid as long as the trace; NULL: not requested */
};

/* The signal that killed a process, from its core file. */
struct trace_signal {
    int number;       /* 0: none, as for a core file of a live process (gcore) */
    const char *name; /* "SIGSEGV" */
    pid_t tid;        /* the thread that received it */
    bool has_address; /* `address` is the address of the failed memory access */
    uint64_t address;
    pid_t sender; /* pid of the sender; 0: the kernel or the process itself */
};

/* A process as it is shown. `command` is the command line, with the arguments joined by spaces. */
struct proc_info {
    pid_t pid;
    pid_t parent; /* 0 when the parent is not shown */
    const char *command;
    const char *executable;              /* path of the executable */
    const char *found_by;                /* how the interpreter was found; NULL when the process is not attached */
    int major, minor, patch;             /* Python version */
    const char *version_suffix;          /* "" or "rc1" */
    const struct proc_info *parent_info; /* NULL at the root */
    pid_t inner_pid;                     /* its pid in its own pid namespace; 0: it is in ours */
    const char *runtime;   /* container runtime, if it is not in our container: "podman"; NULL when unknown */
    const char *container; /* container id; NULL when unknown */
    const char *core;      /* path of the core file; NULL: a live process */
    struct trace_signal signal;
    const char *hostname;  /* of the machine; NULL: not requested */
    int64_t rank;          /* its number in a job */
    const char *rank_from; /* the environment variable that has it; NULL: it has none, or not requested */
    pid_t python_parent;   /* its nearest ancestor that looks like Python; 0: there is none, or not requested */
};

/* What a thread did during the time that a trace covers. */
enum trace_state {
    TRACE_RUNNING,
    TRACE_WAITING_FOR_CORE,
    TRACE_WAITING_FOR_GIL,
    TRACE_WAITING_FOR_DISK,
    TRACE_SLEEPING, /* in --mode wall: blocked in any other way */
    TRACE_WAITING_FOR_LOCK,
    TRACE_WAITING_FOR_EVENTS,
    TRACE_WAITING_FOR_IO,
    TRACE_WAITING_FOR_CHILD,
    TRACE_STOPPED,
    TRACE_BLOCKED, /* in another system call */
    /* Tasks of asyncio: some of the above, and */
    TRACE_TASK_READY,
    TRACE_TASK_AWAITS_TASK,
    TRACE_TASK_AWAITS_EVENT,
    TRACE_TASK_AWAITS_QUEUE,
    TRACE_TASK_AWAITS_THREAD,
    TRACE_TASK_AWAITS_FUTURE,
    TRACE_TASK_WAITS, /* for something else */
    TRACE_STATES
};

/* A process that a thread waits for. */
struct awaited_process {
    pid_t pid;
    char state;          /* as in /proc: R, S, D, T, t, Z; 0: unknown */
    const char *command; /* NULL: unknown */
    bool is_stopped;     /* all its threads are in state T or t */
    pid_t tracer;        /* of a process in state t; 0: none, or unknown */
    const char *tracer_command;
    /* The only process that the thread waits for. */
    const char *call; /* the system call that its main thread sleeps in; NULL: none, or unknown */
    bool awaits_us;   /* that call is for a pipe or socket whose other end only our process has */
    bool is_pipe;     /* it is for a pipe: a socket may have a time limit, which nobody else can see */
    bool both_single; /* it and our process have one thread each */
};

#define AWAITED_OTHERS_MAX 4

/* A descriptor that a thread waits for. */
struct awaited_file {
    int fd;
    const char *
        kind; /* "file", "pipe", "TCP", "UDP", "Unix", "socket", or the kernel's word, such as "eventfd"; NULL: unknown */
    const char *name;                                  /* path; NULL: none */
    const char *state;                                 /* "ESTABLISHED", …; NULL: none */
    const char *local, *peer;                          /* addresses; NULL: none */
    struct awaited_process others[AWAITED_OTHERS_MAX]; /* processes that have the other end open */
    size_t n_others;
    bool no_others;  /* nobody has it open */
    bool only_other; /* others[0] is the only process that has it open */
};

/* What Python lock, thread or operation a thread waits for. */
enum awaited_kind {
    AWAITED_UNKNOWN,
    AWAITED_LOCK, /* threading.Lock */
    AWAITED_RLOCK,
    AWAITED_IMPORT_LOCK,
    AWAITED_SHARED_LOCK, /* of multiprocessing */
    AWAITED_THREAD,      /* Thread.join() */
    AWAITED_OPERATION,   /* of the standard library, such as Queue.get() */
    AWAITED_GPU,         /* in a function of CUDA or HIP */
    AWAITED_COLLECTIVE,  /* for other ranks: NCCL, Gloo, MPI, torch.distributed */
    AWAITED_KINDS
};

/* The thread that holds a lock, or whose end another one waits for. */
struct awaited_thread {
    bool known;
    bool certain;       /* the interpreter says so; else it is likely */
    bool exited;        /* no thread has this `thread_id` any more */
    uint64_t thread_id; /* as in struct trace */
    pid_t os_thread_id; /* 0 when unknown */
    const char *name;   /* NULL when unknown */
};

struct awaited_object {
    enum awaited_kind kind;
    bool certain;          /* that it waits for this object; else it is likely */
    bool confirmed;        /* it was still waiting, and had not run, when all threads had been read */
    const char *operation; /* "Queue.get"; NULL: it waits for the object itself */
    const char *name;      /* of the object in the program, or of the module that is imported; NULL: unknown */
    uint64_t addr;         /* of the object; 0: unknown */
    struct awaited_thread owner;
};

#define AWAITED_FILES_MAX     8
#define AWAITED_PROCESSES_MAX 8

/* What a thread that sleeps in the kernel waits for: `dump` only. */
struct wait_reason {
    enum trace_state state;
    const char *call;            /* "recvfrom"; NULL: unknown */
    const char *kernel_function; /* of a thread in state D: where it waits in the kernel; NULL: unknown */
    bool has_left, has_limit;
    uint64_t left_ns;  /* until the call ends by itself, if its end is a point in time */
    uint64_t limit_ns; /* the longest time that the call takes, if it is given as a duration */
    struct awaited_file files[AWAITED_FILES_MAX];
    size_t n_files; /* may be more than the array has room for */
    uint64_t futex; /* the address that it sleeps on; 0: it waits in another way */
    struct awaited_object object;
    /* The child processes that it waits for, or the holder of a lock on a file; TRACE_STOPPED: the tracer, if any. */
    struct awaited_process processes[AWAITED_PROCESSES_MAX];
    size_t n_processes; /* the same */
};

/* What the sampler knows of the time between the last trace of the thread and this one. */
enum trace_order {
    TRACE_BY_TIME, /* unknown: too long a time is a gap */
    TRACE_FOLLOWS, /* at each check, the thread did the same as in one of the two: never a gap, however long it took */
    TRACE_AFTER_GAP, /* the thread did something that the recording does not include */
};

/* The stack of one thread at one instant. `frames` are innermost first. */
struct trace {
    const struct proc_info *process;
    uint64_t thread_id;      /* threading.get_ident(), a pthread_t */
    pid_t os_thread_id;      /* 0 when unknown */
    const char *thread_name; /* NULL when unknown */
    bool is_kernel_name;     /* `thread_name` is the kernel's name of a thread that has none in Python */
    bool active;             /* the thread was in state R before it was paused */
    bool owns_gil;
    bool waits_for_gil; /* asleep, waiting for the GIL; not active */
    bool unsure;        /* read unpaused while the thread ran: the innermost frames are missing */
    enum trace_state state;
    struct wait_reason *wait; /* NULL: not requested, or it does not wait; valid as long as the trace */
    uint64_t weight_ns;       /* the time that it covers; 0: one sampling interval */
    enum trace_order order;
    uint64_t key; /* equal for equal stacks of one thread; never 0 */
    size_t n_frames;
    const struct frame *frames; /* NULL when `key` is in the receiver's known_keys */
};

/* Keys of stacks whose frames the receiver already has. The receiver adds keys; the sampler reads them, and emits
 * these stacks without frames. Direct-mapped: a new key may replace an old one. */
#define KNOWN_KEYS 65536u

struct known_keys {
    uint64_t slots[KNOWN_KEYS];
};

static inline bool known_keys_have(const struct known_keys *k, uint64_t key)
{
    return k->slots[key % KNOWN_KEYS] == key;
}

#endif
