/*
 * A made-up target: struct mem_ops over a list of regions, so that the readers of Python can be tested
 * without a process. Remembers which words were read, for tests that change them one by one.
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
    size_t len, used; /* `used` is what fake_mem_alloc has given out */
    unsigned char *bytes;
    unsigned char *seen; /* a flag a word of 8 bytes: was read */
};

struct fake_mem {
    struct mem mem;
    struct fake_region regions[FAKE_MAX_REGIONS];
    size_t n;
    uint64_t reads;                            /* spans asked for */
    bool watch;                                /* set the flags */
    uint64_t calls;                            /* each of many spans */
    void (*on_call)(void *arg, uint64_t call); /* before each: what the target does meanwhile */
    void *on_call_arg;
};

/* A test cannot go on without memory: these end it. */
struct fake_mem *fake_mem_new(void);
addr_t fake_mem_add(struct fake_mem *m, addr_t start, size_t len);
void fake_mem_remove(struct fake_mem *m, addr_t start);

/* The next `len` bytes, at a multiple of 16, of the region that starts at `start`. */
addr_t fake_mem_alloc(struct fake_mem *m, addr_t start, size_t len);

/* Our copy of what lies at `addr`; ends the test when that is not all in one region. */
void *fake_mem_at(struct fake_mem *m, addr_t addr, size_t len);

void fake_mem_put(struct fake_mem *m, addr_t addr, uint64_t value);
void fake_mem_put_bytes(struct fake_mem *m, addr_t addr, const void *bytes, size_t len);
uint64_t fake_mem_get(struct fake_mem *m, addr_t addr);

#endif
