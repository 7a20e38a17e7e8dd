/*
 * The one currency between the readers of processes and everything that shows what was read.
 *
 * All strings and `struct func` here are interned for the whole session (base/intern.h): equal content
 * is the same pointer, they are valid UTF-8 and they outlive the profile. Their content comes from the
 * target and may hold any character but NUL: control characters, markup, bidi marks. Whoever shows
 * them escapes them.
 */
#ifndef SAMPLE_TRACE_H
#define SAMPLE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A function: a code object of Python, or a native function. */
struct func {
    const char *name;           /* qualified on 3.11+: "A.m.<locals>.<listcomp>" */
    const char *filename;       /* full path as the code object has it; a native function's source or module */
    const char *short_filename; /* below the outermost package: "json/decoder.py"; never NULL */
    const char *module;         /* native functions only: the ELF file; NULL for Python */
    int first_line;             /* of the code object; 0 when unknown */
};

/* A variable of a frame: an argument, or another. `value` is as Python's repr() would show it. */
struct local {
    const char *name;
    const char *value;
    uint64_t addr; /* of the object in the target */
    bool is_arg;
};

struct frame {
    const struct func *func;
    int line; /* being executed; 0 when there is none */
    bool is_entry;
    bool is_shim_entry;
    size_t n_locals;
    const struct local *locals; /* arguments first; good as long as the trace; NULL: not asked for */
};

/* The signal that ended a process, as its core file tells. */
struct trace_signal {
    int number;       /* 0: none, the core file was made of a living process */
    const char *name; /* "SIGSEGV" */
    pid_t tid;        /* the thread that it hit */
    bool has_address; /* the memory access that failed */
    uint64_t address;
    pid_t sender; /* the process that sent it; 0: none did, or it did so itself */
};

/* A process as it is shown. `command` is its command line, arguments joined by blanks. */
struct proc_info {
    pid_t pid;
    pid_t parent; /* 0 when the parent is not part of what is shown */
    const char *command;
    const char *executable;              /* path of the program file */
    const char *found_by;                /* how the Python was found; NULL when that was not looked for */
    int major, minor, patch;             /* of the Python */
    const char *version_suffix;          /* "" or "rc1" */
    const struct proc_info *parent_info; /* NULL at the root */
    pid_t inner_pid;                     /* in a pid namespace that is not ours; 0: it is in ours */
    const char *runtime;                 /* of a container that is not ours: "podman"; NULL when unknown */
    const char *container;               /* its id; NULL when unknown */
    const char *core;                    /* the core file that it was read from; NULL: it is alive */
    struct trace_signal signal;
};

/* One thread's stack at one instant. `frames` is innermost first. */
struct trace {
    const struct proc_info *process;
    uint64_t thread_id;      /* Python's ident (pthread_t) */
    pid_t os_thread_id;      /* 0 when unknown */
    const char *thread_name; /* NULL when unknown */
    bool active;             /* the kernel was running it, decided before it was held */
    bool owns_gil;
    bool unsure;  /* read without holding the thread, and it moved meanwhile */
    uint64_t key; /* equal for equal stacks of the same thread; never 0 */
    size_t n_frames;
    const struct frame *frames; /* NULL when `key` is among the receiver's known keys */
};

/* The keys of stacks whose frames the receiver of traces has. It adds to them; the sampler only reads them, and leaves out
 * the frames of these stacks. Direct-mapped: a new key may displace an old one. */
#define KNOWN_KEYS 65536u

struct known_keys {
    uint64_t slots[KNOWN_KEYS];
};

static inline bool known_keys_have(const struct known_keys *k, uint64_t key)
{
    return k->slots[key % KNOWN_KEYS] == key;
}

#endif
