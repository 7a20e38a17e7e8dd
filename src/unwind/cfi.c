/*
 * .eh_frame or .debug_frame -> the row of one instruction. Called by unwind.c for each address that it meets for the
 * first time. Nothing that the section says can make it read outside of it or run for long.
 */
#include "unwind/cfi.h"

#include "base/err.h"
#include "base/grow.h"
#include "unwind/cfi_bytes.h"

#include <stdlib.h>
#include <string.h>

#define REMEMBER_MAX 16
#define STEPS_MAX    65536 /* instructions of one FDE */

struct cie {
    uint64_t code_align;
    int64_t data_align;
    uint64_t ra;
    unsigned pointer_encoding;
    bool has_augmentation_data, is_signal;
    size_t program, end;
};

struct fde {
    struct cie cie;
    uint64_t start, size;
    size_t program, end;
};

struct state {
    struct cfi_rule cfa;
    struct cfi_rule regs[CFI_REGS];
};

struct machine {
    const struct cie *cie;
    struct cfi_bytes *b;
    struct state now, initial, kept[REMEMBER_MAX];
    size_t n_kept;
    uint64_t loc, pc, next; /* `next`: where the row ends */
    bool done;
};

static struct cfi_bytes bytes_at(const struct cfi_section *s, uint64_t pos)
{
    return (struct cfi_bytes){.start = s->bytes, .pos = pos > s->len ? s->len : pos, .end = s->len, .at = s->at};
}

/* The head of a CIE or FDE: sets the end of its bytes, gives the id and where that lies. */
static bool entry_open(struct cfi_bytes *b, uint64_t *ret_id, size_t *ret_id_pos)
{
    uint64_t len = cfi_bytes_fixed(b, 4);
    size_t wide = 4;

    if (len == 0xffffffff) {
        len = cfi_bytes_fixed(b, 8);
        wide = 8;
    }
    if (b->bad || len < wide || len > b->end - b->pos)
        return false;
    b->end = b->pos + len;
    *ret_id_pos = b->pos;
    /* In .eh_frame the id has four bytes in either form (Linux Standard Base); nobody writes the long one. */
    *ret_id = cfi_bytes_fixed(b, wide);
    return !b->bad;
}

static void cie_augmentation(struct cie *c, struct cfi_bytes *b, const char *text)
{
    uint64_t len;
    size_t end;

    c->has_augmentation_data = *text == 'z';
    if (!c->has_augmentation_data)
        return;
    len = cfi_bytes_uleb(b);
    if (b->bad || len > b->end - b->pos) {
        b->bad = true;
        return;
    }
    end = b->pos + len;
    for (text++; *text && !b->bad; text++) {
        if (*text == 'R')
            c->pointer_encoding = (unsigned)cfi_bytes_fixed(b, 1);
        else if (*text == 'P')
            cfi_bytes_pointer(b, (unsigned)cfi_bytes_fixed(b, 1), 0);
        else if (*text == 'L')
            cfi_bytes_fixed(b, 1);
        else if (*text == 'S')
            c->is_signal = true;
        else if (*text != 'B')
            break;
    }
    b->pos = end;
}

static bool cie_read(const struct cfi_table *t, uint64_t offset, struct cie *ret)
{
    struct cfi_bytes b = bytes_at(&t->frame, offset);
    const char *text;
    uint64_t id, version;
    size_t id_pos;

    if (!entry_open(&b, &id, &id_pos) || (t->is_debug ? id != 0xffffffff && id != ~0ull : id != 0))
        return false;
    *ret = (struct cie){.ra = CFI_RA};
    version = cfi_bytes_fixed(&b, 1);
    text = (const char *)b.start + b.pos;
    if (b.bad || !memchr(text, 0, b.end - b.pos))
        return false;
    cfi_bytes_skip(&b, strlen(text) + 1);
    if (version >= 4)
        cfi_bytes_skip(&b, 2); /* sizes of an address and of a segment */
    ret->code_align = cfi_bytes_uleb(&b);
    ret->data_align = cfi_bytes_sleb(&b);
    ret->ra = version == 1 ? cfi_bytes_fixed(&b, 1) : cfi_bytes_uleb(&b);
    cie_augmentation(ret, &b, text);
    ret->program = b.pos;
    ret->end = b.end;
    return !b.bad && version && version <= 5 && ret->ra == CFI_RA;
}

/* An FDE; false for a CIE, for the end, and for what is broken. */
static bool fde_read(const struct cfi_table *t, uint64_t offset, struct fde *ret)
{
    struct cfi_bytes b = bytes_at(&t->frame, offset);
    uint64_t id;
    size_t id_pos;

    if (!entry_open(&b, &id, &id_pos) || (t->is_debug ? id == 0xffffffff : id == 0 || id > id_pos))
        return false;
    if (!cie_read(t, t->is_debug ? id : id_pos - id, &ret->cie))
        return false;
    if (t->is_debug) {
        ret->start = cfi_bytes_fixed(&b, 8) + t->bias;
        ret->size = cfi_bytes_fixed(&b, 8);
    } else {
        ret->start = cfi_bytes_pointer(&b, ret->cie.pointer_encoding, 0);
        ret->size = cfi_bytes_pointer(&b, ret->cie.pointer_encoding & 0x0f, 0);
    }
    if (ret->cie.has_augmentation_data)
        cfi_bytes_skip(&b, cfi_bytes_uleb(&b));
    ret->program = b.pos;
    ret->end = b.end;
    return !b.bad;
}

static void set_rule(struct machine *m, uint64_t reg, enum cfi_kind kind, int64_t value)
{
    if (reg < CFI_REGS)
        m->now.regs[reg] = (struct cfi_rule){.kind = (uint8_t)kind, .value = (int32_t)value};
}

static struct cfi_rule expr_rule(struct machine *m, enum cfi_kind kind)
{
    uint64_t len = cfi_bytes_uleb(m->b);
    struct cfi_rule rule = {.kind = (uint8_t)kind, .expr_len = (uint16_t)len, .value = (int32_t)m->b->pos};

    if (len > UINT16_MAX || m->b->pos > INT32_MAX)
        m->b->bad = true;
    cfi_bytes_skip(m->b, len);
    return rule;
}

static void set_expr(struct machine *m, enum cfi_kind kind)
{
    uint64_t reg = cfi_bytes_uleb(m->b);
    struct cfi_rule rule = expr_rule(m, kind);

    if (reg < CFI_REGS)
        m->now.regs[reg] = rule;
}

static void set_cfa(struct machine *m, uint64_t reg, int64_t offset)
{
    m->now.cfa = (struct cfi_rule){.kind = CFI_REG_OFFSET, .reg = (uint8_t)reg, .value = (int32_t)offset};
    if (reg >= CFI_RA)
        m->b->bad = true;
}

static void advance(struct machine *m, uint64_t by)
{
    uint64_t to = m->loc + by * m->cie->code_align;

    if (to > m->pc || to < m->loc) {
        m->next = to;
        m->done = true;
    } else {
        m->loc = to;
    }
}

static void keep_state(struct machine *m, bool restore)
{
    if (restore && m->n_kept)
        m->now = m->kept[--m->n_kept];
    else if (!restore && m->n_kept < REMEMBER_MAX)
        m->kept[m->n_kept++] = m->now;
    else
        m->b->bad = true;
}

static void step_cfa(struct machine *m, uint64_t op)
{
    uint64_t reg;

    switch (op) {
    case 0x0c: /* def_cfa */
        reg = cfi_bytes_uleb(m->b);
        set_cfa(m, reg, (int64_t)cfi_bytes_uleb(m->b));
        break;
    case 0x12: /* def_cfa_sf */
        reg = cfi_bytes_uleb(m->b);
        set_cfa(m, reg, cfi_bytes_sleb(m->b) * m->cie->data_align);
        break;
    case 0x0d: /* def_cfa_register */
        set_cfa(m, cfi_bytes_uleb(m->b), m->now.cfa.value);
        break;
    case 0x0e: /* def_cfa_offset */
        set_cfa(m, m->now.cfa.reg, (int64_t)cfi_bytes_uleb(m->b));
        break;
    case 0x13: /* def_cfa_offset_sf */
        set_cfa(m, m->now.cfa.reg, cfi_bytes_sleb(m->b) * m->cie->data_align);
        break;
    default: /* def_cfa_expression */
        m->now.cfa = expr_rule(m, CFI_IS_EXPR);
    }
}

static void step_reg(struct machine *m, uint64_t op)
{
    uint64_t reg = cfi_bytes_uleb(m->b);

    switch (op) {
    case 0x05: /* offset_extended */
        set_rule(m, reg, CFI_AT_CFA, (int64_t)cfi_bytes_uleb(m->b) * m->cie->data_align);
        break;
    case 0x06: /* restore_extended */
        if (reg < CFI_REGS)
            m->now.regs[reg] = m->initial.regs[reg];
        break;
    case 0x07:
        set_rule(m, reg, CFI_UNDEFINED, 0);
        break;
    case 0x08:
        set_rule(m, reg, CFI_SAME, 0);
        break;
    case 0x09: /* register */
        set_rule(m, reg, CFI_REG, (int64_t)cfi_bytes_uleb(m->b));
        break;
    case 0x11: /* offset_extended_sf */
        set_rule(m, reg, CFI_AT_CFA, cfi_bytes_sleb(m->b) * m->cie->data_align);
        break;
    case 0x14: /* val_offset */
        set_rule(m, reg, CFI_IS_CFA, (int64_t)cfi_bytes_uleb(m->b) * m->cie->data_align);
        break;
    case 0x15: /* val_offset_sf */
        set_rule(m, reg, CFI_IS_CFA, cfi_bytes_sleb(m->b) * m->cie->data_align);
        break;
    default: /* GNU_negative_offset_extended */
        set_rule(m, reg, CFI_AT_CFA, -(int64_t)cfi_bytes_uleb(m->b) * m->cie->data_align);
    }
}

static void step_low(struct machine *m, uint64_t op)
{
    switch (op) {
    case 0x00: /* nop */
        break;
    case 0x01: /* set_loc */
        advance(m, m->cie->code_align
                       ? (cfi_bytes_pointer(m->b, m->cie->pointer_encoding, 0) - m->loc) / m->cie->code_align
                       : 0);
        break;
    case 0x02:
    case 0x03:
    case 0x04: /* advance_loc1, 2, 4 */
        advance(m, cfi_bytes_fixed(m->b, 1u << (op - 2)));
        break;
    case 0x0a:
    case 0x0b: /* remember_state, restore_state */
        keep_state(m, op == 0x0b);
        break;
    case 0x10:
        set_expr(m, CFI_AT_EXPR);
        break;
    case 0x16:
        set_expr(m, CFI_IS_EXPR);
        break;
    case 0x2e: /* GNU_args_size */
        cfi_bytes_uleb(m->b);
        break;
    case 0x0c:
    case 0x0d:
    case 0x0e:
    case 0x0f:
    case 0x12:
    case 0x13:
        step_cfa(m, op);
        break;
    case 0x05:
    case 0x06:
    case 0x07:
    case 0x08:
    case 0x09:
    case 0x11:
    case 0x14:
    case 0x15:
    case 0x2f:
        step_reg(m, op);
        break;
    default:
        m->b->bad = true;
    }
}

static void step(struct machine *m)
{
    uint64_t op = cfi_bytes_fixed(m->b, 1), low = op & 0x3f;

    switch (op >> 6) {
    case 1: /* advance_loc */
        advance(m, low);
        break;
    case 2: /* offset */
        set_rule(m, low, CFI_AT_CFA, (int64_t)cfi_bytes_uleb(m->b) * m->cie->data_align);
        break;
    case 3: /* restore */
        if (low < CFI_REGS)
            m->now.regs[low] = m->initial.regs[low];
        break;
    default:
        step_low(m, op);
    }
}

static bool run(struct machine *m, const struct cfi_section *s, size_t from, size_t to)
{
    struct cfi_bytes b = {.start = s->bytes, .pos = from, .end = to, .at = s->at};

    m->b = &b;
    for (int i = 0; i < STEPS_MAX && !m->done && !b.bad && b.pos < b.end; i++)
        step(m);
    return !b.bad;
}

static int fde_row(const struct cfi_table *t, const struct fde *f, uint64_t pc, struct cfi_row *ret)
{
    struct machine m = {.cie = &f->cie, .loc = f->start, .pc = pc, .next = f->start + f->size};

    /* What a caller may rely on is there after the call, whatever the rules (System V ABI, 3.2.1); others are not. */
    if (!run(&m, &t->frame, f->cie.program, f->cie.end))
        return ERR_READ;
    m.initial = m.now;
    if (!run(&m, &t->frame, f->program, f->end) || !m.now.cfa.kind)
        return ERR_READ;
    *ret = (struct cfi_row){
        .start = m.loc, .end = m.next, .function = f->start, .cfa = m.now.cfa, .is_signal = f->cie.is_signal};
    memcpy(ret->regs, m.now.regs, sizeof(ret->regs));
    return 0;
}

static bool header_usable(struct cfi_table *t)
{
    struct cfi_bytes b = bytes_at(&t->header, 0);
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

int cfi_find(const struct cfi_table *t, uint64_t pc, struct cfi_row *ret)
{
    size_t low = 0, high = t->n_header ? t->n_header : t->n_entries;
    struct fde f;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (entry_nth(t, mid).start <= pc)
            low = mid + 1;
        else
            high = mid;
    }
    if (!low || !fde_read(t, entry_nth(t, low - 1).offset, &f) || pc < f.start || pc - f.start >= f.size)
        return ERR_READ;
    return fde_row(t, &f, pc, ret);
}

static int compare_entries(const void *a, const void *b)
{
    const struct cfi_entry *x = a, *y = b;

    return x->start < y->start ? -1 : x->start > y->start;
}

static int collect(struct cfi_table *t)
{
    size_t cap = 0, pos = 0;

    while (pos + 4 <= t->frame.len) {
        struct cfi_bytes b = bytes_at(&t->frame, pos);
        struct fde f;
        uint64_t id;
        size_t id_pos;

        if (!entry_open(&b, &id, &id_pos))
            break;
        if (fde_read(t, pos, &f) && f.size) {
            if (grow_array((void **)&t->entries, &cap, t->n_entries + 1, sizeof(*t->entries)) < 0)
                return ERR_NOMEM;
            t->entries[t->n_entries++] = (struct cfi_entry){f.start, pos};
        }
        pos = b.end;
    }
    if (t->n_entries)
        qsort(t->entries, t->n_entries, sizeof(*t->entries), compare_entries);
    return 0;
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
