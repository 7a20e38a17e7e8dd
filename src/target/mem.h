/*
 * A target's memory behind two functions, so that the same walk reads a live process or a core file.
 * Never writes.
 *
 *     uint64_t head;
 *     if (mem_read(m, runtime + 40, &head, sizeof(head)) < 0) …
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
    /* Reads spans in order until one cannot be read whole; returns how many were. */
    size_t (*readv)(struct mem *m, const struct mem_span *spans, size_t n);
    struct mem *(*close)(struct mem *m);
};

/* Embedded as the first member of each implementation. */
struct mem {
    const struct mem_ops *ops;
};

/* All `len` bytes or an error: ERR_READ, ERR_GONE, ERR_PERMISSION. */
int mem_read(struct mem *m, addr_t addr, void *buf, size_t len);
/* A pointer-sized word. */
int mem_read_addr(struct mem *m, addr_t addr, addr_t *ret);
/* As many of the spans as can be read whole, from the first on; returns their number. */
size_t mem_readv(struct mem *m, const struct mem_span *spans, size_t n);
/* Accepts NULL, returns NULL. */
struct mem *mem_close(struct mem *m);

/* The memory of a running process: process_vm_readv, or /proc/PID/mem where that call is refused. */
int mem_live_open(pid_t pid, struct mem **ret);

#endif
