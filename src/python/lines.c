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

/* Reads one entry of the 3.11 format after its first byte: the line delta, and whether the entry has no line. */
static bool read_location(struct cursor *c, unsigned int code, int64_t *ret_delta, bool *ret_none)
{
    uint64_t skipped;
    size_t skip = code < 10 ? 1 : code < 13 ? 2 : 0;

    *ret_none = code == 15;
    *ret_delta = code >= 10 && code <= 12 ? (int64_t)code - 10 : 0;
    if (code >= 13 && code <= 14 && !read_signed_varint(c, ret_delta))
        return false;
    for (int i = 0; code == 14 && i < 3; i++)
        if (!read_varint(c, &skipped))
            return false;
    if ((size_t)(c->end - c->p) < skip)
        return false;
    c->p += skip;
    return true;
}

/* 3.11 and later: the first byte of an entry is 1, code:4, length-1:3, with the length in two-byte code units. */
static int decode_locations(struct cursor c, int first_line, struct line_table *t)
{
    uint32_t at = 0;
    int64_t line = first_line;
    int r = 0;

    while (r == 0 && c.p < c.end) {
        unsigned char first = *c.p++;
        int64_t delta;
        bool none;

        if (!(first & 128) || !read_location(&c, first >> 3 & 15, &delta, &none))
            return ERR_BOUNDS;
        if (delta > INT32_MAX || delta < INT32_MIN)
            return ERR_BOUNDS;
        line += delta;
        r = row_add(t, at, none ? 0 : line);
        at += (uint32_t)((first & 7) + 1) * 2;
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
