/*
 * Decodes the line tables of CPython: co_lnotab, PEP 626 ranges and PEP 657 locations.
 */
#include "python/lines.h"

#include "base/err.h"
#include "base/grow.h"

#include <stdlib.h>

struct cursor {
    const unsigned char *p, *end;
};

static int row_add(struct line_table *t, uint32_t start, int64_t line)
{
    int32_t value = line > 0 && line <= INT32_MAX ? (int32_t)line : 0;

    if (t->n && t->rows[t->n - 1].start == start) {
        t->rows[t->n - 1].line = value;
        return 0;
    }
    if (t->n && t->rows[t->n - 1].line == value)
        return 0;
    if (grow_array((void **)&t->rows, &t->cap, t->n + 1, sizeof(*t->rows)) < 0)
        return ERR_NOMEM;
    t->rows[t->n++] = (struct line_row){start, value};
    return 0;
}

/* Up to 3.9: pairs of (bytecode bytes, lines) to add; lines are signed from 3.6 on. */
static int decode_lnotab(struct cursor c, bool is_signed, int first_line, struct line_table *t)
{
    uint32_t at = 0;
    int64_t line = first_line;
    int r = row_add(t, 0, line);

    for (; r == 0 && c.end - c.p >= 2; c.p += 2) {
        at += c.p[0];
        line += is_signed ? (int64_t)(signed char)c.p[1] : (int64_t)c.p[1];
        r = row_add(t, at, line);
    }
    return r;
}

/* 3.10: pairs of (length in bytes, signed lines); -128 means no line. A range of length 0 only changes the line. */
static int decode_ranges(struct cursor c, int first_line, struct line_table *t)
{
    uint32_t at = 0;
    int64_t line = first_line;
    int r = 0;

    for (; r == 0 && c.end - c.p >= 2; c.p += 2) {
        int delta = (signed char)c.p[1];

        if (delta != -128)
            line += delta;
        if (c.p[0])
            r = row_add(t, at, delta == -128 ? 0 : line);
        at += c.p[0];
    }
    return r;
}

static bool read_varint(struct cursor *c, uint64_t *ret)
{
    uint64_t value = 0;

    for (unsigned int shift = 0; c->p < c->end && shift < 60; shift += 6) {
        unsigned char b = *c->p++;

        value |= (uint64_t)(b & 63) << shift;
        if (!(b & 64)) {
            *ret = value;
            return true;
        }
    }
    return false;
}

static bool read_signed_varint(struct cursor *c, int64_t *ret)
{
    uint64_t value;

    if (!read_varint(c, &value))
        return false;
    *ret = value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
    return true;
}

/* One entry of the 3.11 format. */
struct location {
    uint32_t bytes; /* of bytecode that it covers */
    bool has_line;
    int64_t line_delta;
    uint64_t end_line_delta;
    uint64_t column, end_column; /* plus one; 0: unknown */
};

/* Codes 0 to 9: the columns are in the code and one byte. 10 to 12: in two bytes. 13: none. 14: varints. 15: not even a line. */
static bool read_columns(struct cursor *c, unsigned int code, struct location *ret)
{
    size_t n = code < 10 ? 1 : code < 13 ? 2 : 0;

    if ((size_t)(c->end - c->p) < n)
        return false;
    if (code < 10) {
        ret->column = code * 8u + (c->p[0] >> 4 & 7) + 1;
        ret->end_column = ret->column + (c->p[0] & 15);
    } else if (code < 13) {
        ret->column = c->p[0] + 1u;
        ret->end_column = c->p[1] + 1u;
    } else if (code == 14) {
        return read_varint(c, &ret->end_line_delta) && read_varint(c, &ret->column) && read_varint(c, &ret->end_column);
    }
    c->p += n;
    return true;
}

/* The first byte is 1, code:4, length-1:3, with the length in two-byte code units. */
static bool read_location(struct cursor *c, struct location *ret)
{
    unsigned char first = *c->p++;
    unsigned int code = first >> 3 & 15;

    *ret = (struct location){.bytes = (uint32_t)((first & 7) + 1) * 2,
                             .has_line = code != 15,
                             .line_delta = code >= 10 && code <= 12 ? (int64_t)code - 10 : 0};
    if (!(first & 128) || (code >= 13 && code <= 14 && !read_signed_varint(c, &ret->line_delta)))
        return false;
    return read_columns(c, code, ret) && ret->line_delta <= INT32_MAX && ret->line_delta >= INT32_MIN;
}

static int decode_locations(struct cursor c, int first_line, struct line_table *t)
{
    uint32_t at = 0;
    int64_t line = first_line;
    struct location loc;
    int r = 0;

    while (r == 0 && c.p < c.end) {
        if (!read_location(&c, &loc))
            return ERR_BOUNDS;
        line += loc.line_delta;
        r = row_add(t, at, loc.has_line ? line : 0);
        at += loc.bytes;
    }
    return r;
}

int lines_decode(enum line_kind kind, const unsigned char *bytes, size_t len, int first_line, struct line_table *ret)
{
    struct cursor c = {bytes, bytes + len};

    *ret = (struct line_table){0};
    switch (kind) {
    case LINES_LNOTAB_UNSIGNED:
        return decode_lnotab(c, false, first_line, ret);
    case LINES_LNOTAB:
        return decode_lnotab(c, true, first_line, ret);
    case LINES_RANGES:
        return decode_ranges(c, first_line, ret);
    case LINES_LOCATIONS:
        return decode_locations(c, first_line, ret);
    }
    return ERR_INTERNAL;
}

void lines_free(struct line_table *table)
{
    free(table->rows);
    *table = (struct line_table){0};
}

/* Impossible values are unknown ones. */
static struct position position_of(const struct location *loc, int64_t line)
{
    bool has_line = loc->has_line && line > 0 && line <= INT32_MAX;
    bool has_columns = has_line && loc->column > 0 && loc->column <= INT32_MAX && loc->end_column > 0 &&
                       loc->end_column <= INT32_MAX && loc->end_line_delta <= (uint64_t)(INT32_MAX - line);

    return (struct position){.line = has_line ? (int32_t)line : 0,
                             .end_line = has_columns ? (int32_t)(line + (int64_t)loc->end_line_delta) : 0,
                             .column = has_columns ? (int32_t)loc->column - 1 : -1,
                             .end_column = has_columns ? (int32_t)loc->end_column - 1 : -1};
}

int positions_decode(enum line_kind kind, const unsigned char *bytes, size_t len, int first_line,
                     struct position_table *ret)
{
    struct cursor c = {bytes, bytes + len};
    int64_t line = first_line;
    uint32_t at = 0;
    struct location loc;

    *ret = (struct position_table){0};
    while (kind == LINES_LOCATIONS && c.p < c.end) {
        if (!read_location(&c, &loc))
            return ERR_BOUNDS;
        line += loc.line_delta;
        if (grow_array((void **)&ret->rows, &ret->cap, ret->n + 1, sizeof(*ret->rows)) < 0)
            return ERR_NOMEM;
        ret->rows[ret->n++] = (struct position_row){at, position_of(&loc, line)};
        at += loc.bytes;
    }
    return 0;
}

void positions_free(struct position_table *table)
{
    free(table->rows);
    *table = (struct position_table){0};
}

bool positions_find(const struct position_table *table, int64_t at, struct position *ret)
{
    size_t lo = 0, hi = table->n;

    while (at >= 0 && lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (table->rows[mid].start <= (uint64_t)at)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (at < 0 || !lo || !table->rows[lo - 1].position.line)
        return false;
    *ret = table->rows[lo - 1].position;
    return true;
}

int lines_find(const struct line_table *table, int64_t at, int first_line)
{
    size_t lo = 0, hi = table->n;

    if (at < 0 || !table->n)
        return first_line;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (table->rows[mid].start <= (uint64_t)at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo ? table->rows[lo - 1].line : first_line;
}
