/*
 * The DWARF expression evaluator. Unwind tables use expressions for the PLT and for realigned stacks.
 */
#include "unwind/cfi_expr.h"

#include "base/err.h"
#include "unwind/cfi_bytes.h"

#include <dwarf.h>

#define MAX_DEPTH 16
#define MAX_STEPS 256

struct expr {
    uint64_t stack[MAX_DEPTH];
    size_t n;
    size_t start; /* position of the expression in the section */
    struct dwarf_bytes b;
    const struct cfi_expr_env *env;
    bool bad;
};

static void push(struct expr *e, uint64_t value)
{
    if (e->n == MAX_DEPTH)
        e->bad = true;
    else
        e->stack[e->n++] = value;
}

static uint64_t pop(struct expr *e)
{
    if (e->n)
        return e->stack[--e->n];
    e->bad = true;
    return 0;
}

static void push_reg(struct expr *e, uint64_t reg, int64_t offset)
{
    if (reg >= CFI_REGS || !(e->env->known >> reg & 1))
        e->bad = true;
    else
        push(e, e->env->regs[reg] + (uint64_t)offset);
}

/* Pushes a copy of the entry `n` below the top. */
static void push_nth(struct expr *e, uint64_t n)
{
    if (n >= e->n)
        e->bad = true;
    else
        push(e, e->stack[e->n - 1 - n]);
}

static void push_deref(struct expr *e, uint64_t size)
{
    uint64_t value = 0;

    if (size == 0 || size > 8 || e->env->read_word(e->env->arg, pop(e), &value) < 0)
        e->bad = true;
    else
        push(e, size < 8 ? value & ((1ull << 8 * size) - 1) : value);
}

/* DW_OP_skip and DW_OP_bra. MAX_STEPS ends a loop. */
static void jump(struct expr *e, bool taken)
{
    int64_t by = (int16_t)dwarf_bytes_fixed(&e->b, 2), to = (int64_t)e->b.pos + by;

    if (!taken || e->b.bad)
        return;
    if (to < (int64_t)e->start || to > (int64_t)e->b.end)
        e->bad = true;
    else
        e->b.pos = (size_t)to;
}

static uint64_t divide(struct expr *e, uint64_t op, int64_t x, int64_t y)
{
    if (y == 0 || (x == INT64_MIN && y == -1)) {
        e->bad = true;
        return 0;
    }
    return op == DW_OP_div ? (uint64_t)(x / y) : (uint64_t)x % (uint64_t)y;
}

static uint64_t compute(struct expr *e, uint64_t op, uint64_t a, uint64_t b)
{
    int64_t x = (int64_t)a, y = (int64_t)b;

    switch (op) {
    case DW_OP_and:
        return a & b;
    case DW_OP_div:
    case DW_OP_mod: /* div is signed, mod is not */
        return divide(e, op, x, y);
    case DW_OP_minus:
        return a - b;
    case DW_OP_mul:
        return a * b;
    case DW_OP_or:
        return a | b;
    case DW_OP_plus:
        return a + b;
    case DW_OP_shl:
        return b < 64 ? a << b : 0;
    case DW_OP_shr:
        return b < 64 ? a >> b : 0;
    case DW_OP_shra:
        return (uint64_t)(x >> (b < 63 ? b : 63));
    case DW_OP_xor:
        return a ^ b;
    case DW_OP_eq:
        return x == y;
    case DW_OP_ge:
        return x >= y;
    case DW_OP_gt:
        return x > y;
    case DW_OP_le:
        return x <= y;
    case DW_OP_lt:
        return x < y;
    case DW_OP_ne:
        return x != y;
    default:
        e->bad = true;
        return 0;
    }
}

static void step_constant(struct expr *e, uint64_t op)
{
    static const uint8_t size[] = {1, 1, 2, 2, 4, 4, 8, 8}; /* DW_OP_const1u to DW_OP_const8s */
    uint64_t value = dwarf_bytes_fixed(&e->b, op == DW_OP_addr ? 8 : size[op - DW_OP_const1u]);

    if (op == DW_OP_const1s)
        value = (uint64_t)(int64_t)(int8_t)value;
    else if (op == DW_OP_const2s)
        value = (uint64_t)(int64_t)(int16_t)value;
    else if (op == DW_OP_const4s)
        value = (uint64_t)(int64_t)(int32_t)value;
    push(e, value);
}

static void step_stack(struct expr *e, uint64_t op)
{
    uint64_t a, b, c;

    switch (op) {
    case DW_OP_dup:
        push_nth(e, 0);
        break;
    case DW_OP_drop:
        pop(e);
        break;
    case DW_OP_over:
        push_nth(e, 1);
        break;
    case DW_OP_pick:
        push_nth(e, dwarf_bytes_fixed(&e->b, 1));
        break;
    case DW_OP_swap:
        a = pop(e);
        b = pop(e);
        push(e, a);
        push(e, b);
        break;
    default: /* DW_OP_rot: the top entry becomes the third */
        a = pop(e);
        b = pop(e);
        c = pop(e);
        push(e, a);
        push(e, c);
        push(e, b);
    }
}

/* Operations that pop one or two operands. */
static void step_compute(struct expr *e, uint64_t op)
{
    uint64_t a = pop(e);

    switch (op) {
    case DW_OP_abs:
        push(e, a >> 63 ? 0 - a : a);
        break;
    case DW_OP_neg:
        push(e, 0 - a);
        break;
    case DW_OP_not:
        push(e, ~a);
        break;
    case DW_OP_plus_uconst:
        push(e, a + dwarf_bytes_uleb(&e->b));
        break;
    case DW_OP_bra:
        jump(e, a != 0);
        break;
    default:
        push(e, compute(e, op, pop(e), a));
    }
}

static void step(struct expr *e)
{
    uint64_t op = dwarf_bytes_fixed(&e->b, 1), reg;

    if (op >= DW_OP_lit0 && op <= DW_OP_lit31) {
        push(e, op - DW_OP_lit0);
    } else if (op >= DW_OP_breg0 && op <= DW_OP_breg31) {
        push_reg(e, op - DW_OP_breg0, dwarf_bytes_sleb(&e->b));
    } else if (op == DW_OP_bregx) {
        reg = dwarf_bytes_uleb(&e->b);
        push_reg(e, reg, dwarf_bytes_sleb(&e->b));
    } else if (op == DW_OP_deref) {
        push_deref(e, 8);
    } else if (op == DW_OP_deref_size) {
        push_deref(e, dwarf_bytes_fixed(&e->b, 1));
    } else if (op == DW_OP_addr || (op >= DW_OP_const1u && op <= DW_OP_const8s)) {
        step_constant(e, op);
    } else if (op == DW_OP_constu) {
        push(e, dwarf_bytes_uleb(&e->b));
    } else if (op == DW_OP_consts) {
        push(e, (uint64_t)dwarf_bytes_sleb(&e->b));
    } else if (op >= DW_OP_dup && op <= DW_OP_rot) {
        step_stack(e, op);
    } else if (op == DW_OP_skip) {
        jump(e, true);
    } else if (op != DW_OP_nop) {
        step_compute(e, op);
    }
}

int cfi_expr_eval(const struct cfi_section *s, const struct cfi_rule *rule, const struct cfi_expr_env *env,
                  const uint64_t *first, uint64_t *ret)
{
    struct expr e = {.env = env};

    if (rule->value < 0 || (size_t)rule->value > s->len || rule->expr_len > s->len - (size_t)rule->value)
        return ERR_READ;
    e.b = (struct dwarf_bytes){
        .start = s->bytes, .pos = (size_t)rule->value, .end = (size_t)rule->value + rule->expr_len, .addr = s->addr};
    e.start = e.b.pos;
    if (first)
        push(&e, *first);
    for (int i = 0; i < MAX_STEPS && e.b.pos < e.b.end && !e.bad && !e.b.bad; i++)
        step(&e);
    if (e.bad || e.b.bad || e.b.pos < e.b.end || !e.n)
        return ERR_READ;
    *ret = e.stack[e.n - 1];
    return 0;
}
