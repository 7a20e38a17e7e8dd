/*
 * Cache of code objects by address: name, file name and lines. CPython reuses the address of a freed code
 * object, so each use compares a fingerprint of the object.
 */
#ifndef PYTHON_CODE_H
#define PYTHON_CODE_H

#include "python/lines.h"
#include "python/python.h"

struct code_cache;

#define CODE_FINGERPRINT_BYTES 256

/* Strings are interned. */
struct code {
    addr_t addr;
    const char *name; /* co_qualname from 3.11 on, co_name before */
    const char *filename;
    int first_line;
    struct line_table lines;
    struct position_table positions; /* empty unless the cache was created with them */
    const void *func; /* owned by the caller, see code_set_func(); NULL when the code object is new or was reread */
    /* What the fingerprint covers. */
    addr_t name_at, file_at, name_tail_at, file_tail_at, lines_at;
    size_t name_tail_len, file_tail_len, lines_len;
    bool has_version; /* co_version is set and identifies the code object */
    unsigned char fingerprint[CODE_FINGERPRINT_BYTES];
    uint64_t checked_round; /* the last round that compared the fingerprint */
    uint64_t serial;        /* changes each time the code object is read */
};

/* `positions`: decode columns as well, for code_position(). */
struct code_cache *code_cache_new(bool positions);
struct code_cache *code_cache_free(struct code_cache *cache);

/* Starts a round. Each round compares the fingerprint of each code object once. `calm`: the program creates no new
 * code objects at the moment, so a shorter fingerprint is enough. */
void code_cache_round(struct code_cache *cache, bool calm);

/* Looks up the code objects at `n` addresses; known ones are compared in batches. Sets an entry to NULL if it is
 * unreadable. Pointers are valid until the next round. Returns 0, ERR_NOMEM, or ERR_TOO_MANY_CODES: the entries of those that do
 * not fit are NULL. */
int code_cache_get(struct code_cache *cache, const struct python *py, const addr_t *addrs, size_t n,
                   const struct code **ret);

/* Attaches a pointer of the caller's to a code object. */
void code_set_func(const struct code *code, const void *func);

/* Number of code objects read so far, including addresses that were reused. */
uint64_t code_cache_reads(const struct code_cache *cache);

/* The last part of its qualified name: "get" of "Queue.get". */
const char *code_last_name(const struct code *code);

/* True if the path of its file ends with `file`: "/threading.py". */
bool code_is_in(const struct code *code, const char *file);

/* Line number at byte offset `at` of the bytecode. */
int code_line(const struct code *code, int64_t at);

/* The same with columns. False if the position is unknown. */
bool code_position(const struct code *code, int64_t at, struct position *ret);

#endif
