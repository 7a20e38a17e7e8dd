/*
 * Copies of pieces of a target's memory, made in one call and good for one reading of a stack.
 */
#ifndef PYTHON_WINDOWS_H
#define PYTHON_WINDOWS_H

#include "target/mem.h"

#include <stdbool.h>

struct window {
    addr_t start;
    size_t len, at; /* its bytes are at `at` in `bytes` below */
    bool once;      /* in a double reading: there is one copy, made between the two of the others */
};

struct windows {
    unsigned char *bytes;
    size_t used, cap_bytes;
    struct window *items; /* first the large ones (`n_chunks`), then single frames */
    size_t n, cap, n_chunks;
    size_t n_copied;                /* windows of a double reading */
    size_t half;                    /* where the second copy begins */
    uint64_t took_ns;               /* the last double reading, */
    size_t took_pieces;             /* of so many, long ones counted by their length */
    size_t base;                    /* where the copy begins that is looked at: 0 or half */
    size_t n_hinted;                /* windows of the first call */
    size_t n_fetched, used_fetched; /* windows that stay; behind them, one that is read when it is asked for */
    size_t found;                   /* the window of the last find */
    size_t at_chunk, at_extra;      /* where the last finds were: the next is most often beside them */
    size_t misses;                  /* finds in vain, one after the other */
    struct mem_span *spans;
    size_t cap_spans;
};

void windows_clear(struct windows *w);
void windows_free(struct windows *w);

/* Makes room for a copy; its bytes are to be read yet. 0 or ERR_NOMEM. */
int windows_add(struct windows *w, addr_t start, size_t len);

/* Reads the windows from number `first` on, in one call; those that could not be read are dropped. */
int windows_read(struct windows *w, struct mem *m, size_t first);

/* Reads all but those marked `once`, then those, then the others again, in one call. ERR_TORN when one could not be
 * read: then there are none. */
int windows_read_twice(struct windows *w, struct mem *m);

/* From here on windows are read singly, when they are asked for. */
void windows_keep(struct windows *w);

/* Bytes of window `i`, or NULL when it does not hold them. */
const unsigned char *windows_bytes(const struct windows *w, size_t i, addr_t addr, size_t len);

/* The bytes at `addr` from a copy; NULL when there is none. */
const unsigned char *windows_find(struct windows *w, addr_t addr, size_t len);

/* The bytes at `addr`, from a copy or read now; NULL when they cannot be read. Good until the next call. */
const unsigned char *windows_fetch(struct windows *w, struct mem *m, addr_t addr, size_t len);

/* Reads them now, without a look at the copies. */
const unsigned char *windows_fetch_one(struct windows *w, struct mem *m, addr_t addr, size_t len);

/* How many of these, from the first on, are in no copy. Stacks that meet stay together: from where one is, all are. */
size_t windows_count_new(const struct windows *w, const addr_t *addrs, size_t n, size_t len);

/* Reads all of these now, in one call, to stay: the bytes of the first, or NULL. */
const unsigned char *windows_fetch_all(struct windows *w, struct mem *m, const addr_t *addrs, size_t n, size_t len);

/* Both copies of these bytes, of a double reading; false when they are not in both. `at` is where the last ones were, 0 at
 * first: the next are most often beside them. */
bool windows_find_copies(const struct windows *w, addr_t addr, size_t len, size_t *at, const unsigned char *ret[2]);

#endif
