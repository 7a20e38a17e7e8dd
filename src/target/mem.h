/*
 * Interface to the memory of a target, so that the same code reads a live process or a core file. There
 * is no way to write.
 */
#ifndef TARGET_MEM_H
#define TARGET_MEM_H

#include "base/addr.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct mem;
struct proc_maps;

struct mem_span {
    addr_t addr;
    void *buf;
    size_t len;
};

struct mem_ops {
    /* Reads spans in order until one is not fully readable; returns how many it read. */
    size_t (*readv)(struct mem *m, const struct mem_span *spans, size_t n);
    struct mem *(*close)(struct mem *m);
    /* See mem_set_maps. NULL: reads never wait. */
    size_t (*set_maps)(struct mem *m, const struct proc_maps *maps);
    /* See mem_answers. NULL: it always does. */
    bool (*answers)(struct mem *m);
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
/* Tells what is mapped. Reads of file systems that may stop answering then never wait for them: a page that is not in memory is
 * read by a helper process, with a deadline. Returns how many mappings are on such file systems. */
size_t mem_set_maps(struct mem *m, const struct proc_maps *maps);
/* False if the memory of a running process cannot be read because the process keeps it locked: a thread waits in munmap for a
 * file system that does not answer. A read would wait, too. */
bool mem_live_answers(pid_t pid, const struct proc_maps *maps);
/* The same between two samples. Costs a call of the helper process if the process has a file mapped in which it can keep its memory
 * locked, and nothing otherwise. */
bool mem_answers(struct mem *m);
/* Accepts NULL; returns NULL. */
struct mem *mem_close(struct mem *m);

/* The memory of a running process: process_vm_readv, or /proc/PID/mem if that is refused. */
int mem_live_open(pid_t pid, struct mem **ret);

#endif
