/*
 * Interface to the memory of a target, so that the same code reads a live process or a core file. There
 * is no way to write.
 */
#ifndef TARGET_MEM_H
#define TARGET_MEM_H

#include "base/addr.h"

#include <stddef.h>
#include <sys/types.h>

struct mem;

struct mem_span {
    addr_t addr;
    void *buf;
    size_t len;
};

struct mem_ops {
    /* Reads spans in order until one is not fully readable; returns how many it read. */
    size_t (*readv)(struct mem *m, const struct mem_span *spans, size_t n);
    struct mem *(*close)(struct mem *m);
};

/* The first member of each implementation. */
struct mem {
    const struct mem_ops *ops;
};

/* Reads all `len` bytes, or fails with ERR_READ. */
int mem_read(struct mem *m, addr_t addr, void *buf, size_t len);
/* Reads a pointer-sized word. */
int mem_read_addr(struct mem *m, addr_t addr, addr_t *ret);
/* Reads spans in order until one is not fully readable; returns how many it read. */
size_t mem_readv(struct mem *m, const struct mem_span *spans, size_t n);
/* Accepts NULL; returns NULL. */
struct mem *mem_close(struct mem *m);

/* The memory of a running process: process_vm_readv, or /proc/PID/mem if that is refused. */
int mem_live_open(pid_t pid, struct mem **ret);

#endif
