/*
 * A reader of memory that guesses. What was asked for in several calls during one reading of a thread is fetched the
 * next time in the first call, since it is the calls that cost.
 *
 *     ahead_begin(a, &k->ahead);      // the thread stands still from here …
 *     mem_read(ahead_mem(a), …);      // this call fetches what the last reading asked for, too
 *     mem_read(ahead_mem(a), …);      // answered from the copy
 *     ahead_end(a);                   // … to here
 *
 * Outside of begin and end it only passes on.
 */
#ifndef TARGET_AHEAD_H
#define TARGET_AHEAD_H

#include "target/mem.h"

#include <stdbool.h>
#include <stdint.h>

#define AHEAD_SPANS 64
#define AHEAD_BYTES 8192

struct ahead;

/* What a reading asked for after its first call. Zeroed at first. */
struct ahead_list {
    struct {
        addr_t addr;
        uint32_t len;
    } items[AHEAD_SPANS];
    size_t n;
    size_t bytes;
};

/* Takes over `inner`, also when it fails. */
int ahead_new(struct mem *inner, struct ahead **ret);
/* Accepts NULL, returns NULL. */
struct ahead *ahead_free(struct ahead *a);

/* Good as long as `a`; not to be closed. */
struct mem *ahead_mem(struct ahead *a);

/* `list` is what was asked for the last time, and is made anew. `last`: a word to be fetched after all else, or 0. */
void ahead_begin(struct ahead *a, struct ahead_list *list, addr_t last);
void ahead_end(struct ahead *a);

/* Between begin and the first call: this, too, will be asked for, this once. */
void ahead_expect(struct ahead *a, addr_t addr, size_t len);

/* Between begin and end: memory that the caller has copied since. It answers what lies inside of it. */
void ahead_offer(struct ahead *a, addr_t at, const void *bytes, size_t len);

/* The word `last` as it was after all that was read since ahead_begin. */
int ahead_read_last(struct ahead *a, uint32_t *ret);

#endif
