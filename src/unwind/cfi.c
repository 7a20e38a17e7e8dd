/*
 * .eh_frame or .debug_frame -> the row of one instruction. Called by unwind.c for each address that it meets for the
 * first time. Nothing that the section says can make it read outside of it or run for long.
 */
#include "unwind/cfi.h"

#include "base/err.h"
#include "base/grow.h"
#include "unwind/cfi_bytes.h"
#include "unwind/cfi_fde.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ENTRIES 4000000 /* FDEs of one module, found by a pass over them */

static struct cfi_bytes bytes_of(const struct cfi_section *s)
{
    return (struct cfi_bytes){.start = s->bytes, .end = s->len, .at = s->at};
}

uint64_t cfi_header_frame(const struct cfi_section *header)
{
    struct cfi_bytes b = bytes_of(header);
    uint64_t version = cfi_bytes_fixed(&b, 1), encoding = cfi_bytes_fixed(&b, 1), at;

    cfi_bytes_skip(&b, 2);
    at = version == 1 ? cfi_bytes_pointer(&b, (unsigned)encoding, header->at) : 0;
    return b.bad ? 0 : at;
}

/* The pairs are four bytes each, relative to the header, in all that linkers write; others are not used. */
static bool header_usable(struct cfi_table *t)
{
    struct cfi_bytes b = bytes_of(&t->header);
    uint64_t version = cfi_bytes_fixed(&b, 1), frame_enc = cfi_bytes_fixed(&b, 1), count_enc = cfi_bytes_fixed(&b, 1),
             table_enc = cfi_bytes_fixed(&b, 1), n;

    cfi_bytes_pointer(&b, (unsigned)frame_enc, t->header.at);
    n = cfi_bytes_pointer(&b, (unsigned)count_enc, t->header.at);
    if (b.bad || version != 1 || table_enc != 0x3b || n == 0 || n > (b.end - b.pos) / 8) /* datarel, sdata4 */
        return false;
    t->n_header = n;
    t->header_pairs = b.pos;
    return true;
}

static struct cfi_entry header_entry(const struct cfi_table *t, size_t i)
{
    int32_t pair[2];

    memcpy(pair, t->header.bytes + t->header_pairs + i * sizeof(pair), sizeof(pair));
    return (struct cfi_entry){t->header.at + (uint64_t)(int64_t)pair[0],
                              t->header.at + (uint64_t)(int64_t)pair[1] - t->frame.at};
}

static struct cfi_entry entry_nth(const struct cfi_table *t, size_t i)
{
    return t->n_header ? header_entry(t, i) : t->entries[i];
}

/* By a binary search: what it finds holds `pc`, or it is not found. */
static int find_row(const struct cfi_table *t, uint64_t pc, struct cfi_row *ret)
{
    size_t low = 0, high = t->n_header ? t->n_header : t->n_entries;
    struct cfi_fde f;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (entry_nth(t, mid).start <= pc)
            low = mid + 1;
        else
            high = mid;
    }
    if (!low || !cfi_fde_read(t, entry_nth(t, low - 1).offset, &f) || pc < f.start || pc - f.start >= f.size)
        return ERR_READ;
    return cfi_program_row(&t->frame, &f, pc, ret);
}

static bool header_sorted(const struct cfi_table *t)
{
    for (size_t i = 1; i < t->n_header; i++)
        if (header_entry(t, i - 1).start > header_entry(t, i).start)
            return false;
    return true;
}

static int compare_entries(const void *a, const void *b)
{
    const struct cfi_entry *x = a, *y = b;

    return x->start < y->start ? -1 : x->start > y->start;
}

/* All FDEs, one after the other. */
static int collect(struct cfi_table *t)
{
    size_t cap = 0;

    for (size_t pos = 0, next; t->n_entries < MAX_ENTRIES && cfi_fde_next(t, pos, &next); pos = next) {
        struct cfi_fde f;

        if (!cfi_fde_read(t, pos, &f) || !f.size)
            continue;
        if (grow_array((void **)&t->entries, &cap, t->n_entries + 1, sizeof(*t->entries)) < 0)
            return ERR_NOMEM;
        t->entries[t->n_entries++] = (struct cfi_entry){f.start, pos};
    }
    if (t->n_entries)
        qsort(t->entries, t->n_entries, sizeof(*t->entries), compare_entries);
    return 0;
}

int cfi_find(struct cfi_table *t, uint64_t pc, struct cfi_row *ret)
{
    int r = find_row(t, pc, ret);

    if (r == 0 || !t->n_header || t->checked)
        return r;
    /* A search in pairs that are in no order finds nothing wrong, but misses what is there. */
    t->checked = true;
    if (header_sorted(t))
        return r;
    t->n_header = 0;
    return collect(t) < 0 ? ERR_READ : find_row(t, pc, ret);
}

int cfi_table_make(struct cfi_table *ret, const struct cfi_section *frame, const struct cfi_section *header)
{
    int r = 0;

    *ret = (struct cfi_table){.frame = *frame};
    if (header)
        ret->header = *header;
    if (!header || !header_usable(ret))
        r = collect(ret);
    if (r < 0)
        cfi_table_free(ret);
    return r;
}

int cfi_table_make_debug(struct cfi_table *ret, const struct cfi_section *frame, uint64_t bias)
{
    int r;

    *ret = (struct cfi_table){.frame = *frame, .is_debug = true, .bias = bias};
    r = collect(ret);
    if (r < 0)
        cfi_table_free(ret);
    return r;
}

void cfi_table_free(struct cfi_table *t)
{
    free(t->entries);
    *t = (struct cfi_table){0};
}
