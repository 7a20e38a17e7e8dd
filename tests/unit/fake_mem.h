/*
 * A synthetic target: struct mem_ops over a list of regions, to test the readers of Python without a process. Records
 * which words were read, for tests that change them one by one.
 *
 *     struct fake_mem *m = fake_mem_new();
 *     addr_t a = fake_mem_add(m, 0x10000, 4096);      // zeroed
 *     fake_mem_put(m, a + 8, 42);
 *     mem_read_addr(&m->mem, a + 8, &value);
 *     mem_close(&m->mem);
 */
#ifndef TESTS_UNIT_FAKE_MEM_H
#define TESTS_UNIT_FAKE_MEM_H

#include "target/mem.h"

#include <stdbool.h>
#include <stdint.h>

#define FAKE_MAX_REGIONS 64

struct fake_region {
    addr_t start;
    size_t len, used; /* `used`: the bytes that fake_mem_alloc has handed out */
    unsigned char *bytes;
    unsigned char *seen; /* one flag per 8-byte word: it was read */
};

struct fake_mem {
    struct mem mem;
    struct fake_region regions[FAKE_MAX_REGIONS];
    size_t n;
    uint64_t reads;                            /* spans requested */
    bool watch;                                /* record the flags */
    uint64_t calls;                            /* count each span of a call */
    void (*on_call)(void *arg, uint64_t call); /* called before each read, to change the target */
    void *on_call_arg;
};

/* These abort the test if memory runs out. */
struct fake_mem *fake_mem_new(void);
addr_t fake_mem_add(struct fake_mem *m, addr_t start, size_t len);
void fake_mem_remove(struct fake_mem *m, addr_t start);

/* Allocates the next `len` bytes, at a multiple of 16, from the region that starts at `start`. */
addr_t fake_mem_alloc(struct fake_mem *m, addr_t start, size_t len);

/* Our copy of the bytes at `addr`; aborts the test if they are not all in one region. */
void *fake_mem_at(struct fake_mem *m, addr_t addr, size_t len);

void fake_mem_put(struct fake_mem *m, addr_t addr, uint64_t value);
void fake_mem_put_bytes(struct fake_mem *m, addr_t addr, const void *bytes, size_t len);
uint64_t fake_mem_get(struct fake_mem *m, addr_t addr);

#endif
