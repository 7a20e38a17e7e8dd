/*
 * The programs of an FDE and its CIE -> the row of one instruction (DWARF 5, 6.4.2). Called by cfi.c. Numbers that are
 * multiplied may be any: they wrap, and what does not fit a rule makes the row unusable.
 */
#include "base/err.h"
#include "unwind/cfi_bytes.h"
#include "unwind/cfi_fde.h"

#include <string.h>

#define REMEMBER_MAX 16
#define STEPS_MAX    65536 /* instructions of one FDE */

struct state {
    struct cfi_rule cfa;
    struct cfi_rule regs[CFI_REGS];
};

struct machine {
    const struct cfi_cie *cie;
    struct cfi_bytes *b;
    struct state now, initial, kept[REMEMBER_MAX];
    size_t n_kept;
    uint64_t bias;
    uint64_t loc, pc, next; /* `next`: where the row ends */
    bool done;
};

static int32_t narrow(struct machine *m, uint64_t value)
{
    if ((uint64_t)(int64_t)(int32_t)value != value)
        m->b->bad = true;
    return (int32_t)value;
}

/* A number of the program, in units of the CIE. */
static uint64_t scaled(const struct machine *m, uint64_t value)
{
    return value * (uint64_t)m->cie->data_align;
}

static void set_rule(struct machine *m, uint64_t reg, enum cfi_kind kind, uint64_t value)
{
    if (reg < CFI_REGS)
        m->now.regs[reg] = (struct cfi_rule){.kind = (uint8_t)kind, .value = narrow(m, value)};
}

/* In another register, or in one that nobody follows: a vector's. */
static void set_in_reg(struct machine *m, uint64_t reg, uint64_t other)
{
    set_rule(m, reg, other < CFI_REGS ? CFI_REG : CFI_UNDEFINED, other < CFI_REGS ? other : 0);
}

static void restore_rule(struct machine *m, uint64_t reg)
{
    if (reg < CFI_REGS)
        m->now.regs[reg] = m->initial.regs[reg];
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

static void set_cfa(struct machine *m, uint64_t reg, uint64_t offset)
{
    m->now.cfa = (struct cfi_rule){.kind = CFI_REG_OFFSET, .reg = (uint8_t)reg, .value = narrow(m, offset)};
    if (reg >= CFI_RA)
        m->b->bad = true;
}

/* One half of the rule is new; the other one must be there. */
static void change_cfa(struct machine *m, uint64_t reg, uint64_t offset)
{
    if (m->now.cfa.kind != CFI_REG_OFFSET)
        m->b->bad = true;
    set_cfa(m, reg, offset);
}

static void advance_to(struct machine *m, uint64_t to)
{
    if (to < m->loc) {
        m->b->bad = true;
    } else if (to > m->pc) {
        m->next = to < m->next ? to : m->next;
        m->done = true;
    } else {
        m->loc = to;
    }
}

static void advance(struct machine *m, uint64_t by)
{
    uint64_t step;

    if (__builtin_mul_overflow(by, m->cie->code_align, &step) || step > UINT64_MAX - m->loc)
        m->b->bad = true;
    else
        advance_to(m, m->loc + step);
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
        set_cfa(m, reg, cfi_bytes_uleb(m->b));
        break;
    case 0x12: /* def_cfa_sf */
        reg = cfi_bytes_uleb(m->b);
        set_cfa(m, reg, scaled(m, (uint64_t)cfi_bytes_sleb(m->b)));
        break;
    case 0x0d: /* def_cfa_register */
        change_cfa(m, cfi_bytes_uleb(m->b), (uint64_t)(int64_t)m->now.cfa.value);
        break;
    case 0x0e: /* def_cfa_offset */
        change_cfa(m, m->now.cfa.reg, cfi_bytes_uleb(m->b));
        break;
    case 0x13: /* def_cfa_offset_sf */
        change_cfa(m, m->now.cfa.reg, scaled(m, (uint64_t)cfi_bytes_sleb(m->b)));
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
        set_rule(m, reg, CFI_AT_CFA, scaled(m, cfi_bytes_uleb(m->b)));
        break;
    case 0x06: /* restore_extended */
        restore_rule(m, reg);
        break;
    case 0x07:
        set_rule(m, reg, CFI_UNDEFINED, 0);
        break;
    case 0x08:
        set_rule(m, reg, CFI_SAME, 0);
        break;
    case 0x09: /* register */
        set_in_reg(m, reg, cfi_bytes_uleb(m->b));
        break;
    case 0x11: /* offset_extended_sf */
        set_rule(m, reg, CFI_AT_CFA, scaled(m, (uint64_t)cfi_bytes_sleb(m->b)));
        break;
    case 0x14: /* val_offset */
        set_rule(m, reg, CFI_IS_CFA, scaled(m, cfi_bytes_uleb(m->b)));
        break;
    case 0x15: /* val_offset_sf */
        set_rule(m, reg, CFI_IS_CFA, scaled(m, (uint64_t)cfi_bytes_sleb(m->b)));
        break;
    default: /* GNU_negative_offset_extended */
        set_rule(m, reg, CFI_AT_CFA, 0 - scaled(m, cfi_bytes_uleb(m->b)));
    }
}

static void step_low(struct machine *m, uint64_t op)
{
    switch (op) {
    case 0x00: /* nop */
        break;
    case 0x01: /* set_loc */
        advance_to(m, cfi_bytes_pointer(m->b, m->cie->pointer_encoding, 0) + m->bias);
        break;
    case 0x02:
    case 0x03:
    case 0x04: /* advance_loc1, 2, 4 */
        advance(m, cfi_bytes_fixed(m->b, (size_t)1 << (op - 2)));
        break;
    case 0x1d: /* MIPS_advance_loc8; not of that CPU alone */
        advance(m, cfi_bytes_fixed(m->b, 8));
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
        set_rule(m, low, CFI_AT_CFA, scaled(m, cfi_bytes_uleb(m->b)));
        break;
    case 3: /* restore */
        restore_rule(m, low);
        break;
    default:
        step_low(m, op);
    }
}

/* False when it is broken, or too long to be true. */
static bool run(struct machine *m, const struct cfi_section *s, size_t from, size_t to)
{
    struct cfi_bytes b = {.start = s->bytes, .pos = from, .end = to, .at = s->at};

    m->b = &b;
    for (int i = 0; i < STEPS_MAX && !m->done && !b.bad && b.pos < b.end; i++)
        step(m);
    m->b = NULL;
    return !b.bad && (m->done || b.pos >= b.end);
}

int cfi_program_row(const struct cfi_section *s, const struct cfi_fde *f, uint64_t pc, struct cfi_row *ret)
{
    struct machine m = {.cie = &f->cie, .bias = f->bias, .loc = f->start, .pc = pc, .next = f->start + f->size};

    /* What a caller may rely on is there after the call, whatever the rules (System V ABI, 3.2.1); others are not. */
    if (!run(&m, s, f->cie.program, f->cie.end))
        return ERR_READ;
    m.initial = m.now;
    if (!run(&m, s, f->program, f->end) || m.now.cfa.kind == CFI_SAME)
        return ERR_READ;
    *ret = (struct cfi_row){
        .start = m.loc, .end = m.next, .function = f->start, .cfa = m.now.cfa, .is_signal = f->cie.is_signal};
    memcpy(ret->regs, m.now.regs, sizeof(ret->regs));
    return 0;
}
