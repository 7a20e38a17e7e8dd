/*
 * Which parts of a process's memory are files on file systems that may stop answering (FUSE, NFS): reading a page there that is
 * not in memory would wait for the file system, for good if it is dead.
 */
#ifndef TARGET_MEM_GUARD_H
#define TARGET_MEM_GUARD_H

#include "target/mem.h"

#include <stdbool.h>

struct mem_guard_range {
    addr_t start, end, offset;
    uint64_t device;
    char *path; /* shared by the ranges of a file; owned by the first */
};

struct mem_guard {
    pid_t pid;
    int pagemap;                    /* /proc/PID/pagemap; -1 until needed */
    struct mem_guard_range *ranges; /* sorted */
    size_t n, cap;
    /* munmap writes back what was changed in a shared mapping, with the address space locked. So if there is one: an address
     * that is always in memory, so that only this lock keeps a read of it waiting. Else 0. */
    addr_t probe;
};

/* Finds these mappings. Returns their number. */
size_t mem_guard_set(struct mem_guard *g, const struct proc_maps *maps);
void mem_guard_free(struct mem_guard *g);

/* False if the process keeps its address space locked: nothing can be read, not even by mem_guard_read. */
bool mem_guard_answers(const struct mem_guard *g);

/* How many of the spans, from the first on, can be read without waiting for a file system. */
size_t mem_guard_safe(struct mem_guard *g, const struct mem_span *spans, size_t n);

/* Reads a span in a helper process. */
enum mem_guard_result {
    MEM_GUARD_FAILED, /* the file system does not answer */
    MEM_GUARD_DONE,
    MEM_GUARD_REFUSED, /* the helper may not read it; we can: the file system has answered */
};
enum mem_guard_result mem_guard_read(struct mem_guard *g, const struct mem_span *span);

#endif
