/*
 * The ways into a process, each tried for real: what doctor shows. Nothing of the process is changed; its main thread is
 * held once, as for a sample.
 */
#ifndef TARGET_WAYS_H
#define TARGET_WAYS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct way {
    const char *name; /* "process_vm_readv" */
    const char *use;  /* what it is for, and what stands in for it */
    int error;        /* 0: open; else the kernel's errno */
};

enum {
    WAYS_READV,
    WAYS_MEM,
    WAYS_PTRACE,
    WAYS_CORE,
    WAYS_SCHEDSTAT,
    WAYS_FILES,
    WAYS_PIDFD,
    WAYS_OPENAT2,
    WAYS_CHILDREN,
    WAYS_COUNT
};

struct ways {
    struct way items[WAYS_COUNT];
};

void ways_try(pid_t pid, struct ways *ret);
/* True when memory can be read by one of them. */
bool ways_can_read(const struct ways *w);

/* A child that does nothing, for ways_try; -1 when there can be none. */
pid_t ways_start_child(void);
void ways_end_child(pid_t pid);

#endif
