/*
 * Code objects, by address: names, file and lines, read once and checked again at each use, since an
 * address is used anew when its code object has died.
 */
#ifndef PYTHON_CODE_H
#define PYTHON_CODE_H

#include "python/lines.h"
#include "python/python.h"

struct code_cache;

#define CODE_MARK_BYTES 256

/* One code object. Strings are interned. */
struct code {
    addr_t addr;
    const char *name; /* qualified from 3.11 on */
    const char *filename;
    int first_line;
    struct line_table lines;
    const void *func; /* for the caller: what this code is in its own terms; NULL when new or renewed */
    /* What was there when it was read: parts of the code object, its names and its line table. */
    addr_t name_at, file_at, name_tail_at, file_tail_at, lines_at;
    size_t name_tail_len, file_tail_len, lines_len;
    bool versioned; /* its version number alone tells it from any other */
    unsigned char mark[CODE_MARK_BYTES];
    uint64_t checked; /* the round in which it was found unchanged */
    uint64_t serial;  /* another one each time that it is read anew */
};

struct code_cache *code_cache_new(void);
struct code_cache *code_cache_free(struct code_cache *cache);

/* Begins a round: code objects are checked again, once each; less thoroughly while the program is `calm`, that is,
 * while no new ones come. */
void code_cache_round(struct code_cache *cache, bool calm);

/* The code objects at `n` addresses, checked in one go. An entry is NULL where it could not be read.
 * Pointers are good until the next call. 0 or ERR_NOMEM. */
int code_cache_get(struct code_cache *cache, const struct python *py, const addr_t *addrs, size_t n,
                   const struct code **ret);

/* For the caller's own use of `func`. */
void code_set_func(const struct code *code, const void *func);

/* How many code objects were read so far, new ones and those whose address was used anew. */
uint64_t code_cache_reads(const struct code_cache *cache);

/* The line at `at` bytes into the bytecode. */
int code_line(const struct code *code, int64_t at);

#endif
