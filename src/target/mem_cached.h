/*
 * Caches the pages of a target's memory, for readers that follow many small objects while a thread is
 * paused. A budget bounds the number of reads.
 */
#ifndef TARGET_MEM_CACHED_H
#define TARGET_MEM_CACHED_H

#include "target/mem.h"

#include <stdbool.h>

struct mem_cached;

struct mem_cached *mem_cached_new(void); /* NULL if out of memory */
struct mem_cached *mem_cached_free(struct mem_cached *c);

/* Drops all pages. From now on reads come from `from`, which is borrowed. After `budget` reads, further reads fail. */
void mem_cached_begin(struct mem_cached *c, struct mem *from, size_t budget);

/* The memory to read from. Do not close it. */
struct mem *mem_cached_mem(struct mem_cached *c);

/* True if the budget has run out. */
bool mem_cached_spent(const struct mem_cached *c);

#endif
