/*
 * unwind/cfi*: every operation, encoding and form of table, built by hand; then truncated, invalid and expensive input.
 * test_cfi_expr.c tests the expressions; test_cfi_real.c compares with elfutils on real libraries.
 */
#include "base/err.h"
#include "cost.h"
#include "fake_cfi.h"
#include "test.h"
#include "unwind/cfi.h"
#include "unwind/cfi_bytes.h"

#define AT    0x5000ull /* address of the section */
#define START 0x1000ull /* address of the function */
#define SIZE  0x100ull

#define BYTES(text) text, sizeof(text) - 1

/* ---- one function, one program ---- */

/* The row at `pc` of a function with this program. */
static int row_at(const struct fake_cie *cie, const char *program, size_t len, uint64_t pc, struct cfi_row *ret)
{
    struct fake_cfi f = {.at = AT};
    struct cfi_section s;
    struct cfi_table t;
    int r;

    fake_cfi_cie(&f, cie);
    fake_cfi_fde(&f, START, SIZE, program, len);
    fake_cfi_end(&f);
    s = (struct cfi_section){.bytes = f.bytes, .len = f.len, .addr = AT};
    if (!CHECK_INT(cfi_table_make(&t, &s, NULL), 0))
        return ERR_READ;
    r = cfi_find(&t, pc, ret);
    cfi_table_free(&t);
    return r;
}

static void check_rule(const struct cfi_rule *rule, enum cfi_rule_kind kind, int64_t value, const char *what)
{
    if (!CHECK(rule->kind == kind && (kind == CFI_EXPRESSION || kind == CFI_VAL_EXPRESSION || rule->value == value)))
        fprintf(stderr, "    %s: kind %d, value %d\n", what, rule->kind, (int)rule->value);
}

struct step_case {
    const char *name;
    const char *program;
    size_t len;
    unsigned reg; /* the register that the rule is for; 99: the CFA */
    enum cfi_rule_kind kind;
    int64_t value;
    unsigned cfa_reg;
};

/* For each operation: its effect on a register or on the CFA. */
static const struct step_case steps[] = {
    {"offset", BYTES("\x86\x02"), 6, CFI_OFFSET, -16, 7},
    {"offset_extended", BYTES("\x05\x0f\x81\x01"), 15, CFI_OFFSET, -1032, 7},
    {"offset_extended_sf", BYTES("\x11\x03\x7e"), 3, CFI_OFFSET, 16, 7},
    {"GNU_negative_offset", BYTES("\x2f\x03\x02"), 3, CFI_OFFSET, 16, 7},
    {"val_offset", BYTES("\x14\x0c\x02"), 12, CFI_VAL_OFFSET, -16, 7},
    {"val_offset_sf", BYTES("\x15\x0c\x7f"), 12, CFI_VAL_OFFSET, 8, 7},
    {"register", BYTES("\x09\x10\x0b"), 16, CFI_REGISTER, 11, 7},
    {"register, not followed", BYTES("\x09\x03\x11"), 3, CFI_UNDEFINED, 0, 7},
    {"undefined", BYTES("\x07\x10"), 16, CFI_UNDEFINED, 0, 7},
    {"same_value", BYTES("\x86\x02\x08\x06"), 6, CFI_SAME_VALUE, 0, 7},
    {"restore", BYTES("\x90\x03\xd0"), 16, CFI_OFFSET, -8, 7},
    {"restore_extended", BYTES("\x86\x03\x06\x06"), 6, CFI_SAME_VALUE, 0, 7},
    {"expression", BYTES("\x10\x06\x02\x77\x08"), 6, CFI_EXPRESSION, 0, 7},
    {"val_expression", BYTES("\x16\x06\x02\x77\x08"), 6, CFI_VAL_EXPRESSION, 0, 7},
    {"a register that is none", BYTES("\x05\x20\x01\x86\x02"), 6, CFI_OFFSET, -16, 7},
    {"def_cfa", BYTES("\x0c\x06\x10"), 99, CFI_CFA_REG_OFFSET, 16, 6},
    {"def_cfa_sf", BYTES("\x12\x06\x7e"), 99, CFI_CFA_REG_OFFSET, 16, 6},
    {"def_cfa_register", BYTES("\x0d\x06"), 99, CFI_CFA_REG_OFFSET, 8, 6},
    {"def_cfa_offset", BYTES("\x0e\x80\x08"), 99, CFI_CFA_REG_OFFSET, 1024, 7},
    {"def_cfa_offset_sf", BYTES("\x13\x7e"), 99, CFI_CFA_REG_OFFSET, 16, 7},
    {"def_cfa_expression", BYTES("\x0f\x02\x76\x78"), 99, CFI_VAL_EXPRESSION, 0, 0},
    {"nop, GNU_args_size", BYTES("\x00\x2e\x10\x0e\x18"), 99, CFI_CFA_REG_OFFSET, 24, 7},
    {"remember, restore", BYTES("\x86\x02\x0a\x0c\x06\x10\xc6\x0b"), 99, CFI_CFA_REG_OFFSET, 8, 7},
    {"remember, restore a register", BYTES("\x86\x02\x0a\x0c\x06\x10\xc6\x0b"), 6, CFI_OFFSET, -16, 7},
    {"the return address", BYTES(""), 16, CFI_OFFSET, -8, 7},
    {"nothing said", BYTES(""), 3, CFI_SAME_VALUE, 0, 7},
};

static void test_steps(void)
{
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        const struct step_case *c = &steps[i];
        struct cfi_row row;

        if (!CHECK_INT(row_at(&(struct fake_cie){0}, c->program, c->len, START, &row), 0)) {
            fprintf(stderr, "    %s\n", c->name);
            continue;
        }
        check_rule(c->reg == 99 ? &row.cfa : &row.regs[c->reg], c->kind, c->value, c->name);
        CHECK(row.cfa.reg == c->cfa_reg);
        CHECK(row.start == START && row.end == START + SIZE && row.function == START && !row.is_signal);
    }
}

/* The CFA's offset shows how far the program ran. */
static void check_advance(const struct fake_cie *cie, const char *program, size_t len, uint64_t step)
{
    struct cfi_row row;

    CHECK_INT(row_at(cie, program, len, START, &row), 0);
    CHECK(row.cfa.value == 8 && row.start == START && row.end == START + step);
    CHECK_INT(row_at(cie, program, len, START + step - 1, &row), 0);
    CHECK(row.cfa.value == 8);
    CHECK_INT(row_at(cie, program, len, START + step, &row), 0);
    CHECK(row.cfa.value == 16 && row.start == START + step && row.end == START + SIZE);
    CHECK_INT(row_at(cie, program, len, START + SIZE - 1, &row), 0);
    CHECK(row.cfa.value == 16);
}

static void test_advance(void)
{
    const struct fake_cie plain = {0}, wide = {.code_align = 4}, absolute = {.encoding = 0x04};
    struct cfi_row row;

    check_advance(&plain, BYTES("\x44\x0e\x10"), 4);
    check_advance(&plain, BYTES("\x02\x50\x0e\x10"), 0x50);
    check_advance(&plain, BYTES("\x03\x80\x00\x0e\x10"), 0x80);
    check_advance(&plain, BYTES("\x04\x80\x00\x00\x00\x0e\x10"), 0x80);
    check_advance(&plain, BYTES("\x1d\x80\x00\x00\x00\x00\x00\x00\x00\x0e\x10"), 0x80);
    check_advance(&wide, BYTES("\x44\x0e\x10"), 16);
    check_advance(&absolute, BYTES("\x01\x10\x10\x00\x00\x00\x00\x00\x00\x0e\x10"), 0x10); /* set_loc */
    /* Advances by 0, and beyond the end. */
    CHECK_INT(row_at(&plain, BYTES("\x40\x40\x0e\x10\x04\xff\xff\xff\x7f\x0e\x20"), START + SIZE - 1, &row), 0);
    CHECK(row.cfa.value == 16 && row.end == START + SIZE);
    /* Backwards, and past the end of the address space. */
    CHECK(row_at(&absolute, BYTES("\x01\x00\x08\x00\x00\x00\x00\x00\x00"), START, &row) < 0);
    CHECK(row_at(&plain, BYTES("\x1d\xff\xff\xff\xff\xff\xff\xff\xff"), START, &row) < 0);
    CHECK(row_at(&(struct fake_cie){.code_align = 1ull << 60}, BYTES("\x7f"), START, &row) < 0);
}

/* An epilogue in the middle of a function, as compilers write it. */
static void test_remember(void)
{
    static const char program[] = "\x41\x0e\x10\x86\x02\x43\x0d\x06\x4c\x0a\x0c\x07\x08\xc6\x41\x0b\x44\x0a\x41\x0b";
    static const struct {
        uint64_t at;
        unsigned reg;
        int value;
        enum cfi_rule_kind rbp;
    } want[] = {{0, 7, 8, CFI_SAME_VALUE}, {1, 7, 16, CFI_OFFSET},     {4, 6, 16, CFI_OFFSET},
                {15, 6, 16, CFI_OFFSET},   {16, 7, 8, CFI_SAME_VALUE}, {17, 6, 16, CFI_OFFSET},
                {21, 6, 16, CFI_OFFSET},   {22, 6, 16, CFI_OFFSET},    {SIZE - 1, 6, 16, CFI_OFFSET}};
    struct cfi_row row;

    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        CHECK_INT(row_at(&(struct fake_cie){0}, BYTES(program), START + want[i].at, &row), 0);
        CHECK_INT(row.cfa.value, want[i].value);
        CHECK_INT(row.cfa.reg, want[i].reg);
        CHECK_INT(row.regs[6].kind, want[i].rbp);
    }
}

/* Invalid programs: no row rather than a wrong one. */
static void test_wrong_programs(void)
{
    static const struct {
        const char *program;
        size_t len;
    } wrong[] = {
        {BYTES("\x0b")},                             /* restore_state without remember_state */
        {BYTES("\x3f")},                             /* no such operation */
        {BYTES("\x17")},                             /* another unknown one */
        {BYTES("\x0c\x40\x08")},                     /* the CFA in an invalid register */
        {BYTES("\x0c\x10\x08")},                     /* or in the return address */
        {BYTES("\x0f\x01\x77\x0e\x10")},             /* def_cfa_offset after an expression */
        {BYTES("\x0f\x01\x77\x0d\x06")},             /* def_cfa_register after an expression */
        {BYTES("\x0c\x07\xff\xff\xff\xff\x0f")},     /* offset of more than 31 bits */
        {BYTES("\x05\x06\xff\xff\xff\xff\xff\x01")}, /* the same for a register */
        {BYTES("\x0f\xff\xff\x07")},                 /* an expression past the end */
        {BYTES("\x10\x06\xff\x01")},                 /* the same for a register */
        {BYTES("\x05\x06\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80")}, /* no end */
        {BYTES(
            "\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a")}, /* too many remembered states */
    };
    struct cfi_row row, before;

    memset(&row, 0x55, sizeof(row));
    before = row;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (!CHECK(row_at(&(struct fake_cie){0}, wrong[i].program, wrong[i].len, START, &row) < 0))
            fprintf(stderr, "    program %zu\n", i);
    CHECK(memcmp(&row, &before, sizeof(row)) == 0);
    /* No rule for the CFA at all. */
    CHECK(row_at(&(struct fake_cie){.program = "", .program_len = 0}, BYTES(""), START, &row) < 0);
    CHECK(row_at(&(struct fake_cie){.data_align = INT64_MIN}, BYTES("\x86\x7f"), START, &row) < 0);
    CHECK_INT(row_at(&(struct fake_cie){.data_align = -1}, BYTES("\x86\xff\xff\xff\xff\x07"), START, &row), 0);
    CHECK_INT(row.regs[6].value, -INT32_MAX);
}

/* ---- tables ---- */

struct made {
    struct fake_cfi frame, header;
    size_t fdes[8];
    uint64_t starts[8];
    struct cfi_table table;
};

/* Three functions with a gap between the first two, distinguished by their CFA offset. */
static void make_three(struct made *m, const struct fake_cie *cie, bool has_no_encoding)
{
    m->frame = (struct fake_cfi){.at = AT, .has_no_encoding = has_no_encoding, .is_debug = m->frame.is_debug};
    fake_cfi_cie(&m->frame, cie);
    m->starts[0] = 0x1000;
    m->starts[1] = 0x1800;
    m->starts[2] = 0x1900;
    m->fdes[0] = fake_cfi_fde(&m->frame, 0x1000, 0x100, BYTES("\x0e\x10"));
    m->fdes[1] = fake_cfi_fde(&m->frame, 0x1800, 0x100, BYTES("\x0e\x20"));
    m->fdes[2] = fake_cfi_fde(&m->frame, 0x1900, 0x80, BYTES("\x0e\x30"));
}

static struct cfi_section section_of(const struct fake_cfi *f)
{
    return (struct cfi_section){.bytes = f->bytes, .len = f->len, .addr = f->at};
}

/* The CFA's offset at `pc`; -1 if there is no row. */
static int cfa_at(struct made *m, uint64_t pc)
{
    struct cfi_row row;

    return cfi_find(&m->table, pc, &row) == 0 ? row.cfa.value : -1;
}

static void check_three(struct made *m, uint64_t bias)
{
    CHECK_INT(cfa_at(m, 0xfff + bias), -1);
    CHECK_INT(cfa_at(m, 0x1000 + bias), 16);
    CHECK_INT(cfa_at(m, 0x10ff + bias), 16);
    CHECK_INT(cfa_at(m, 0x1100 + bias), -1);
    CHECK_INT(cfa_at(m, 0x17ff + bias), -1);
    CHECK_INT(cfa_at(m, 0x1800 + bias), 32);
    CHECK_INT(cfa_at(m, 0x18ff + bias), 32);
    CHECK_INT(cfa_at(m, 0x1900 + bias), 48);
    CHECK_INT(cfa_at(m, 0x197f + bias), 48);
    CHECK_INT(cfa_at(m, 0x1980 + bias), -1);
    CHECK_INT(cfa_at(m, 0), -1);
    CHECK_INT(cfa_at(m, UINT64_MAX), -1);
}

static void check_by_scan(struct made *m)
{
    struct cfi_section frame = section_of(&m->frame);

    CHECK_INT(cfi_table_make(&m->table, &frame, NULL), 0);
    check_three(m, 0);
    cfi_table_free(&m->table);
}

static void test_encodings(void)
{
    static const unsigned encodings[] = {0x00, 0x01, 0x02, 0x03, 0x04, 0x09, 0x0a, 0x0b, 0x0c,
                                         0x10, 0x11, 0x12, 0x13, 0x14, 0x19, 0x1a, 0x1b, 0x1c};
    struct made m = {0};

    for (size_t i = 0; i < sizeof(encodings) / sizeof(encodings[0]); i++) {
        if (encodings[i] == 0x11 || encodings[i] == 0x12 || encodings[i] == 0x13)
            continue; /* unsigned and relative backwards: cannot be encoded */
        make_three(&m, &(struct fake_cie){.encoding = encodings[i]}, true);
        fake_cfi_end(&m.frame);
        check_by_scan(&m);
    }
    /* Relative to another base, or an unknown encoding: no rows, and no harm. */
    for (unsigned encoding = 0; encoding < 256; encoding++) {
        struct cfi_section frame;

        make_three(&m, &(struct fake_cie){.encoding = encoding}, true);
        frame = section_of(&m.frame);
        CHECK_INT(cfi_table_make(&m.table, &frame, NULL), 0);
        if (encoding != 0x50 && (encoding >= 0x20 || (encoding & 0x0f) > 0x0c))
            CHECK_INT(cfa_at(&m, 0x1000), -1);
        cfi_table_free(&m.table);
    }
}

static void test_augmentation(void)
{
    static const char *const good[] = {"zR", "zPLR", "zRS", "zLR", "zRB", "", "eh", "zR?"};
    static const char *const bad[] = {"R", "armcc+", "zRzzzzzzzzzzzzzzzzzzzz"};
    struct made m = {0};
    struct cfi_row row;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        bool plain = good[i][0] != 'z';

        make_three(&m, &(struct fake_cie){.letters = good[i], .encoding = plain ? 0 : 0x1b}, plain);
        check_by_scan(&m);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct cfi_section frame;

        make_three(&m, &(struct fake_cie){.letters = bad[i]}, false);
        frame = section_of(&m.frame);
        CHECK_INT(cfi_table_make(&m.table, &frame, NULL), 0);
        CHECK_INT(cfa_at(&m, 0x1000), -1);
        cfi_table_free(&m.table);
    }
    CHECK_INT(row_at(&(struct fake_cie){.letters = "zRS"}, BYTES(""), START, &row), 0);
    CHECK(row.is_signal);
    CHECK(row_at(&(struct fake_cie){.ra = 15}, BYTES(""), START, &row) < 0);
    CHECK_INT(row_at(&(struct fake_cie){.version = 3}, BYTES(""), START, &row), 0);
    CHECK_INT(row_at(&(struct fake_cie){.version = 4}, BYTES(""), START, &row), 0);
    CHECK(row_at(&(struct fake_cie){.version = 4, .address_size = 4}, BYTES(""), START, &row) < 0);
    CHECK(row_at(&(struct fake_cie){.version = 4, .address_size = 0x108}, BYTES(""), START, &row) < 0);
    CHECK(row_at(&(struct fake_cie){.version = 6}, BYTES(""), START, &row) < 0);
}

static void test_64_bit_form(void)
{
    struct made m = {0};
    struct cfi_section frame;

    make_three(&m, &(struct fake_cie){.header = 8}, false);
    check_by_scan(&m);
    for (size_t header = 4; header <= 8; header += 4) {
        m.frame.is_debug = true;
        make_three(&m, &(struct fake_cie){.header = header, .version = 4}, false);
        frame = section_of(&m.frame);
        CHECK_INT(cfi_table_make_debug(&m.table, &frame, 0x7f0000000000), 0);
        check_three(&m, 0x7f0000000000);
        cfi_table_free(&m.table);
    }
}

/* .debug_frame: several CIEs, functions that the linker discarded, a jump to an address. */
static void test_debug_frame(void)
{
    struct made m = {.frame = {.is_debug = true}};
    struct cfi_section frame;

    fake_cfi_cie(&m.frame, &(struct fake_cie){.version = 1});
    fake_cfi_fde(&m.frame, 0, 0x100000, BYTES("\x0e\x50"));
    fake_cfi_fde(&m.frame, UINT64_MAX, 0x100, BYTES("\x0e\x50"));
    fake_cfi_fde(&m.frame, 0x2000, 0x100, BYTES("\x0e\x10\x01\x80\x20\x00\x00\x00\x00\x00\x00\x0e\x20"));
    fake_cfi_cie(&m.frame, &(struct fake_cie){.version = 3, .program = "\x0c\x06\x40", .program_len = 3});
    fake_cfi_fde(&m.frame, 0x1000, 0x100, BYTES(""));
    frame = section_of(&m.frame);
    CHECK_INT(cfi_table_make_debug(&m.table, &frame, 0x10000), 0);
    CHECK_INT(m.table.n_entries, 2);
    CHECK_INT(cfa_at(&m, 0x11000), 64);
    CHECK_INT(cfa_at(&m, 0x1207f), 16);
    CHECK_INT(cfa_at(&m, 0x12080), 32);
    CHECK_INT(cfa_at(&m, 0x11500), -1);
    cfi_table_free(&m.table);
    /* Parsed as .eh_frame, the same bytes give nothing. */
    CHECK_INT(cfi_table_make(&m.table, &frame, NULL), 0);
    CHECK_INT(m.table.n_entries, 0);
    cfi_table_free(&m.table);
}

static void check_by_header(struct made *m, bool uses_it)
{
    struct cfi_section frame = section_of(&m->frame), header = section_of(&m->header);

    CHECK_INT(cfi_table_make(&m->table, &frame, &header), 0);
    CHECK((m->table.n_hdr_pairs != 0) == uses_it);
    check_three(m, 0);
    cfi_table_free(&m->table);
}

static void test_header(void)
{
    static const unsigned encodings[] = {0x1b, 0x3b, 0x04, 0x0c, 0x00, 0x03, 0x01, 0x50, 0x1c, 0x3c};
    struct made m = {0};
    struct cfi_section header;

    make_three(&m, &(struct fake_cie){0}, false);
    fake_cfi_end(&m.frame);
    for (size_t i = 0; i < sizeof(encodings) / sizeof(encodings[0]); i++) {
        fake_cfi_header(&m.header, 0x4000, encodings[i], &m.frame, m.starts, m.fdes, 3);
        header = section_of(&m.header);
        CHECK(cfi_header_frame(&header) == AT);
        check_by_header(&m, true);
    }
    /* Missing or damaged header: all FDEs are scanned instead. */
    m.header.bytes[1] = 0xff;
    header = section_of(&m.header);
    CHECK(cfi_header_frame(&header) == 0);
    for (size_t len = 0; len < m.header.len; len++) {
        fake_cfi_header(&m.header, 0x4000, 0x1b, &m.frame, m.starts, m.fdes, 3);
        m.header.len = len;
        header = section_of(&m.header);
        CHECK(cfi_header_frame(&header) == (len < 8 ? 0 : AT));
        check_by_header(&m, false);
    }
    fake_cfi_header(&m.header, 0x4000, 0x1b, &m.frame, m.starts, m.fdes, 3);
    m.header.bytes[2] = 0xff; /* no count, no table: --no-eh-frame-hdr-table */
    check_by_header(&m, false);
    fake_cfi_header(&m.header, 0x4000, 0x1b, &m.frame, m.starts, m.fdes, 3);
    m.header.bytes[3] = 0x33; /* another encoding */
    check_by_header(&m, false);
    m.header.bytes[0] = 2;
    header = section_of(&m.header);
    CHECK(cfi_header_frame(&header) == 0);
    check_by_header(&m, false);
}

/* Pairs in the wrong order, or with wrong values. */
static void test_header_wrong(void)
{
    uint64_t starts[3];
    size_t fdes[3];
    struct made m = {0};
    struct cfi_section frame, header;

    make_three(&m, &(struct fake_cie){0}, false);
    fake_cfi_end(&m.frame);
    for (unsigned order = 1; order < 6; order++) {
        for (unsigned i = 0; i < 3; i++) {
            unsigned from = order < 3 ? (i + order) % 3 : (order - i) % 3;

            starts[i] = m.starts[from];
            fdes[i] = m.fdes[from];
        }
        fake_cfi_header(&m.header, 0x4000, 0x1b, &m.frame, starts, fdes, 3);
        check_by_header(&m, true);
    }
    memcpy(starts, m.starts, sizeof(starts));
    for (size_t i = 0; i < 3; i++)
        fdes[i] = m.fdes[2 - i] + (i == 1 ? 0x100000u : 0);
    fake_cfi_header(&m.header, 0x4000, 0x1b, &m.frame, starts, fdes, 3);
    frame = section_of(&m.frame);
    header = section_of(&m.header);
    CHECK_INT(cfi_table_make(&m.table, &frame, &header), 0);
    CHECK_INT(cfa_at(&m, 0x1000), -1); /* another function is there: no row rather than its row */
    CHECK_INT(cfa_at(&m, 0x1800), -1);
    CHECK_INT(cfa_at(&m, 0x1900), -1);
    cfi_table_free(&m.table);
}

/* ---- sections that are loaded on demand ---- */

struct lazy {
    const struct fake_cfi *from;
    unsigned char bytes[FAKE_CFI_ROOM];
    bool refuse;
    size_t most; /* the end of the requested range */
};

static bool lazy_load(void *arg, size_t pos, size_t len)
{
    struct lazy *l = arg;

    if (l->refuse || pos > l->from->len || len > l->from->len - pos)
        return false;
    memcpy(l->bytes + pos, l->from->bytes + pos, len);
    l->most = pos + len > l->most ? pos + len : l->most;
    return true;
}

static void test_load(void)
{
    static struct lazy l;
    struct made m = {0};
    struct cfi_section frame, header;

    make_three(&m, &(struct fake_cie){0}, false);
    fake_cfi_end(&m.frame);
    fake_cfi_header(&m.header, 0x4000, 0x1b, &m.frame, m.starts, m.fdes, 3);
    l = (struct lazy){.from = &m.frame};
    frame = (struct cfi_section){.bytes = l.bytes, .len = m.frame.len, .addr = AT, .load = lazy_load, .arg = &l};
    header = section_of(&m.header);
    CHECK_INT(cfi_table_make(&m.table, &frame, &header), 0);
    CHECK_INT(l.most, 0); /* nothing was loaded */
    CHECK_INT(cfa_at(&m, 0x1000), 16);
    CHECK(l.most <= m.fdes[1]);
    check_three(&m, 0);
    cfi_table_free(&m.table);
    l.refuse = true;
    CHECK_INT(cfi_table_make(&m.table, &frame, &header), 0);
    CHECK_INT(cfa_at(&m, 0x1000), -1);
    cfi_table_free(&m.table);
    l = (struct lazy){.from = &m.frame};
    CHECK_INT(cfi_table_make(&m.table, &frame, NULL), 0);
    check_three(&m, 0);
    cfi_table_free(&m.table);
}

/* ---- truncated and expensive input ---- */

/* Each section slightly too short, in its own allocation, so that a sanitizer detects a read past its end. */
static void test_truncated(void)
{
    struct made m = {0};

    make_three(&m, &(struct fake_cie){.letters = "zPLR"}, false);
    for (size_t len = 0; len < m.frame.len; len++) {
        unsigned char *copy = malloc(len + 1);
        struct cfi_section frame = {.bytes = copy, .len = len, .addr = AT};

        if (!copy)
            abort();
        memcpy(copy, m.frame.bytes, len);
        for (int is_debug = 0; is_debug < 2; is_debug++) {
            CHECK_INT(is_debug ? cfi_table_make_debug(&m.table, &frame, 0) : cfi_table_make(&m.table, &frame, NULL), 0);
            CHECK(cfa_at(&m, 0x1900) < 0 && (is_debug || cfa_at(&m, 0x1000) == (len >= m.fdes[1] ? 16 : -1)));
            cfi_table_free(&m.table);
        }
        free(copy);
    }
}

/* Entries of 4 MB, endless numbers and letters, thousands of FDEs that share an expensive CIE. */
static void test_cost(void)
{
    size_t room = (size_t)8 << 20, len = 0;
    unsigned char *bytes = malloc(room);
    struct cfi_section frame = {.bytes = bytes, .addr = AT};
    struct made m;
    struct fake_cfi f = {.at = AT};
    double begin = cost_seconds();

    if (!bytes)
        abort();
    memset(bytes, 0x80, room);
    fake_cfi_cie(&f, &(struct fake_cie){0});
    memcpy(bytes, f.bytes, f.len);
    len = (size_t)2 << 20;
    memcpy(bytes, &(uint32_t){(uint32_t)len - 4}, 4);
    while (len + 32 < room) { /* FDEs that point back to it */
        uint32_t head[4] = {28, (uint32_t)len + 4, (uint32_t)(START - AT - len - 8), 0x100};

        memcpy(bytes + len, head, sizeof(head));
        bytes[len + sizeof(head)] = 0;
        len += 32;
    }
    frame.len = len;
    CHECK_INT(cfi_table_make(&m.table, &frame, NULL), 0);
    CHECK(m.table.n_entries > 100000);
    for (uint64_t pc = START; pc < START + 0x100; pc++)
        CHECK_INT(cfa_at(&m, pc), -1);
    cfi_table_free(&m.table);
    memset(bytes, 0x0a, room); /* an FDE of 4 MB: too long */
    memcpy(bytes, f.bytes, f.len);
    fake_cfi_fde(&f, START, SIZE, "", 0);
    memcpy(bytes, f.bytes, f.len);
    memcpy(bytes + f.cie_at + (size_t)bytes[0] + 4, &(uint32_t){5 << 20}, 4);
    CHECK_INT(cfi_table_make(&m.table, &frame, NULL), 0);
    CHECK_INT(m.table.n_entries, 0);
    cfi_table_free(&m.table);
    free(bytes);
    CHECK(cost_seconds() - begin < COST_MAX);
}

/* A program with more steps than any real one. */
static void test_long_program(void)
{
    size_t len = 200000;
    unsigned char *bytes = calloc(1, len + 64);
    struct fake_cfi f = {.at = AT};
    struct cfi_section frame = {.bytes = bytes, .addr = AT};
    struct made m;

    if (!bytes)
        abort();
    fake_cfi_cie(&f, &(struct fake_cie){0});
    fake_cfi_fde(&f, START, SIZE, BYTES("\x0e\x10"));
    memcpy(bytes, f.bytes, f.len);
    for (int too_long = 0; too_long < 2; too_long++) {
        uint32_t entry = (uint32_t)(too_long ? len : 60000);

        memcpy(bytes + bytes[0] + 4, &entry, 4);
        frame.len = bytes[0] + 4u + 4u + entry;
        CHECK_INT(cfi_table_make(&m.table, &frame, NULL), 0);
        CHECK_INT(cfa_at(&m, START), too_long ? -1 : 16);
        cfi_table_free(&m.table);
    }
    free(bytes);
}

static void test_numbers(void)
{
    static const uint64_t plain[] = {0, 1, 127, 128, 16383, 16384, UINT32_MAX, INT64_MAX, UINT64_MAX};
    static const int64_t with_sign[] = {0, 1, -1, 63, 64, -64, -65, 8191, -8192, INT64_MAX, INT64_MIN};
    struct fake_cfi f = {0};
    struct dwarf_bytes b = {.start = f.bytes};

    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        fake_cfi_uleb(&f, plain[i]);
    for (size_t i = 0; i < sizeof(with_sign) / sizeof(with_sign[0]); i++)
        fake_cfi_sleb(&f, with_sign[i]);
    fake_cfi_bytes(&f, "\x81\x80\x80\x00\xff\xff\x7f", 7); /* longer than necessary */
    b.end = f.len;
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        CHECK(dwarf_bytes_uleb(&b) == plain[i]);
    for (size_t i = 0; i < sizeof(with_sign) / sizeof(with_sign[0]); i++)
        CHECK(dwarf_bytes_sleb(&b) == with_sign[i]);
    CHECK(dwarf_bytes_uleb(&b) == 1 && dwarf_bytes_sleb(&b) == -1 && !b.bad);
    CHECK(dwarf_bytes_uleb(&b) == 0 && b.bad);
    CHECK(dwarf_bytes_fixed(&b, 1) == 0 && dwarf_bytes_sleb(&b) == 0 && cfi_bytes_pointer(&b, 0, 0) == 0);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_numbers);
    TEST_RUN(test_steps);
    TEST_RUN(test_advance);
    TEST_RUN(test_remember);
    TEST_RUN(test_wrong_programs);
    TEST_RUN(test_encodings);
    TEST_RUN(test_augmentation);
    TEST_RUN(test_64_bit_form);
    TEST_RUN(test_debug_frame);
    TEST_RUN(test_header);
    TEST_RUN(test_header_wrong);
    TEST_RUN(test_load);
    TEST_RUN(test_truncated);
    TEST_RUN(test_cost);
    TEST_RUN(test_long_program);
    return test_finish("test_cfi");
}
