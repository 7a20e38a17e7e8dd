/*
 * Executes call frame instructions to compute the row of one pc (DWARF 5, section 6.4.2). Operands are untrusted:
 * multiplications may wrap, and a value that does not fit a rule makes the row invalid.
 */
#include "base/err.h"
#include "unwind/cfi_bytes.h"
#include "unwind/cfi_fde.h"

#include <dwarf.h>
#include <string.h>

#define MAX_SAVED 16
#define MAX_STEPS 65536 /* instructions of one FDE */

struct state {
    struct cfi_rule cfa;
    struct cfi_rule regs[CFI_REGS];
};

struct machine {
    const struct cfi_cie *cie;
    struct dwarf_bytes *b;
    struct state now, initial, saved[MAX_SAVED];
    size_t n_saved;
    uint64_t bias;
    uint64_t loc, pc, next; /* start of the row, the pc sought, end of the row */
    bool done;
};

static int32_t to_int32(struct machine *m, uint64_t value)
{
    if ((uint64_t)(int64_t)(int32_t)value != value)
        m->b->bad = true;
    return (int32_t)value;
}

/* Multiplies a factored offset by the CIE's data alignment factor. */
static uint64_t scaled(const struct machine *m, uint64_t value)
{
    return value * (uint64_t)m->cie->data_align;
}

static void set_rule(struct machine *m, uint64_t reg, enum cfi_rule_kind kind, uint64_t value)
{
    if (reg < CFI_REGS)
        m->now.regs[reg] = (struct cfi_rule){.kind = (uint8_t)kind, .value = to_int32(m, value)};
}

/* DW_CFA_register. A value in a register that we do not track, such as a vector register, is lost. */
static void set_in_reg(struct machine *m, uint64_t reg, uint64_t other)
{
    set_rule(m, reg, other < CFI_REGS ? CFI_REGISTER : CFI_UNDEFINED, other < CFI_REGS ? other : 0);
}

static void restore_rule(struct machine *m, uint64_t reg)
{
    if (reg < CFI_REGS)
        m->now.regs[reg] = m->initial.regs[reg];
}

static struct cfi_rule read_expr_rule(struct machine *m, enum cfi_rule_kind kind)
{
    uint64_t len = dwarf_bytes_uleb(m->b);
    struct cfi_rule rule = {.kind = (uint8_t)kind, .expr_len = (uint16_t)len, .value = (int32_t)m->b->pos};

    if (len > UINT16_MAX || m->b->pos > INT32_MAX)
        m->b->bad = true;
    dwarf_bytes_skip(m->b, len);
    return rule;
}

static void set_expr(struct machine *m, enum cfi_rule_kind kind)
{
    uint64_t reg = dwarf_bytes_uleb(m->b);
    struct cfi_rule rule = read_expr_rule(m, kind);

    if (reg < CFI_REGS)
        m->now.regs[reg] = rule;
}

static void set_cfa(struct machine *m, uint64_t reg, uint64_t offset)
{
    m->now.cfa = (struct cfi_rule){.kind = CFI_CFA_REG_OFFSET, .reg = (uint8_t)reg, .value = to_int32(m, offset)};
    if (reg >= CFI_RA)
        m->b->bad = true;
}

/* Changes the register or the offset of an existing register + offset rule. */
static void change_cfa(struct machine *m, uint64_t reg, uint64_t offset)
{
    if (m->now.cfa.kind != CFI_CFA_REG_OFFSET)
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

static void step_cfa(struct machine *m, uint64_t op)
{
    uint64_t reg;

    switch (op) {
    case DW_CFA_def_cfa:
        reg = dwarf_bytes_uleb(m->b);
        set_cfa(m, reg, dwarf_bytes_uleb(m->b));
        break;
    case DW_CFA_def_cfa_sf:
        reg = dwarf_bytes_uleb(m->b);
        set_cfa(m, reg, scaled(m, (uint64_t)dwarf_bytes_sleb(m->b)));
        break;
    case DW_CFA_def_cfa_register:
        change_cfa(m, dwarf_bytes_uleb(m->b), (uint64_t)(int64_t)m->now.cfa.value);
        break;
    case DW_CFA_def_cfa_offset:
        change_cfa(m, m->now.cfa.reg, dwarf_bytes_uleb(m->b));
        break;
    case DW_CFA_def_cfa_offset_sf:
        change_cfa(m, m->now.cfa.reg, scaled(m, (uint64_t)dwarf_bytes_sleb(m->b)));
        break;
    default: /* DW_CFA_def_cfa_expression */
        m->now.cfa = read_expr_rule(m, CFI_VAL_EXPRESSION);
    }
}

static void step_reg(struct machine *m, uint64_t op)
{
    uint64_t reg = dwarf_bytes_uleb(m->b);

    switch (op) {
    case DW_CFA_offset_extended:
        set_rule(m, reg, CFI_OFFSET, scaled(m, dwarf_bytes_uleb(m->b)));
        break;
    case DW_CFA_restore_extended:
        restore_rule(m, reg);
        break;
    case DW_CFA_undefined:
        set_rule(m, reg, CFI_UNDEFINED, 0);
        break;
    case DW_CFA_same_value:
        set_rule(m, reg, CFI_SAME_VALUE, 0);
        break;
    case DW_CFA_register:
        set_in_reg(m, reg, dwarf_bytes_uleb(m->b));
        break;
    case DW_CFA_offset_extended_sf:
        set_rule(m, reg, CFI_OFFSET, scaled(m, (uint64_t)dwarf_bytes_sleb(m->b)));
        break;
    case DW_CFA_val_offset:
        set_rule(m, reg, CFI_VAL_OFFSET, scaled(m, dwarf_bytes_uleb(m->b)));
        break;
    case DW_CFA_val_offset_sf:
        set_rule(m, reg, CFI_VAL_OFFSET, scaled(m, (uint64_t)dwarf_bytes_sleb(m->b)));
        break;
    default: /* DW_CFA_GNU_negative_offset_extended */
        set_rule(m, reg, CFI_OFFSET, 0 - scaled(m, dwarf_bytes_uleb(m->b)));
    }
}

static void step_low(struct machine *m, uint64_t op)
{
    switch (op) {
    case DW_CFA_nop:
        break;
    case DW_CFA_set_loc:
        advance_to(m, cfi_bytes_pointer(m->b, m->cie->pointer_encoding, 0) + m->bias);
        break;
    case DW_CFA_advance_loc1:
    case DW_CFA_advance_loc2:
    case DW_CFA_advance_loc4:
        advance(m, dwarf_bytes_fixed(m->b, (size_t)1 << (op - DW_CFA_advance_loc1)));
        break;
    case DW_CFA_MIPS_advance_loc8: /* not specific to MIPS */
        advance(m, dwarf_bytes_fixed(m->b, 8));
        break;
    case DW_CFA_remember_state:
        if (m->n_saved == MAX_SAVED)
            m->b->bad = true;
        else
            m->saved[m->n_saved++] = m->now;
        break;
    case DW_CFA_restore_state:
        if (!m->n_saved)
            m->b->bad = true;
        else
            m->now = m->saved[--m->n_saved];
        break;
    case DW_CFA_expression:
        set_expr(m, CFI_EXPRESSION);
        break;
    case DW_CFA_val_expression:
        set_expr(m, CFI_VAL_EXPRESSION);
        break;
    case DW_CFA_GNU_args_size:
        dwarf_bytes_uleb(m->b);
        break;
    case DW_CFA_def_cfa:
    case DW_CFA_def_cfa_register:
    case DW_CFA_def_cfa_offset:
    case DW_CFA_def_cfa_expression:
    case DW_CFA_def_cfa_sf:
    case DW_CFA_def_cfa_offset_sf:
        step_cfa(m, op);
        break;
    case DW_CFA_offset_extended:
    case DW_CFA_restore_extended:
    case DW_CFA_undefined:
    case DW_CFA_same_value:
    case DW_CFA_register:
    case DW_CFA_offset_extended_sf:
    case DW_CFA_val_offset:
    case DW_CFA_val_offset_sf:
    case DW_CFA_GNU_negative_offset_extended:
        step_reg(m, op);
        break;
    default:
        m->b->bad = true;
    }
}

static void step(struct machine *m)
{
    uint64_t op = dwarf_bytes_fixed(m->b, 1), low = op & 0x3f;

    switch (op >> 6) {
    case DW_CFA_advance_loc >> 6:
        advance(m, low);
        break;
    case DW_CFA_offset >> 6:
        set_rule(m, low, CFI_OFFSET, scaled(m, dwarf_bytes_uleb(m->b)));
        break;
    case DW_CFA_restore >> 6:
        restore_rule(m, low);
        break;
    default:
        step_low(m, op);
    }
}

/* Executes the instructions in [from, to). Returns false if they are invalid or too many. */
static bool run(struct machine *m, const struct cfi_section *s, size_t from, size_t to)
{
    struct dwarf_bytes b = {.start = s->bytes, .pos = from, .end = to, .addr = s->addr};

    m->b = &b;
    for (int i = 0; i < MAX_STEPS && !m->done && !b.bad && b.pos < b.end; i++)
        step(m);
    m->b = NULL;
    return !b.bad && (m->done || b.pos >= b.end);
}

int cfi_program_row(const struct cfi_section *s, const struct cfi_fde *f, uint64_t pc, struct cfi_row *ret)
{
    struct machine m = {.cie = &f->cie, .bias = f->bias, .loc = f->start, .pc = pc, .next = f->start + f->size};

    /* Without a rule, a register is CFI_SAME_VALUE (zero). That is right for callee-saved registers (System V ABI,
     * 3.2.1); the unwinder ignores the others. */
    if (!run(&m, s, f->cie.program, f->cie.end))
        return ERR_READ;
    m.initial = m.now;
    if (!run(&m, s, f->program, f->end) || m.now.cfa.kind == CFI_SAME_VALUE)
        return ERR_READ;
    *ret = (struct cfi_row){
        .start = m.loc, .end = m.next, .function = f->start, .cfa = m.now.cfa, .is_signal = f->cie.is_signal};
    memcpy(ret->regs, m.now.regs, sizeof(ret->regs));
    return 0;
}
