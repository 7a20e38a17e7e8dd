/*
 * An expression -> a number. Called by unwind.c where a row has one: procedure linkage tables, realigned stacks.
 */
#include "unwind/cfi_expr.h"

#include "base/err.h"
#include "unwind/cfi_bytes.h"

#define DEPTH 16
#define STEPS 256

struct expr {
    uint64_t stack[DEPTH];
    size_t n;
    size_t first; /* where the expression begins */
    struct cfi_bytes b;
    const struct cfi_expr_env *env;
    bool bad;
};

static void push(struct expr *e, uint64_t value)
{
    if (e->n == DEPTH)
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

/* The entry `n` below the top. */
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

    if (size == 0 || size > 8 || e->env->read(e->env->arg, pop(e), &value) < 0)
        e->bad = true;
    else
        push(e, size < 8 ? value & ((1ull << 8 * size) - 1) : value);
}

/* Goes on elsewhere in the expression; how often is bounded by STEPS. */
static void jump(struct expr *e, bool taken)
{
    int64_t by = (int16_t)cfi_bytes_fixed(&e->b, 2), to = (int64_t)e->b.pos + by;

    if (!taken || e->b.bad)
        return;
    if (to < (int64_t)e->first || to > (int64_t)e->b.end)
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
    return op == 0x1b ? (uint64_t)(x / y) : (uint64_t)x % (uint64_t)y;
}

static uint64_t compute(struct expr *e, uint64_t op, uint64_t a, uint64_t b)
{
    int64_t x = (int64_t)a, y = (int64_t)b;

    switch (op) {
    case 0x1a:
        return a & b;
    case 0x1b:
    case 0x1d: /* div, with a sign; mod, without */
        return divide(e, op, x, y);
    case 0x1c:
        return a - b;
    case 0x1e:
        return a * b;
    case 0x21:
        return a | b;
    case 0x22:
        return a + b;
    case 0x24:
        return b < 64 ? a << b : 0;
    case 0x25:
        return b < 64 ? a >> b : 0;
    case 0x26: /* shra */
        return (uint64_t)(x >> (b < 63 ? b : 63));
    case 0x27:
        return a ^ b;
    case 0x29:
        return x == y;
    case 0x2a:
        return x >= y;
    case 0x2b:
        return x > y;
    case 0x2c:
        return x <= y;
    case 0x2d:
        return x < y;
    case 0x2e:
        return x != y;
    default:
        e->bad = true;
        return 0;
    }
}

static void step_constant(struct expr *e, uint64_t op)
{
    static const uint8_t size[] = {8, 1, 1, 2, 2, 4, 4, 8, 8}; /* addr 0x03, const1u 0x08 … const8s 0x0f */
    uint64_t value;
    size_t bytes = op == 0x03 ? 8 : size[op - 0x07];

    value = cfi_bytes_fixed(&e->b, bytes);
    if (op == 0x09)
        value = (uint64_t)(int64_t)(int8_t)value;
    else if (op == 0x0b)
        value = (uint64_t)(int64_t)(int16_t)value;
    else if (op == 0x0d)
        value = (uint64_t)(int64_t)(int32_t)value;
    push(e, value);
}

static void step_stack(struct expr *e, uint64_t op)
{
    uint64_t a, b, c;

    switch (op) {
    case 0x12: /* dup */
        push_nth(e, 0);
        break;
    case 0x13: /* drop */
        pop(e);
        break;
    case 0x14: /* over */
        push_nth(e, 1);
        break;
    case 0x15: /* pick */
        push_nth(e, cfi_bytes_fixed(&e->b, 1));
        break;
    case 0x16: /* swap */
        a = pop(e);
        b = pop(e);
        push(e, a);
        push(e, b);
        break;
    default: /* rot: the top becomes the third */
        a = pop(e);
        b = pop(e);
        c = pop(e);
        push(e, a);
        push(e, c);
        push(e, b);
    }
}

/* What takes one number from the stack, or two. */
static void step_compute(struct expr *e, uint64_t op)
{
    uint64_t a = pop(e);

    switch (op) {
    case 0x19: /* abs */
        push(e, a >> 63 ? 0 - a : a);
        break;
    case 0x1f: /* neg */
        push(e, 0 - a);
        break;
    case 0x20: /* not */
        push(e, ~a);
        break;
    case 0x23: /* plus_uconst */
        push(e, a + cfi_bytes_uleb(&e->b));
        break;
    case 0x28: /* bra */
        jump(e, a != 0);
        break;
    default:
        push(e, compute(e, op, pop(e), a));
    }
}

static void step(struct expr *e)
{
    uint64_t op = cfi_bytes_fixed(&e->b, 1), reg;

    if (op >= 0x30 && op <= 0x4f) { /* lit0 … lit31 */
        push(e, op - 0x30);
    } else if (op >= 0x70 && op <= 0x8f) { /* breg0 … breg31 */
        push_reg(e, op - 0x70, cfi_bytes_sleb(&e->b));
    } else if (op == 0x92) { /* bregx */
        reg = cfi_bytes_uleb(&e->b);
        push_reg(e, reg, cfi_bytes_sleb(&e->b));
    } else if (op == 0x06) {
        push_deref(e, 8);
    } else if (op == 0x94) { /* deref_size */
        push_deref(e, cfi_bytes_fixed(&e->b, 1));
    } else if (op == 0x03 || (op >= 0x08 && op <= 0x0f)) {
        step_constant(e, op);
    } else if (op == 0x10) { /* constu */
        push(e, cfi_bytes_uleb(&e->b));
    } else if (op == 0x11) { /* consts */
        push(e, (uint64_t)cfi_bytes_sleb(&e->b));
    } else if (op >= 0x12 && op <= 0x17) {
        step_stack(e, op);
    } else if (op == 0x2f) { /* skip */
        jump(e, true);
    } else if (op != 0x96) { /* nop */
        step_compute(e, op);
    }
}

int cfi_expr_eval(const struct cfi_section *s, const struct cfi_rule *rule, const struct cfi_expr_env *env,
                  const uint64_t *first, uint64_t *ret)
{
    struct expr e = {.env = env};

    if (rule->value < 0 || (size_t)rule->value > s->len || rule->expr_len > s->len - (size_t)rule->value)
        return ERR_READ;
    e.b = (struct cfi_bytes){
        .start = s->bytes, .pos = (size_t)rule->value, .end = (size_t)rule->value + rule->expr_len, .at = s->at};
    e.first = e.b.pos;
    if (first)
        push(&e, *first);
    for (int i = 0; i < STEPS && e.b.pos < e.b.end && !e.bad && !e.b.bad; i++)
        step(&e);
    if (e.bad || e.b.bad || e.b.pos < e.b.end || !e.n)
        return ERR_READ;
    *ret = e.stack[e.n - 1];
    return 0;
}
