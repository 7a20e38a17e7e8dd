/*
 * Tries each way to access a process, for `spyglass doctor`. Does not change the process; stops its main
 * thread once, like a sample.
 */
#ifndef PAUSE_ACCESS_PROBE_H
#define PAUSE_ACCESS_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct access_method {
    const char *name; /* "process_vm_readv" */
    const char *use;  /* what it is for, and the fallback */
    int error;        /* 0: works; else errno */
};

enum {
    ACCESS_PROBE_READV,
    ACCESS_PROBE_MEM,
    ACCESS_PROBE_PTRACE,
    ACCESS_PROBE_CORE,
    ACCESS_PROBE_SCHEDSTAT,
    ACCESS_PROBE_FILES,
    ACCESS_PROBE_PIDFD,
    ACCESS_PROBE_OPENAT2,
    ACCESS_PROBE_CHILDREN,
    ACCESS_PROBE_COUNT
};

struct access_probe {
    struct access_method items[ACCESS_PROBE_COUNT];
};

void access_probe_try(pid_t pid, struct access_probe *ret);
/* True if memory can be read in one of the ways. */
bool access_probe_can_read(const struct access_probe *p);

/* Starts an idle child to probe; -1 on failure. */
pid_t access_probe_start_child(void);
void access_probe_end_child(pid_t pid);

#endif
