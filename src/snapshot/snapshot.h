/*
 * The bytes of one moment of a thread. It implements struct mem, so that readers do not know it is there.
 *
 * A system call costs more than the bytes that it copies. So the first read of a moment fetches, in one call, all that the
 * last reading of the same thread used (its read plan), and later reads are answered from that copy. A read that is not
 * in the copy goes to the target, and into the plan for the next time.
 *
 *     snapshot_begin(s, &plan, SNAPSHOT_ONCE, 0);     the thread is paused from here
 *     ... mem_read(snapshot_mem(s), ...), snapshot_view(s, ...) ...
 *     snapshot_end(s, true);                          to here
 *
 * Outside of begin and end every read goes to the target.
 *
 * SNAPSHOT_TWICE is for a thread that nothing pauses. One call fetches the plan, then the ranges marked SNAPSHOT_PIVOT,
 * then the plan again. What both copies have in common was there when the pivot was read. Only snapshot_view() is answered
 * from the copies; snapshot_select() says from which.
 */
#ifndef SNAPSHOT_SNAPSHOT_H
#define SNAPSHOT_SNAPSHOT_H

#include "target/mem.h"

#include <stdbool.h>
#include <stdint.h>

struct snapshot;
struct successors;

enum snapshot_mode { SNAPSHOT_ONCE, SNAPSHOT_TWICE };

/* Flags of a range. */
#define SNAPSHOT_PIVOT 1u /* what leads to the rest: read between the two copies */

struct plan_range {
    addr_t addr;
    uint32_t len;
    uint32_t flags;
};

/* What to fetch for a thread. Zeroed at first. */
struct read_plan {
    struct plan_range *items; /* blocks first, the others in the order of their use */
    size_t n, cap;
    struct successors *next; /* which view followed which: to fetch several at once when the stack has changed */
};

void read_plan_free(struct read_plan *plan);

/* With `owns`, takes over `target`, also when it fails. */
int snapshot_new(struct mem *target, bool owns, struct snapshot **ret);
struct snapshot *snapshot_free(struct snapshot *s); /* accepts NULL, returns NULL */

/* Valid as long as `s`; not to be closed. */
struct mem *snapshot_mem(struct snapshot *s);

/* Nothing is read yet. `last`: the address of a 32-bit word to fetch after everything else, or 0. */
void snapshot_begin(struct snapshot *s, struct read_plan *plan, enum snapshot_mode mode, addr_t last);
/* Updates the plan. `complete`: the reading found all that it looked for, so that ranges it did not use can go. */
void snapshot_end(struct snapshot *s, bool complete);

/* Between begin and the first read: fetch this as well, this once. */
void snapshot_expect(struct snapshot *s, addr_t addr, size_t len);

/* Between begin and end: memory that the caller has copied itself since begin. It answers what lies inside. */
void snapshot_offer(struct snapshot *s, addr_t addr, const void *bytes, size_t len);

/* The bytes at `addr`, valid until the next read; NULL when they cannot be read. */
const unsigned char *snapshot_view(struct snapshot *s, addr_t addr, size_t len, uint32_t flags);
/* The same for a block: later views lie inside. */
const unsigned char *snapshot_block(struct snapshot *s, addr_t addr, size_t len, uint32_t flags);
/* The next plan fetches some more of the block that was just returned, but not more than `max_len`. */
void snapshot_block_may_grow(struct snapshot *s, size_t max_len);
/* The length of the block that begins at `addr`, as far as it was copied; 0: there is none. */
size_t snapshot_block_len(const struct snapshot *s, addr_t addr);

/* Reads directly from the target, bypassing the copy and the plan. Use it for data that is rarely needed. */
int snapshot_read_aside(struct snapshot *s, addr_t addr, void *ret, size_t len);

/* The last view was in the copy: it was not read later than the rest. */
bool snapshot_was_planned(const struct snapshot *s);

bool snapshot_is_twice(const struct snapshot *s);
/* SNAPSHOT_TWICE: not all of the plan could be read, and so nothing was. The plan will be smaller the next time. */
bool snapshot_has_failed(const struct snapshot *s);
/* SNAPSHOT_TWICE: the last view is in both copies. */
bool snapshot_is_doubled(const struct snapshot *s);
/* SNAPSHOT_TWICE: from now on views come from the first copy (0) or from the second (1). */
void snapshot_select(struct snapshot *s, int copy);
/* SNAPSHOT_TWICE: the bytes in both copies; false when they are not. */
bool snapshot_both(struct snapshot *s, addr_t addr, size_t len, const unsigned char *ret[2]);
/* SNAPSHOT_TWICE: how long the call took, in ns, and for how many pieces; 0: there was none, or it failed. */
uint64_t snapshot_took_ns(const struct snapshot *s, size_t *ret_pieces);

/* The word `last` as it was after all that was read since snapshot_begin. */
int snapshot_read_last(struct snapshot *s, uint32_t *ret);

#endif
