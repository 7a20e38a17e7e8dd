/*
 * What snapshot.c, which reads, and read_plan.c, which plans the next reading, share.
 */
#ifndef SNAPSHOT_SNAPSHOT_PRIVATE_H
#define SNAPSHOT_SNAPSHOT_PRIVATE_H

#include "base/hash_table.h"
#include "snapshot/snapshot.h"

/* Bounds of a plan. A target chooses its addresses and lengths. */
#define BLOCKS_MAX 64
#define VIEWS_MAX  16384
#define READS_MAX  256 /* small reads: code objects, list heads, locks */
#define READS_LEN  32768
#define BLOCK_MAX  ((size_t)8 * 1024 * 1024)

/* Bound of a reading: after this many ranges, no more views and reads are kept. More than a plan can have. */
#define RANGES_MAX 32768

/* Kinds of ranges, beside the caller's flags. */
#define IS_BLOCK 0x100u
#define IS_VIEW  0x200u
#define IS_READ  0x400u
#define IS_ONCE  0x800u  /* of snapshot_expect */
#define IS_OLDER 0x1000u /* not used by the last reading */

#define NOT_READ SIZE_MAX /* of range.at */

struct range {
    addr_t addr;
    uint32_t len;
    uint32_t flags;
    uint32_t wanted; /* of a block: how much of it to fetch the next time */
    bool used;
    bool as_pivot; /* every use in this reading asked for a pivot */
    size_t at;     /* in `bytes`, or NOT_READ */
};

struct snapshot {
    struct mem mem;
    struct mem *target;
    bool owns_target;
    struct read_plan *plan; /* NULL outside of begin and end */
    enum snapshot_mode mode;
    bool fetched, failed; /* failed: SNAPSHOT_TWICE could not read all of the plan */
    struct range *ranges; /* of the plan, then those that were missed */
    size_t n, cap, n_planned;
    size_t blocks[BLOCKS_MAX + 1]; /* positions in `ranges` */
    size_t n_blocks, at_block;
    size_t *used; /* positions, in the order of their first use */
    size_t n_used, cap_used;
    size_t cursor;           /* the same reads come in the same order: where the next one most likely is */
    struct hash_table index; /* of `ranges` but blocks, by address; filled when the cursor is wrong */
    bool indexed;
    unsigned char *bytes;
    size_t len, cap_bytes;
    size_t half;           /* SNAPSHOT_TWICE: where the second copy begins */
    size_t base;           /* 0, or half */
    size_t last_view;      /* position */
    size_t stride;         /* views to fetch at the next miss; 0: none was missed yet */
    size_t batch, n_batch; /* the views that were fetched at the last miss */
    addr_t last;           /* the address of the word to read last, or 0 */
    uint32_t last_value;
    bool has_last; /* it was read, and nothing after it */
    addr_t offer_addr;
    const unsigned char *offer;
    size_t offer_len;
    uint64_t took_ns;
    size_t took_pieces;
    struct mem_span *spans;
    size_t cap_spans;
};

#endif
