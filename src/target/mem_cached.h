/*
 * Another target's memory, a page at a time and each page once: for readers that follow many small objects while
 * a thread is kept still.
 *
 *     struct mem_cached *c = mem_cached_new();
 *     mem_cached_begin(c, live, 4096);             // at most 4096 reads of `live` from here on
 *     mem_read(mem_cached_mem(c), …);
 *     if (mem_cached_spent(c)) …                   // some reads were refused
 */
#ifndef TARGET_MEM_CACHED_H
#define TARGET_MEM_CACHED_H

#include "target/mem.h"

#include <stdbool.h>

struct mem_cached;

struct mem_cached *mem_cached_new(void); /* NULL when out of memory */
struct mem_cached *mem_cached_free(struct mem_cached *c);

/* Forgets all pages. From now on reads come from `from`, which is borrowed; `budget` of them, the others fail. */
void mem_cached_begin(struct mem_cached *c, struct mem *from, size_t budget);

/* What is to be read with; it is not to be closed. */
struct mem *mem_cached_mem(struct mem_cached *c);

/* True when the budget was used up. */
bool mem_cached_spent(const struct mem_cached *c);

#endif
