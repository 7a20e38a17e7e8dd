/*
 * Cache of code objects: address -> name, file name and line table. Code objects are read while the
 * thread is paused: a code object that a frame of a paused thread points to cannot be freed.
 */
#include "python/code.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/hash_table.h"
#include "base/log.h"
#include "python/strings.h"

#include <stdlib.h>
#include <string.h>

/* Parts of the fingerprint: the fields of the code object; length and hash of its name and file name; the last bytes
 * of both, since a str need not be hashed yet; the size and the start of the line table. From 3.12 on, co_version is
 * unique per code object, so the fields alone are enough. */
#define FINGERPRINT_FIELDS 128
#define FINGERPRINT_STR    16
#define FINGERPRINT_TAIL   24
#define FINGERPRINT_LINES  (CODE_FINGERPRINT_BYTES - FINGERPRINT_FIELDS - 2 * (FINGERPRINT_STR + FINGERPRINT_TAIL))
#define SPANS              6
#define BATCH              64

/* Bounds on what a target can make us store and do; no real stack comes near them. If the cache is more than half
 * full by either of the first two, code_cache_round() clears it. */
#define MAX_CODES      32768
#define MAX_ROW_BYTES  ((size_t)32 * 1024 * 1024) /* bytes of decoded line tables */
#define MAX_POSITIONS  ((size_t)1024 * 1024) /* bytes of a line table whose columns are decoded: ten times the size */
#define MAX_READ_BYTES ((size_t)16 * 1024 * 1024) /* bytes of line tables read per round */

struct code_cache {
    struct code **codes;
    size_t n, cap;
    struct hash_table by_addr; /* index of `codes` */
    size_t row_bytes, read_bytes;
    uint64_t round;
    uint64_t serial;
    bool positions;   /* decode columns, too */
    bool short_check; /* this round compares the fields and the name only */
};

struct code_cache *code_cache_new(bool positions)
{
    struct code_cache *cache = calloc(1, sizeof(*cache));

    if (cache)
        cache->positions = positions;
    return cache;
}

static size_t row_bytes(const struct code *c)
{
    return c->lines.cap * sizeof(*c->lines.rows) + c->positions.cap * sizeof(*c->positions.rows);
}

static void free_rows(struct code *c)
{
    lines_free(&c->lines);
    positions_free(&c->positions);
}

static void cache_empty(struct code_cache *cache)
{
    if (cache->n)
        log_debug("code", "dropping %zu code objects with %zu KB of lines", cache->n, cache->row_bytes >> 10);
    for (size_t i = 0; i < cache->n; i++) {
        free_rows(cache->codes[i]);
        free(cache->codes[i]);
    }
    hash_table_clear(&cache->by_addr);
    cache->n = cache->row_bytes = 0;
}

struct code_cache *code_cache_free(struct code_cache *cache)
{
    if (!cache)
        return NULL;
    cache_empty(cache);
    hash_table_free(&cache->by_addr);
    free(cache->codes);
    free(cache);
    return NULL;
}

void code_cache_round(struct code_cache *cache, bool calm)
{
    cache->round++;
    cache->short_check = calm;
    cache->read_bytes = 0;
    if (cache->n > MAX_CODES / 2 || cache->row_bytes > MAX_ROW_BYTES / 2)
        cache_empty(cache);
}

/* Looks up an address and adds an empty entry if there is none. ERR_NOMEM, or ERR_TOO_MANY_CODES if the cache is full. */
static int cache_entry(struct code_cache *cache, addr_t addr, struct code **ret)
{
    uint64_t hash = hash_mix(0, addr);
    struct code *c;
    size_t step = 0;
    uint32_t at;

    while ((at = hash_table_next(&cache->by_addr, hash, &step)) != HASH_TABLE_NONE)
        if (cache->codes[at]->addr == addr) {
            *ret = cache->codes[at];
            return 0;
        }
    if (cache->n >= MAX_CODES)
        return ERR_TOO_MANY_CODES;
    if (hash_table_reserve_item(&cache->by_addr, (void **)&cache->codes, &cache->cap, cache->n, sizeof(struct code *)) <
        0)
        return ERR_NOMEM;
    c = calloc(1, sizeof(*c));
    if (!c)
        return ERR_NOMEM;
    c->addr = addr;
    cache->codes[cache->n] = c;
    hash_table_add(&cache->by_addr, hash, (uint32_t)cache->n++);
    *ret = c;
    return 0;
}

static size_t size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* 3.11 keeps the warm-up counter of a code object below offset 56; everything from there up to co_lines is constant. */
static size_t fingerprint_spans(const struct python *py, const struct code *c, bool short_check,
                                unsigned char *fingerprint, struct mem_span *spans)
{
    const struct layout *l = &py->layout;
    size_t from = l->co_bytecode == NO ? 16 : 56, to = (size_t)l->co_size;
    size_t head = (size_t)(l->by_data - l->by_size);

    spans[0] = (struct mem_span){c->addr + from, fingerprint, size_min(to > from ? to - from : 0, FINGERPRINT_FIELDS)};
    if (c->has_version)
        return 1;
    fingerprint += FINGERPRINT_FIELDS;
    spans[1] = (struct mem_span){c->name_at + (addr_t)l->str_length, fingerprint, FINGERPRINT_STR};
    if (short_check)
        return 2;
    fingerprint += FINGERPRINT_STR;
    spans[2] = (struct mem_span){c->file_at + (addr_t)l->str_length, fingerprint, FINGERPRINT_STR};
    fingerprint += FINGERPRINT_STR;
    spans[3] = (struct mem_span){c->name_tail_at, fingerprint, c->name_tail_len};
    fingerprint += FINGERPRINT_TAIL;
    spans[4] = (struct mem_span){c->file_tail_at, fingerprint, c->file_tail_len};
    fingerprint += FINGERPRINT_TAIL;
    spans[5] = (struct mem_span){c->lines_at + (addr_t)l->by_size, fingerprint,
                                 size_min(head + c->lines_len, FINGERPRINT_LINES)};
    return SPANS;
}

/* Returns how many bytes of the fingerprint those spans fill. */
static size_t fingerprint_len(const struct code *c, bool short_check)
{
    return c->has_version ? FINGERPRINT_FIELDS
           : short_check  ? FINGERPRINT_FIELDS + FINGERPRINT_STR
                          : CODE_FINGERPRINT_BYTES;
}

static int find_tail(const struct python *py, addr_t object, addr_t *ret_at, size_t *ret_len)
{
    struct str_shape shape;
    int r = strings_shape(py, object, &shape);

    if (r < 0)
        return r;
    *ret_len = size_min(shape.length * (size_t)shape.kind, FINGERPRINT_TAIL);
    *ret_at = shape.data + shape.length * (size_t)shape.kind - *ret_len;
    return 0;
}

/* co_version is 0 if CPython ran out of version numbers (Objects/codeobject.c). */
static bool has_version(const struct layout *l, const unsigned char *bytes)
{
    uint32_t version = 0;

    if (l->co_version != NO && l->co_version + 4 <= l->co_filename)
        memcpy(&version, bytes + l->co_version, sizeof(version));
    return version != 0;
}

static int read_fields(const struct python *py, struct code *c)
{
    const struct layout *l = &py->layout;
    unsigned char bytes[512];
    int name = l->co_qualname != NO ? l->co_qualname : l->co_name;
    int r = mem_read(py->mem, c->addr, bytes, (size_t)l->co_size);

    if (r < 0)
        return r;
    memcpy(&c->name_at, bytes + name, sizeof(c->name_at));
    memcpy(&c->file_at, bytes + l->co_filename, sizeof(c->file_at));
    memcpy(&c->lines_at, bytes + l->co_lines, sizeof(c->lines_at));
    memcpy(&c->first_line, bytes + l->co_firstline, sizeof(c->first_line));
    if (c->first_line < 0)
        c->first_line = 0;
    c->has_version = has_version(l, bytes);
    r = strings_read(py, c->name_at, &c->name);
    if (r == 0)
        r = strings_read(py, c->file_at, &c->filename);
    if (r == 0)
        r = find_tail(py, c->name_at, &c->name_tail_at, &c->name_tail_len);
    return r < 0 ? r : find_tail(py, c->file_at, &c->file_tail_at, &c->file_tail_len);
}

/* If the line table is unreadable or too large, the frame is kept and gets the first line of the function. */
static int read_lines(struct code_cache *cache, const struct python *py, struct code *c)
{
    unsigned char *bytes;
    uint64_t len;
    int r;

    cache->row_bytes -= row_bytes(c);
    free_rows(c);
    c->lines_len = 0;
    if (mem_read_addr(py->mem, c->lines_at + (addr_t)py->layout.by_size, &len) < 0 || len > PY_MAX_LINES ||
        len > MAX_READ_BYTES - cache->read_bytes || cache->row_bytes > MAX_ROW_BYTES)
        return 0;
    cache->read_bytes += len;
    bytes = malloc(len ? len : 1);
    if (!bytes)
        return ERR_NOMEM;
    r = mem_read(py->mem, c->lines_at + (addr_t)py->layout.by_data, bytes, len);
    if (r == 0) {
        c->lines_len = len;
        r = lines_decode(py->layout.line_kind, bytes, len, c->first_line, &c->lines);
        if (r != ERR_NOMEM && cache->positions && len <= MAX_POSITIONS)
            r = positions_decode(py->layout.line_kind, bytes, len, c->first_line, &c->positions);
        cache->row_bytes += row_bytes(c);
    }
    free(bytes);
    return r == ERR_NOMEM ? r : 0;
}

static int code_read(struct code_cache *cache, const struct python *py, struct code *c)
{
    struct mem_span spans[SPANS];
    size_t n;
    int r = read_fields(py, c);

    c->func = NULL;
    if (r == 0)
        r = read_lines(cache, py, c);
    if (r < 0)
        return r;
    memset(c->fingerprint, 0, sizeof(c->fingerprint));
    n = fingerprint_spans(py, c, false, c->fingerprint, spans);
    if (mem_readv(py->mem, spans, n) != n)
        return ERR_READ;
    c->serial = ++cache->serial;
    return 0;
}

/* Reads the fingerprints of known code objects in one call, rereads those that differ, and empties the batch. */
static int check_batch(struct code_cache *cache, const struct python *py, struct code **codes, size_t *n_codes)
{
    struct mem_span spans[BATCH * SPANS];
    unsigned char fingerprints[BATCH][CODE_FINGERPRINT_BYTES];
    size_t n = *n_codes, n_spans = 0, whole, ends[BATCH];

    if (!n)
        return 0;
    *n_codes = 0;
    memset(fingerprints, 0, n * sizeof(fingerprints[0]));
    for (size_t i = 0; i < n; i++) {
        n_spans += fingerprint_spans(py, codes[i], cache->short_check, fingerprints[i], spans + n_spans);
        ends[i] = n_spans;
    }
    whole = mem_readv(py->mem, spans, n_spans);
    for (size_t i = 0; i < n; i++) {
        int r = 0;

        if (ends[i] > whole ||
            memcmp(fingerprints[i], codes[i]->fingerprint, fingerprint_len(codes[i], cache->short_check)) != 0)
            r = code_read(cache, py, codes[i]);
        if (r == ERR_NOMEM)
            return r;
        if (r < 0)
            codes[i]->name = NULL;
    }
    return 0;
}

/* Makes one entry valid for this round: reads a new one, queues a known one for the batch. An unreadable code object
 * has no name; each call of code_cache_get() tries it once. */
static int prepare_entry(struct code_cache *cache, const struct python *py, struct code *c, struct code **stale,
                         size_t *n_stale)
{
    int r;

    if (c->checked_round == cache->round)
        return 0;
    c->checked_round = cache->round;
    if (c->name) {
        stale[(*n_stale)++] = c;
        return *n_stale < BATCH ? 0 : check_batch(cache, py, stale, n_stale);
    }
    r = code_read(cache, py, c);
    if (r < 0)
        c->name = NULL;
    return r == ERR_NOMEM ? r : 0;
}

/* Entries are handed out as const, but the cache owns them. */
static struct code *writable_code(const struct code *code)
{
    return (struct code *)(uintptr_t)code;
}

int code_cache_get(struct code_cache *cache, const struct python *py, const addr_t *addrs, size_t n,
                   const struct code **ret)
{
    struct code *stale[BATCH];
    size_t n_stale = 0;
    bool is_full = false;
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        struct code *c = NULL;

        r = cache_entry(cache, addrs[i], &c);
        ret[i] = c;
        if (r == 0) {
            r = prepare_entry(cache, py, c, stale, &n_stale);
        } else if (r == ERR_TOO_MANY_CODES) {
            is_full = true;
            r = 0;
        }
    }
    if (r == 0)
        r = check_batch(cache, py, stale, &n_stale);
    for (size_t i = 0; i < n && r == 0; i++)
        if (ret[i] && !ret[i]->name) {
            writable_code(ret[i])->checked_round = 0;
            ret[i] = NULL;
        }
    return r == 0 && is_full ? ERR_TOO_MANY_CODES : r;
}

uint64_t code_cache_reads(const struct code_cache *cache)
{
    return cache->serial;
}

void code_set_func(const struct code *code, const void *func)
{
    writable_code(code)->func = func;
}

const char *code_last_name(const struct code *code)
{
    const char *dot = strrchr(code->name, '.');

    return dot ? dot + 1 : code->name;
}

bool code_is_in(const struct code *code, const char *file)
{
    size_t n = strlen(code->filename), k = strlen(file);

    return n >= k && strcmp(code->filename + n - k, file) == 0;
}

int code_line(const struct code *code, int64_t at)
{
    return lines_find(&code->lines, at, code->first_line);
}

bool code_position(const struct code *code, int64_t at, struct position *ret)
{
    return positions_find(&code->positions, at, ret);
}
