/*
 * Finds the FDE of a pc in .eh_frame or .debug_frame, by binary search. The sections are untrusted: nothing in them can
 * cause a read outside the section or a long loop.
 */
#include "unwind/cfi.h"

#include "base/err.h"
#include "base/grow.h"
#include "unwind/cfi_bytes.h"
#include "unwind/cfi_fde.h"

#include <dwarf.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ENTRIES 4000000 /* FDEs of one module, when scanned */

static struct dwarf_bytes reader_for(const struct cfi_section *s)
{
    return (struct dwarf_bytes){.start = s->bytes, .end = s->len, .addr = s->addr};
}

uint64_t cfi_header_frame(const struct cfi_section *header)
{
    struct dwarf_bytes b = reader_for(header);
    uint64_t version = dwarf_bytes_fixed(&b, 1), encoding = dwarf_bytes_fixed(&b, 1), at;

    dwarf_bytes_skip(&b, 2);
    at = version == 1 ? cfi_bytes_pointer(&b, (unsigned)encoding, header->addr) : 0;
    return b.bad ? 0 : at;
}

/* Accepts only the encoding that linkers write: pairs of 4-byte values relative to the header. */
static bool parse_hdr(struct cfi_table *t)
{
    struct dwarf_bytes b = reader_for(&t->header);
    uint64_t version = dwarf_bytes_fixed(&b, 1), frame_enc = dwarf_bytes_fixed(&b, 1),
             count_enc = dwarf_bytes_fixed(&b, 1), table_enc = dwarf_bytes_fixed(&b, 1), n;

    cfi_bytes_pointer(&b, (unsigned)frame_enc, t->header.addr);
    n = cfi_bytes_pointer(&b, (unsigned)count_enc, t->header.addr);
    if (b.bad || version != 1 || table_enc != (DW_EH_PE_datarel | DW_EH_PE_sdata4) || n == 0 || n > (b.end - b.pos) / 8)
        return false;
    t->n_hdr_pairs = n;
    t->hdr_pairs_pos = b.pos;
    return true;
}

static struct cfi_entry hdr_entry(const struct cfi_table *t, size_t i)
{
    int32_t pair[2];

    memcpy(pair, t->header.bytes + t->hdr_pairs_pos + i * sizeof(pair), sizeof(pair));
    return (struct cfi_entry){t->header.addr + (uint64_t)(int64_t)pair[0],
                              t->header.addr + (uint64_t)(int64_t)pair[1] - t->frame.addr};
}

static struct cfi_entry entry_nth(const struct cfi_table *t, size_t i)
{
    return t->n_hdr_pairs ? hdr_entry(t, i) : t->entries[i];
}

/* Binary search. Checks that the FDE contains `pc`, so unsorted pairs cannot yield a wrong row. */
static int find_row(const struct cfi_table *t, uint64_t pc, struct cfi_row *ret)
{
    size_t low = 0, high = t->n_hdr_pairs ? t->n_hdr_pairs : t->n_entries;
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

static bool hdr_is_sorted(const struct cfi_table *t)
{
    for (size_t i = 1; i < t->n_hdr_pairs; i++)
        if (hdr_entry(t, i - 1).start > hdr_entry(t, i).start)
            return false;
    return true;
}

static int compare_entries(const void *a, const void *b)
{
    const struct cfi_entry *x = a, *y = b;

    return x->start < y->start ? -1 : x->start > y->start;
}

/* Fills `entries` with all FDEs of the section. */
static int scan_fdes(struct cfi_table *t)
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

    if (r == 0 || !t->n_hdr_pairs || t->order_checked)
        return r;
    /* A search in unsorted pairs may miss an FDE. Check the order once; if it is wrong, scan the section instead. */
    t->order_checked = true;
    if (hdr_is_sorted(t))
        return r;
    t->n_hdr_pairs = 0;
    return scan_fdes(t) < 0 ? ERR_READ : find_row(t, pc, ret);
}

int cfi_table_make(struct cfi_table *ret, const struct cfi_section *frame, const struct cfi_section *header)
{
    int r = 0;

    *ret = (struct cfi_table){.frame = *frame};
    if (header)
        ret->header = *header;
    if (!header || !parse_hdr(ret))
        r = scan_fdes(ret);
    if (r < 0)
        cfi_table_free(ret);
    return r;
}

int cfi_table_make_debug(struct cfi_table *ret, const struct cfi_section *frame, uint64_t bias)
{
    int r;

    *ret = (struct cfi_table){.frame = *frame, .is_debug_frame = true, .bias = bias};
    r = scan_fdes(ret);
    if (r < 0)
        cfi_table_free(ret);
    return r;
}

void cfi_table_free(struct cfi_table *t)
{
    free(t->entries);
    *t = (struct cfi_table){0};
}
