/*
 * unwind/cfi_expr.c: each operation, the expressions that linkers write, and invalid ones.
 */
#include "unwind/cfi_expr.h"

#include "base/err.h"
#include "test.h"

#define BYTES(text) text, sizeof(text) - 1

static int word_of(void *arg, uint64_t addr, uint64_t *ret)
{
    (void)arg;
    if (addr % 8 || addr < 0x9000 || addr >= 0xa000)
        return ERR_READ;
    *ret = addr * 3 + 0x0102030400000000;
    return 0;
}

static int eval(const char *text, size_t len, const uint64_t *first, uint64_t *ret)
{
    struct cfi_section s = {.bytes = (const unsigned char *)text, .len = len};
    struct cfi_rule rule = {.expr_len = (uint16_t)len};
    struct cfi_expr_env env = {.known = 0x1ffff & ~(1u << 3), .read_word = word_of};

    for (unsigned i = 0; i < CFI_REGS; i++)
        env.regs[i] = 0x9000 + 8 * i;
    return cfi_expr_eval(&s, &rule, &env, first, ret);
}

struct expr_case {
    const char *text;
    size_t len;
    uint64_t want;
};

static const struct expr_case exprs[] = {
    {BYTES("\x30"), 0},
    {BYTES("\x4f"), 31},
    {BYTES("\x03\x08\x07\x06\x05\x04\x03\x02\x01"), 0x0102030405060708},
    {BYTES("\x08\xff"), 255},
    {BYTES("\x09\xff"), UINT64_MAX},
    {BYTES("\x0a\xfe\xff"), 0xfffe},
    {BYTES("\x0b\xfe\xff"), (uint64_t)-2},
    {BYTES("\x0c\xfe\xff\xff\xff"), 0xfffffffe},
    {BYTES("\x0d\xfe\xff\xff\xff"), (uint64_t)-2},
    {BYTES("\x0e\x01\x00\x00\x00\x00\x00\x00\x80"), 0x8000000000000001},
    {BYTES("\x0f\xff\xff\xff\xff\xff\xff\xff\xff"), UINT64_MAX},
    {BYTES("\x10\xe5\x8e\x26"), 624485},
    {BYTES("\x11\x80\x7f"), (uint64_t)-128},
    {BYTES("\x77\x08"), 0x9000 + 56 + 8},
    {BYTES("\x77\x78"), 0x9000 + 56 - 8},
    {BYTES("\x92\x10\x7f"), 0x9000 + 128 - 1},
    {BYTES("\x77\x00\x06"), (0x9000 + 56) * 3 + 0x0102030400000000},
    {BYTES("\x77\x00\x94\x02"), ((0x9000 + 56) * 3) & 0xffff},
    {BYTES("\x31\x12\x22"), 2},                /* dup, plus */
    {BYTES("\x31\x32\x13"), 1},                /* drop */
    {BYTES("\x35\x32\x14\x1c\x1c"), 8},        /* over: 5 - (2 - 5) */
    {BYTES("\x35\x32\x33\x15\x02"), 5},        /* pick */
    {BYTES("\x35\x32\x16\x1c"), (uint64_t)-3}, /* swap */
    {BYTES("\x31\x32\x33\x17"), 2},            /* rot: 3 1 2 */
    {BYTES("\x31\x32\x33\x17\x13"), 1},
    {BYTES("\x31\x32\x33\x17\x13\x13"), 3},
    {BYTES("\x09\xf9\x19"), 7},                /* abs */
    {BYTES("\x3c\x3a\x1a"), 8},                /* and */
    {BYTES("\x09\xf9\x32\x1b"), (uint64_t)-3}, /* div */
    {BYTES("\x37\x32\x1c"), 5},                /* minus */
    {BYTES("\x37\x34\x1d"), 3},                /* mod */
    {BYTES("\x37\x34\x1e"), 28},               /* mul */
    {BYTES("\x37\x1f"), (uint64_t)-7},         /* neg */
    {BYTES("\x37\x20"), ~7ull},                /* not */
    {BYTES("\x39\x36\x21"), 15},               /* or */
    {BYTES("\x39\x36\x22"), 15},               /* plus */
    {BYTES("\x39\x23\x80\x01"), 137},          /* plus_uconst */
    {BYTES("\x31\x34\x24"), 16},               /* shl */
    {BYTES("\x31\x08\x40\x24"), 0},
    {BYTES("\x09\xf0\x08\x3c\x25"), 15},     /* shr */
    {BYTES("\x09\xf0\x34\x26"), UINT64_MAX}, /* shra */
    {BYTES("\x09\xf0\x08\xff\x26"), UINT64_MAX},
    {BYTES("\x39\x36\x27"), 15}, /* xor */
    {BYTES("\x31\x31\x29"), 1},  /* eq */
    {BYTES("\x31\x32\x2a"), 0},  /* ge */
    {BYTES("\x32\x32\x2a"), 1},
    {BYTES("\x33\x32\x2b"), 1},                 /* gt */
    {BYTES("\x32\x32\x2c"), 1},                 /* le */
    {BYTES("\x09\xff\x30\x2d"), 1},             /* lt, with a sign */
    {BYTES("\x31\x32\x2e"), 1},                 /* ne */
    {BYTES("\x31\x2f\x01\x00\x32\x96"), 1},     /* skip, nop */
    {BYTES("\x35\x31\x28\x01\x00\x36"), 5},     /* bra, taken */
    {BYTES("\x35\x30\x28\x01\x00\x36"), 6},     /* bra, not taken */
    {BYTES("\x35\x31\x1c\x12\x28\xfa\xff"), 0}, /* a loop that counts down */
};

static void test_expressions(void)
{
    uint64_t got, first = 0x77;

    for (size_t i = 0; i < sizeof(exprs) / sizeof(exprs[0]); i++) {
        got = 0xdead;
        if (!CHECK(eval(exprs[i].text, exprs[i].len, NULL, &got) == 0 && got == exprs[i].want))
            fprintf(stderr, "    expression %zu: got %#" PRIx64 "\n", i, got);
    }
    CHECK(eval(BYTES("\x96"), &first, &got) == 0 && got == 0x77);
    CHECK(eval(BYTES("\x23\x08"), &first, &got) == 0 && got == 0x7f);
}

/* The two expressions that linkers write for .plt: the CFA is 8 higher after the push of each stub. */
static void test_plt_expression(void)
{
    static const char program[] = "\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22";
    struct cfi_section s = {.bytes = (const unsigned char *)program, .len = sizeof(program) - 1};
    struct cfi_rule rule = {.expr_len = sizeof(program) - 1};
    struct cfi_expr_env env = {.known = 0x1ffff, .read_word = word_of};
    uint64_t got;

    env.regs[7] = 0x8000;
    for (uint64_t pc = 0x1000; pc < 0x1020; pc++) {
        env.regs[16] = pc;
        CHECK_INT(cfi_expr_eval(&s, &rule, &env, NULL, &got), 0);
        CHECK_INT(got, 0x8000 + 8 + ((pc & 15) >= 11 ? 8 : 0));
    }
}

static void test_wrong_expressions(void)
{
    static const struct {
        const char *text;
        size_t len;
    } wrong[] = {
        {BYTES("")},                                                 /* empty */
        {BYTES("\x22")},                                             /* plus on an empty stack */
        {BYTES("\x31\x22")},                                         /* plus on one value */
        {BYTES("\x13")},                                             /* drop on an empty stack */
        {BYTES("\x31\x13")},                                         /* empty stack at the end */
        {BYTES("\x12")},                                             /* dup on an empty stack */
        {BYTES("\x31\x14")},                                         /* over on one value */
        {BYTES("\x31\x15\x01")},                                     /* pick on one value */
        {BYTES("\x31\x32\x17")},                                     /* rot on two values */
        {BYTES("\x31\x30\x1b")},                                     /* division by zero */
        {BYTES("\x31\x30\x1d")},                                     /* modulo zero */
        {BYTES("\x0e\x00\x00\x00\x00\x00\x00\x00\x80\x09\xff\x1b")}, /* too large for a signed number */
        {BYTES("\x73\x00")},                                         /* an unknown register */
        {BYTES("\x81\x00")},                                         /* an invalid register */
        {BYTES("\x92\xff\xff\x03\x00")},                             /* an invalid register */
        {BYTES("\x30\x06")},                                         /* an unreadable address */
        {BYTES("\x77\x00\x94\x00")},                                 /* size 0 */
        {BYTES("\x77\x00\x94\x09")},                                 /* size too large */
        {BYTES("\x31\x2f\x10\x00")},                                 /* past the end */
        {BYTES("\x31\x2f\xf0\xff")},                                 /* before the beginning */
        {BYTES("\x31\x2f\xfd\xff")},                                 /* endless loop */
        {BYTES("\x0e\x01\x02")},                                     /* truncated */
        {BYTES("\x77")},                                             /* truncated */
        {BYTES("\x10\x80")},                                         /* truncated */
        {BYTES("\x97")},                                             /* push_object_address: not allowed here */
        {BYTES("\xff")},                                             /* no such operation */
        {BYTES("\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30\x30")}, /* stack overflow */
    };
    uint64_t got = 5;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (!CHECK(eval(wrong[i].text, wrong[i].len, NULL, &got) < 0 && got == 5))
            fprintf(stderr, "    expression %zu\n", i);
    CHECK(cfi_expr_eval(&(struct cfi_section){0}, &(struct cfi_rule){.value = -1}, NULL, NULL, &got) < 0);
    CHECK(cfi_expr_eval(&(struct cfi_section){0}, &(struct cfi_rule){.value = 1}, NULL, NULL, &got) < 0);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_expressions);
    TEST_RUN(test_plt_expression);
    TEST_RUN(test_wrong_expressions);
    return test_finish("test_cfi_expr");
}
