/*
 * unwind/unwind.c and the CPU-specific part: synthetic stacks. Rows, signal frames, frame pointers, scanning; endless,
 * backward and expensive stacks; and the lifetime of the caller's notes.
 */
#include "base/err.h"
#include "cost.h"
#include "fake_module.h"
#include "test.h"
#include "unwind/unwind.h"

#define BASE  0x400000ull /* a program with tables */
#define LIB   0x7f0000ull /* a library without */
#define MADE  0x900000ull /* JIT-compiled code */
#define STACK 0x10000000ull
#define ROOM  0x10000

/* The program's functions: where they begin, and the distance of the CFA from the stack pointer. */
enum { FIRST, SMALL, LARGE, POINTER, SIGNAL, RULES, EXPR, N_FUNCTIONS };
#define AT(f) (BASE + 0x1000 + (uint64_t)(f)*0x100)

struct fixture {
    struct fake_mem *m;
    struct unwind *u;
    struct fake_cfi frame;
    uint64_t starts[N_FUNCTIONS];
    size_t offsets[N_FUNCTIONS];
    struct regs regs;
    unsigned char bytes[ROOM];
    struct stack_copy copy;
    struct native_stack stack;
};

#define MAPS                                                                                                           \
    "400000-408000 r-xp 00000000 08:01 11 /bin/a\n"                                                                    \
    "7f0000-7f8000 r-xp 00000000 08:01 12 /lib/b.so\n"                                                                 \
    "900000-a00000 rwxp 00000000 00:00 0\n"

static void function(struct fixture *w, int f, const char *program, size_t len)
{
    w->starts[f] = AT(f);
    w->offsets[f] = fake_cfi_fde(&w->frame, AT(f), 0x100, program, len);
}

#define PROGRAM(w, f, text) function(w, f, text, sizeof(text) - 1)

static void make_functions(struct fixture *w)
{
    w->frame = (struct fake_cfi){.at = BASE + FAKE_MODULE_FRAME};
    fake_cfi_cie(&w->frame, &(struct fake_cie){0});
    PROGRAM(w, FIRST, "\x07\x10");                     /* there is no caller */
    PROGRAM(w, SMALL, "\x0e\x10");                     /* CFA is rsp + 16 */
    PROGRAM(w, LARGE, "\x0e\x80\x02\x83\x02\x86\x03"); /* rsp + 256; rbx at -16, rbp at -24 */
    PROGRAM(w, POINTER, "\x0c\x06\x10\x86\x02");       /* rbp + 16; rbp at -16 */
    /* rsp + 64; rbx is in rbp, r12 is CFA - 8, r13 is at CFA - 24, r14 is CFA + 1, by expressions; r15 is lost. */
    PROGRAM(w, RULES, "\x0e\x40\x09\x03\x06\x14\x0c\x01\x10\x0d\x03\x11\x68\x22\x16\x0e\x02\x23\x01\x07\x0f");
    /* The CFA by an expression: the word at rsp. */
    PROGRAM(w, EXPR, "\x0f\x03\x77\x00\x06");
    fake_cfi_cie(&w->frame, &(struct fake_cie){.letters = "zRS"});
    PROGRAM(w, SIGNAL, "");
    fake_cfi_end(&w->frame);
}

static void update(struct fixture *w, const char *text)
{
    struct proc_maps maps = fake_module_maps(text);
    bool changed;

    CHECK_INT(unwind_update(w->u, &w->m->mem, &maps, &changed), 0);
    proc_maps_free(&maps);
}

static struct fixture *fixture_new(void)
{
    struct fixture *w = calloc(1, sizeof(*w));

    if (!w)
        abort();
    w->m = fake_mem_new();
    w->u = unwind_new();
    fake_module_put(w->m, BASE);
    fake_module_put(w->m, LIB);
    fake_mem_add(w->m, MADE, 0x100000);
    memset(fake_mem_at(w->m, LIB + 0x1000, 0x7000), 0xe8, 0x7000); /* each address looks like one after a call */
    memset(fake_mem_at(w->m, MADE, 0x100000), 0xe8, 0x100000);
    make_functions(w);
    fake_module_tables(w->m, BASE, &w->frame, w->starts, w->offsets, N_FUNCTIONS);
    update(w, MAPS);
    w->copy = (struct stack_copy){.addr = STACK, .bytes = w->bytes, .len = ROOM};
    w->regs.r[REGS_SP] = STACK;
    return w;
}

static void fixture_free(struct fixture *w)
{
    native_stack_free(&w->stack);
    unwind_free(w->u);
    mem_close(&w->m->mem);
    free(w);
}

/* The word at offset `at` of the stack. */
static void word(struct fixture *w, size_t at, uint64_t value)
{
    memcpy(w->bytes + at, &value, sizeof(value));
}

static void walk(struct fixture *w, uint64_t pc)
{
    w->regs.r[REGS_PC] = pc;
    CHECK_INT(unwind_stack(w->u, &w->m->mem, &w->regs, &w->copy, &w->stack), 0);
}

/* Frame `i` is at `pc`, and its part of the stack is from `sp` to `cfa`, as offsets from the start. */
static void check_frame(const struct fixture *w, size_t i, uint64_t pc, uint64_t sp, uint64_t cfa)
{
    const struct native_frame *f = &w->stack.items[i];

    if (!CHECK(i < w->stack.n && f->pc_entry->pc == pc && f->sp == STACK + sp && f->cfa == STACK + cfa) &&
        i < w->stack.n)
        fprintf(stderr, "    frame %zu: pc %llx, %llx to %llx\n", i, (unsigned long long)f->pc_entry->pc,
                (unsigned long long)(f->sp - STACK), (unsigned long long)(f->cfa - STACK));
}

/* ---- with tables ---- */

static void test_rows(void)
{
    struct fixture *w = fixture_new();

    word(w, 8, AT(LARGE) + 0x20);
    word(w, 16 + 256 - 8, AT(SMALL) + 1); /* a return address: the byte before it is looked up */
    word(w, 16 + 256 + 8, AT(FIRST) + 0x30);
    walk(w, AT(SMALL));
    CHECK_INT(w->stack.n, 4);
    check_frame(w, 0, AT(SMALL), 0, 16);
    check_frame(w, 1, AT(LARGE) + 0x1f, 16, 16 + 256);
    check_frame(w, 2, AT(SMALL), 16 + 256, 16 + 256 + 16);
    check_frame(w, 3, AT(FIRST) + 0x2f, 16 + 256 + 16, ROOM);
    CHECK(w->stack.complete && !w->stack.unknown_pc);
    CHECK(w->stack.items[0].pc_entry == w->stack.items[2].pc_entry); /* one cached address, used twice */
    CHECK(w->stack.items[0].pc_entry->row.function == AT(SMALL));
    fixture_free(w);
}

/* Registers are carried from frame to frame: LARGE has saved the frame pointer that POINTER needs. */
static void test_saved_registers(void)
{
    struct fixture *w = fixture_new();

    w->regs.r[REGS_BP] = 0xdead;
    word(w, 256 - 8, AT(POINTER) + 9);
    word(w, 256 - 24, STACK + 0x800); /* rbp */
    word(w, 0x800 + 8, AT(POINTER) + 9);
    word(w, 0x800, STACK + 0x900);
    word(w, 0x900 + 8, AT(FIRST) + 9);
    walk(w, AT(LARGE));
    CHECK_INT(w->stack.n, 4);
    check_frame(w, 1, AT(POINTER) + 8, 256, 0x810);
    check_frame(w, 2, AT(POINTER) + 8, 0x810, 0x910);
    CHECK(w->stack.complete);
    fixture_free(w);
}

/* Every kind of rule: the next frame uses its result. */
static void test_rules(void)
{
    struct fixture *w = fixture_new();

    w->regs.r[REGS_BP] = STACK + 0x700;
    word(w, 64 - 8, AT(POINTER) + 9); /* rbp is unchanged */
    word(w, 0x708, AT(FIRST) + 9);
    walk(w, AT(RULES));
    CHECK_INT(w->stack.n, 3);
    check_frame(w, 1, AT(POINTER) + 8, 64, 0x710);
    CHECK(w->stack.complete);
    /* The CFA is the word at rsp: it must be higher than the last one. */
    word(w, 0, STACK + 0x40);
    word(w, 0x38, AT(FIRST) + 1);
    walk(w, AT(EXPR));
    CHECK(w->stack.n == 2 && w->stack.complete);
    check_frame(w, 0, AT(EXPR), 0, 0x40);
    word(w, 0, STACK);
    walk(w, AT(EXPR));
    CHECK(w->stack.n == 1 && !w->stack.complete);
    check_frame(w, 0, AT(EXPR), 0, 0); /* it has no known value */
    word(w, 0, STACK - 8);
    walk(w, AT(EXPR));
    CHECK(w->stack.n == 1 && !w->stack.complete);
    word(w, 0, UINT64_MAX);
    walk(w, AT(EXPR));
    CHECK(w->stack.n == 1 && !w->stack.complete);
    fixture_free(w);
}

/* Puts instructions at the start of a function. */
static void put_bytes(struct fixture *w, addr_t at, const char *bytes, size_t len)
{
    memcpy(fake_mem_at(w->m, at, len), bytes, len);
}

#define PUT_CODE(w, at, text) put_bytes(w, at, text, sizeof(text) - 1)

/* Of a sleeping thread only SP and PC are known. */
static void test_unknown_registers(void)
{
    struct fixture *w = fixture_new();

    w->regs.unknown = ~(1u << REGS_SP | 1u << REGS_PC);
    w->regs.r[REGS_BP] = STACK + 0x700; /* not valid */
    word(w, 0x708, AT(FIRST) + 9);
    walk(w, AT(RULES) + 0x20);
    CHECK(w->stack.n == 1 && !w->stack.complete); /* its caller is in rbp */

    /* A register is known again from where it was saved. */
    word(w, 256 - 8, AT(POINTER) + 0x60);
    word(w, 256 - 24, STACK + 0x800); /* rbp */
    word(w, 0x808, AT(FIRST) + 9);
    walk(w, AT(LARGE));
    CHECK_INT(w->stack.n, 3);
    CHECK(w->stack.complete && w->stack.items[0].known == 0 && w->stack.items[0].saved[1] == 0);
    CHECK(w->stack.items[1].known == (1u << 0 | 1u << 1) && w->stack.items[1].saved[1] == STACK + 0x800);
    fixture_free(w);
}

/* The frame pointer itself is not known, but the code says where it must point. */
static void test_find_frame_pointer(void)
{
    struct fixture *w = fixture_new();

    w->regs.unknown = ~(1u << REGS_SP | 1u << REGS_PC);
    PUT_CODE(w, AT(FIRST) + 4, "\xe8\0\0\0\0"); /* a call returns to AT(FIRST) + 9 */
    PUT_CODE(w, AT(POINTER), "\xf3\x0f\x1e\xfa\x55\x31\xc0\x48\x89\xe5\x48\x83\xec\x30"); /* push, mov, sub $48, %rsp */
    word(w, 0x30, STACK + 0x800);
    word(w, 0x38, AT(FIRST) + 9);
    walk(w, AT(POINTER) + 0x60);
    CHECK_INT(w->stack.n, 2);
    check_frame(w, 0, AT(POINTER) + 0x60, 0, 0x40);
    CHECK(w->stack.complete && w->stack.items[1].saved[1] == STACK + 0x800);
    word(w, 0x38, AT(FIRST) + 8); /* no return address: the function must have moved rsp again */
    word(w, 0x48, AT(FIRST) + 9);
    walk(w, AT(POINTER) + 0x60);
    CHECK(w->stack.n == 1 && !w->stack.complete);
    word(w, 0x38, AT(FIRST) + 9);
    walk(w, AT(POINTER) + 0x08); /* before `sub` */
    CHECK(w->stack.n == 1 && !w->stack.complete);
    fixture_free(w);
}

/* Only callee-saved registers are known in the caller. */
static void test_lost_registers(void)
{
    struct fixture *w = fixture_new();
    struct fake_cfi f = {.at = BASE + FAKE_MODULE_FRAME};
    uint64_t start = AT(SMALL);
    size_t offset;

    fake_cfi_cie(&f, &(struct fake_cie){0});
    offset = fake_cfi_fde(&f, start, 0x100, "\x0c\x0a\x10", 3); /* CFA is r10 + 16 */
    fake_module_tables(w->m, BASE, &f, &start, &offset, 1);
    update(w, "");
    update(w, MAPS);
    w->regs.r[10] = STACK + 0x100;
    word(w, 0x108, AT(SMALL) + 9);
    walk(w, AT(SMALL));
    CHECK_INT(w->stack.n, 2); /* in the caller r10 is unknown */
    CHECK(!w->stack.complete);
    fixture_free(w);
}

/* ---- signals ---- */

/* The kernel's signal frame at `at`: the saved registers. */
static void put_signal(struct fixture *w, size_t at, uint64_t pc, uint64_t sp, uint64_t bp)
{
    word(w, at + 40 + 8 * 10, bp);
    word(w, at + 40 + 8 * 15, sp);
    word(w, at + 40 + 8 * 16, pc);
}

static void test_signal(void)
{
    struct fixture *w = fixture_new();

    put_signal(w, 16, AT(POINTER), STACK + 0x400, STACK + 0x500);
    word(w, 0x508, AT(FIRST) + 1);
    word(w, 8, AT(SIGNAL) + 1);
    walk(w, AT(SMALL));
    CHECK_INT(w->stack.n, 4);
    check_frame(w, 1, AT(SIGNAL), 16, 16);
    check_frame(w, 2, AT(POINTER), 0x400, 0x510); /* that very instruction: it is not a call */
    CHECK(w->stack.complete);
    /* Interrupted at the very first instruction. */
    put_signal(w, 16, AT(FIRST), STACK + 0x400, 0);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 3 && w->stack.complete && w->stack.items[2].pc_entry->pc == AT(FIRST));
    /* Its frame is incomplete. */
    w->copy.len = 16 + 40 + 8 * 16;
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 2 && !w->stack.complete);
    fixture_free(w);
}

/* Handlers that interrupt each other in a cycle. */
static void test_signal_cycle(void)
{
    struct fixture *w = fixture_new();
    double begin = cost_seconds();

    word(w, 8, AT(SIGNAL) + 1);
    put_signal(w, 16, AT(SMALL), STACK, 0);
    walk(w, AT(SMALL));
    CHECK(w->stack.n > 2 && w->stack.n < 1000 && !w->stack.complete);
    CHECK(cost_seconds() - begin < COST_MAX);
    fixture_free(w);
}

/* ---- without tables ---- */

static void test_frame_pointer(void)
{
    struct fixture *w = fixture_new();

    w->regs.r[REGS_BP] = STACK + 0x100;
    word(w, 0x100, STACK + 0x200);
    word(w, 0x108, LIB + 0x2000);
    word(w, 0x200, STACK + 0x300);
    word(w, 0x208, AT(POINTER) + 5); /* not after a call */
    memset(fake_mem_at(w->m, AT(POINTER), 5), 0xe8, 5);
    word(w, 0x308, AT(FIRST) + 1);
    walk(w, LIB + 0x3000);
    CHECK_INT(w->stack.n, 4);
    check_frame(w, 0, LIB + 0x3000, 0, 0x110);
    check_frame(w, 1, LIB + 0x1fff, 0x110, 0x210);
    check_frame(w, 2, AT(POINTER) + 4, 0x210, 0x310);
    CHECK(w->stack.complete);
    CHECK(!w->stack.items[0].pc_entry->has_row && w->stack.items[0].pc_entry->module->is_elf);
    fixture_free(w);
}

/* Invalid frame pointers: below the stack pointer, misaligned, outside, to something that is not code. */
static void test_wrong_frame_pointer(void)
{
    static const uint64_t wrong[] = {STACK - 16, STACK + 0x101, STACK + ROOM, STACK + ROOM - 8, 0, UINT64_MAX - 7};
    struct fixture *w = fixture_new();

    w->regs.r[REGS_SP] = STACK;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        w->regs.r[REGS_BP] = wrong[i];
        walk(w, LIB + 0x3000);
        CHECK(w->stack.n == 1 && !w->stack.complete && !w->stack.unknown_pc);
    }
    w->regs.r[REGS_BP] = STACK + 0x100;
    word(w, 0x108, STACK); /* not code */
    walk(w, LIB + 0x3000);
    CHECK_INT(w->stack.n, 1);
    word(w, 0x108, BASE + 0x3000); /* code, but not after a call */
    walk(w, LIB + 0x3000);
    CHECK_INT(w->stack.n, 1);
    fixture_free(w);
}

/* Every kind of call instruction. */
static void test_calls(void)
{
    static const struct {
        const char *bytes;
        size_t len;
        bool is_call;
    } calls[] = {
        {"\xe8\x01\x02\x03\x04", 5, true},
        {"\xff\xd0", 2, true},
        {"\x41\xff\xd3", 3, true},
        {"\xff\x10", 2, true},
        {"\xff\x50\x08", 3, true},
        {"\xff\x14\x24", 3, true},
        {"\xff\x54\x24\x08", 4, true},
        {"\xff\x15\x00\x01\x02\x03", 6, true},
        {"\xff\x90\x00\x01\x02\x03", 6, true},
        {"\xff\x94\x24\x00\x01\x02\x03", 7, true},
        {"\xff\x14\xc5\x00\x01\x02\x03", 7, true},
        {"\xe9\x01\x02\x03\x04", 5, false},
        {"\xff\xe0", 2, false},
        {"\xff\x25\x00\x01\x02\x03", 6, false},
        {"\xff\x30", 2, false},
        {"\x90", 1, false},
        {"\xc3", 1, false},
    };
    struct fixture *w = fixture_new();

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        uint64_t pc = LIB + 0x2000;

        memset(fake_mem_at(w->m, pc - 16, 16), 0x90, 16);
        fake_mem_put_bytes(w->m, pc - calls[i].len, calls[i].bytes, calls[i].len);
        word(w, 0, pc);
        walk(w, LIB + 0x3000);
        if (!CHECK((w->stack.n > 1) == calls[i].is_call))
            fprintf(stderr, "    call %zu\n", i);
    }
    fixture_free(w);
}

/* In a stub the return address is on top; in a function that has reserved space it is a little above. */
static void test_scan(void)
{
    struct fixture *w = fixture_new();

    w->regs.r[REGS_BP] = STACK + 0x200; /* the caller's: there is no frame yet */
    word(w, 0x208, AT(FIRST) + 1);
    for (size_t at = 0; at < 24 * 8; at += 8) {
        memset(fake_mem_at(w->m, AT(POINTER), 16), 0xe8, 16);
        word(w, at, AT(POINTER) + 9);
        walk(w, LIB + 0x3000);
        CHECK(w->stack.n == 3 && w->stack.complete);
        check_frame(w, 0, LIB + 0x3000, 0, at + 8);
        check_frame(w, 1, AT(POINTER) + 8, at + 8, 0x210);
        word(w, at, 0);
    }
    word(w, 24 * 8, AT(POINTER) + 9); /* too far */
    walk(w, LIB + 0x3000);
    CHECK_INT(w->stack.n, 1);
    word(w, 0, AT(SIGNAL) + 1); /* a handler without tables: it has no caller */
    put_signal(w, 8, AT(FIRST) + 1, STACK + 0x700, 0);
    walk(w, LIB + 0x3000);
    CHECK(w->stack.n == 3 && w->stack.complete);
    fixture_free(w);
}

/* ---- generated code ---- */

/* Generated code at MADE + 0x3000: `before` ends there, `after` follows. The rest of the page is padding. */
static void put_code(struct fixture *w, const char *before, size_t n_before, const char *after, size_t n_after)
{
    memset(fake_mem_at(w->m, MADE + 0x2000, 0x2000), 0x90, 0x2000);
    fake_mem_put_bytes(w->m, MADE + 0x3000 - n_before, before, n_before);
    fake_mem_put_bytes(w->m, MADE + 0x3000, after, n_after);
}

#define CODE(w, before, after) put_code(w, before, sizeof(before) - 1, after, sizeof(after) - 1)

/* Fills the stack with return addresses of calls that are over. */
static void put_stale(struct fixture *w)
{
    memset(fake_mem_at(w->m, AT(SMALL), 0x100), 0xe8, 0x100);
    memset(fake_mem_at(w->m, AT(FIRST), 0x100), 0xe8, 0x100);
    for (size_t at = 0; at < 0x1000; at += 8)
        word(w, at, AT(SMALL) + 9);
}

/* Neither frame pointer nor epilogue: nothing shows which of the return addresses is the right one. */
static void test_generated(void)
{
    struct fixture *w = fixture_new();

    put_stale(w);
    w->regs.r[REGS_BP] = STACK + 0x40;
    CODE(w, "\x48\x83\xec\x48\x41\xff\xd4", "\x85\xc0\x75\xf7\x48\x83\xc4\x48\xc3");
    walk(w, MADE + 0x3000);
    CHECK(w->stack.n == 1 && !w->stack.complete && !w->stack.unknown_pc);
    check_frame(w, 0, MADE + 0x3000, 0, 0);
    CHECK(!w->stack.items[0].pc_entry->module->is_elf);
    word(w, 8, MADE + 0x3000); /* the same, called from a function with tables */
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 2 && !w->stack.complete);
    /* A frame pointer of another function: one that ends before the pc. */
    CODE(w, "\x55\x48\x89\xe5\x5d\xc3\x90\x90\x48\x83\xec\x48\x41\xff\xd4", "\x85\xc0");
    walk(w, MADE + 0x3000);
    CHECK_INT(w->stack.n, 1);
    /* Code that cannot be read. */
    update(w, MAPS "c00000-c01000 --xp 00000000 00:00 0\n");
    walk(w, 0xc00010);
    CHECK_INT(w->stack.n, 1);
    fixture_free(w);
}

/* A prologue shows that rbp is a frame pointer. */
static void test_generated_frame_pointer(void)
{
    struct fixture *w = fixture_new();

    put_stale(w);
    w->regs.r[REGS_BP] = STACK + 0x100;
    word(w, 0x100, STACK + 0x200);
    word(w, 0x108, AT(FIRST) + 9);
    CODE(w, "\x55\x48\x89\xe5\x48\x83\xec\x48\x48\x89\xc3\x41\xff\xd4", "\x85\xc0\x75\xf7");
    walk(w, MADE + 0x3000);
    CHECK(w->stack.n == 2 && w->stack.complete);
    check_frame(w, 0, MADE + 0x3000, 0, 0x110);
    CODE(w, "\x55\x48\x8b\xec\x48\x83\xec\x48\x41\xff\xd4", "\x85\xc0\x75\xf7");
    walk(w, MADE + 0x3000);
    CHECK(w->stack.n == 2 && w->stack.complete);
    word(w, 0x108, 42); /* no return address there */
    walk(w, MADE + 0x3000);
    CHECK_INT(w->stack.n, 1);
    /* The first page of a mapping. */
    word(w, 0x108, AT(FIRST) + 9);
    fake_mem_put_bytes(w->m, MADE, "\x55\x48\x89\xe5\xe8\x01\x02\x03\x04\x85\xc0\x75\xf7", 13);
    walk(w, MADE + 9);
    CHECK(w->stack.n == 2 && w->stack.complete);
    fixture_free(w);
}

/* A deep recursion with the prologue far from the call: what the code shows is looked up once. */
static void test_generated_deep(void)
{
    struct fixture *w = fixture_new();
    size_t n = 200000;
    uint64_t *words = calloc(n, 16);
    double begin = cost_seconds();

    if (!words)
        abort();
    for (size_t i = 0; i < n; i++) {
        words[2 * i] = STACK + 16 * (i + 1);
        words[2 * i + 1] = MADE + 0x3000;
    }
    memset(fake_mem_at(w->m, MADE, 0x4000), 0x50, 0x4000);
    fake_mem_put_bytes(w->m, MADE + 0x1100, "\x55\x48\x89\xe5", 4);
    fake_mem_put_bytes(w->m, MADE + 0x3000 - 5, "\xe8\x01\x02\x03\x04\x85\xc0", 7);
    w->copy = (struct stack_copy){.addr = STACK, .bytes = (unsigned char *)words, .len = n * 16};
    w->regs.r[REGS_BP] = STACK;
    walk(w, MADE + 0x3000);
    CHECK(w->stack.n == n + 1 && !w->stack.complete);
    CHECK(cost_seconds() - begin < COST_MAX);
    fixture_free(w);
    free(words);
}

/* At the start of a function with a frame pointer, rbp is still the caller's. A return address is never there. */
static void test_generated_entry(void)
{
    struct fixture *w = fixture_new();

    w->regs.r[REGS_BP] = STACK + 0x100;
    word(w, 0x108, AT(SMALL) + 9);
    memset(fake_mem_at(w->m, AT(SMALL), 0x100), 0xe8, 0x100);
    memset(fake_mem_at(w->m, AT(FIRST), 0x100), 0xe8, 0x100);
    word(w, 0, AT(FIRST) + 9);
    CODE(w, "\x5d\xc3", "\x55\x48\x89\xe5");
    walk(w, MADE + 0x3000);
    CHECK(w->stack.n == 2 && w->stack.complete);
    check_frame(w, 0, MADE + 0x3000, 0, 8);
    CODE(w, "\x5d\xc3", "\xf3\x0f\x1e\xfa\x55\x48\x89\xe5");
    walk(w, MADE + 0x3000);
    CHECK(w->stack.n == 2 && w->stack.complete);
    word(w, 0, STACK + 0x100);
    word(w, 8, AT(FIRST) + 9);
    CODE(w, "\x5d\xc3\x55", "\x48\x89\xe5");
    walk(w, MADE + 0x3000);
    CHECK(w->stack.n == 2 && w->stack.complete);
    check_frame(w, 0, MADE + 0x3000, 0, 16);
    CODE(w, "\x5d\xc3\x54", "\x48\x89\xe5");
    walk(w, MADE + 0x3000);
    CHECK_INT(w->stack.n, 1);
    CODE(w, "\x41\xff\xd4", "\x55\x48\x89\xe5"); /* behind a call that does not return */
    word(w, 16, AT(FIRST) + 9);
    word(w, 8, MADE + 0x3000);
    walk(w, AT(SMALL));
    CHECK_INT(w->stack.n, 2);
    fixture_free(w);
}

/* The rest of the function is an epilogue, so what it will pop is known. */
static void test_generated_epilogue(void)
{
    static const struct {
        const char *bytes;
        size_t len, at; /* `at`: of the return address */
    } epilogues[] = {
        {"\xc3", 1, 0},
        {"\xf3\xc3", 2, 0},
        {"\x48\x83\xc4\x08\xc3", 5, 8},
        {"\x48\x81\xc4\x80\x01\x00\x00\xc3", 8, 0x180},
        {"\x48\x83\xc4\x18\x5b\x41\x5c\x41\x5f\x5d\xc3", 11, 0x38},
        {"\x48\x8d\x64\x24\x10\xc3", 6, 0x10},
        {"\x48\x8d\xa4\x24\x10\x02\x00\x00\xc3", 9, 0x210},
        {"\xc5\xf8\x77\x5d\xc3", 5, 8},
        {"\xc9\xc3", 2, 0x108},
        {"\x48\x89\xec\x5d\xc3", 5, 0x108},
        {"\x48\x8d\x65\xf0\x5b\x41\x5c\x5d\xc3", 9, 0x108},
        {"\x5c\xc3", 2, 0},                         /* pop %rsp */
        {"\x48\x83\xc4\xf8\xc3", 5, 0},             /* the stack grows */
        {"\x48\x83\xec\x08\xc3", 5, 0},             /* sub */
        {"\x48\x89\xd8\xc3", 4, 0},                 /* not an epilogue */
        {"\x58\x58\x58\x58\x58\x58\x58\x58\x58\x58" /* too long */
         "\x58\x58\x58\x58\x58\x58\x58\x58\x58\xc3",
         20, 0},
    };
    struct fixture *w = fixture_new();
    size_t n_good = 11;

    memset(fake_mem_at(w->m, AT(FIRST), 0x100), 0xe8, 0x100);
    for (size_t i = 0; i < sizeof(epilogues) / sizeof(epilogues[0]); i++) {
        w->regs.r[REGS_BP] = STACK + 0x100;
        put_stale(w);
        put_code(w, "", 0, epilogues[i].bytes, epilogues[i].len);
        word(w, epilogues[i].at, AT(FIRST) + 9);
        walk(w, MADE + 0x3000);
        if (!CHECK(w->stack.n == (i < n_good ? 2u : 1u) && w->stack.complete == (i < n_good)))
            fprintf(stderr, "    epilogue %zu\n", i);
        if (i < n_good)
            check_frame(w, 0, MADE + 0x3000, 0, epilogues[i].at + 8);
    }
    /* It restores the frame pointer, which the next frame needs. */
    CODE(w, "", "\x48\x83\xc4\x08\x5d\xc3");
    memset(fake_mem_at(w->m, AT(POINTER), 0x100), 0xe8, 0x100);
    word(w, 8, STACK + 0x400);
    word(w, 16, AT(POINTER) + 9);
    word(w, 0x408, AT(FIRST) + 9);
    walk(w, MADE + 0x3000);
    CHECK(w->stack.n == 3 && w->stack.complete);
    check_frame(w, 1, AT(POINTER) + 8, 24, 0x410);
    /* At the end of the mapping, and no return address. */
    fake_mem_put_bytes(w->m, MADE + 0x100000 - 2, "\xc9\xc3", 2);
    word(w, 0x108, AT(FIRST) + 9);
    walk(w, MADE + 0x100000 - 2);
    CHECK(w->stack.n == 2 && w->stack.complete);
    word(w, 0x108, 42);
    walk(w, MADE + 0x100000 - 2);
    CHECK_INT(w->stack.n, 1);
    fixture_free(w);
}

/* ---- unmapped addresses ---- */

static void test_unmapped(void)
{
    struct fixture *w = fixture_new();

    /* A call to an unmapped address: the caller is shown. */
    memset(fake_mem_at(w->m, AT(SMALL), 16), 0xe8, 16);
    word(w, 0, AT(SMALL) + 9);
    word(w, 8 + 8, AT(FIRST) + 1);
    for (int i = 0; i < 2; i++) {
        walk(w, i ? 0xdeadbeef000 : 0);
        CHECK(w->stack.n == 2 && w->stack.complete && w->stack.unknown_pc); /* it may be new code */
        check_frame(w, 0, AT(SMALL) + 8, 8, 24);
    }
    /* A jump to it: nothing shows the origin. */
    word(w, 0, STACK + 5);
    walk(w, 0);
    CHECK(w->stack.n == 0 && !w->stack.complete && w->stack.unknown_pc);
    walk(w, 0xdeadbeef000);
    CHECK(w->stack.n == 0 && !w->stack.complete && w->stack.unknown_pc);
    /* A caller that is in no module; a stack that ends with 0. */
    word(w, 8, 0xdeadbeef000);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 1 && w->stack.unknown_pc && !w->stack.complete);
    word(w, 8, 0);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 1 && !w->stack.unknown_pc && !w->stack.complete);
    /* The same after a signal: the handler of the crash. */
    word(w, 8, AT(SIGNAL) + 1);
    put_signal(w, 16, 0, STACK + 0x400, 0);
    word(w, 0x400, AT(SMALL) + 9);
    word(w, 0x400 + 8 + 8, AT(FIRST) + 1);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 4 && w->stack.complete && w->stack.unknown_pc);
    check_frame(w, 2, AT(SMALL) + 8, 0x408, 0x418);
    fixture_free(w);
}

/* Copies that are short, empty, or of another address. */
static void test_truncated(void)
{
    struct fixture *w = fixture_new();

    for (size_t i = 0; i < 40; i++)
        word(w, 16 * i + 8, AT(SMALL) + 9);
    word(w, 16 * 40 + 8, AT(FIRST) + 9);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 42 && w->stack.complete);
    for (size_t len = 0; len < 16 * 41; len += 5) {
        w->copy.len = len;
        walk(w, AT(SMALL));
        CHECK(!w->stack.complete && w->stack.n == len / 16 + 1);
        CHECK(w->stack.items[w->stack.n - 1].cfa == w->stack.items[w->stack.n - 1].sp);
    }
    w->copy = (struct stack_copy){.addr = UINT64_MAX - 8, .bytes = w->bytes, .len = ROOM};
    walk(w, AT(SMALL));
    CHECK_INT(w->stack.n, 1);
    w->regs.r[REGS_SP] = UINT64_MAX - 4;
    walk(w, AT(SMALL));
    CHECK_INT(w->stack.n, 1);
    w->copy = (struct stack_copy){0};
    walk(w, AT(SMALL));
    CHECK_INT(w->stack.n, 1);
    fixture_free(w);
}

/* A core file: what was not copied is read, so that unwinding can leave a handler's own stack. */
static void test_core_file_reads(void)
{
    struct fixture *w = fixture_new();

    word(w, 8, AT(SIGNAL) + 1);
    put_signal(w, 16, AT(SMALL), 0x20000000, 0);
    fake_mem_add(w->m, 0x20000000, 0x1000);
    fake_mem_put(w->m, 0x20000008, AT(FIRST) + 1);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 3 && !w->stack.complete);
    w->copy.fallback = &w->m->mem;
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 4 && w->stack.complete && w->stack.items[2].sp == 0x20000000);
    fixture_free(w);
}

/* ---- expensive stacks ---- */

/* A deep recursion is unwound to its end. */
static void test_deep(void)
{
    size_t n = 200000;
    struct fixture *w = fixture_new();
    unsigned char *bytes = calloc(n + 2, 16);
    uint64_t pc = AT(SMALL) + 9, last = AT(FIRST) + 9;

    if (!bytes)
        abort();
    for (size_t i = 0; i <= n; i++)
        memcpy(bytes + i * 16 + 8, i < n ? &pc : &last, 8);
    w->copy = (struct stack_copy){.addr = STACK, .bytes = bytes, .len = (n + 2) * 16};
    walk(w, AT(SMALL));
    CHECK(w->stack.n == n + 2 && w->stack.complete);
    fixture_free(w);
    free(bytes);
}

/* Hundreds of thousands of different return addresses: unwinding ends, and memory stays bounded. */
static void test_many_addresses(void)
{
    size_t n = 400000;
    struct fixture *w = fixture_new();
    uint64_t *words = calloc(n, 8);
    double begin = cost_seconds();

    if (!words)
        abort();
    for (size_t i = 0; i < 0x100000; i += 8)
        fake_mem_put_bytes(w->m, MADE + i, "\xc3\x90\x90\xe8\x01\x02\x03\x04", 8); /* each `ret` follows a call */
    for (size_t i = 0; i < n; i++)
        words[i] = MADE + 16 + 8 * i % 0xfff00;
    w->copy = (struct stack_copy){.addr = STACK, .bytes = (unsigned char *)words, .len = n * 8};
    for (int i = 0; i < 3; i++) {
        walk(w, MADE);
        CHECK(w->stack.n > 10000 && w->stack.n <= 262144 && !w->stack.complete);
    }
    CHECK(cost_seconds() - begin < COST_MAX);
    word(w, 8, AT(FIRST) + 1); /* and works as before */
    w->copy = (struct stack_copy){.addr = STACK, .bytes = w->bytes, .len = ROOM};
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 2 && w->stack.complete);
    fixture_free(w);
    free(words);
}

/* Random registers and stack: unwinding always ends. */
static void test_random(void)
{
    struct fixture *w = fixture_new();
    uint64_t random = 88172645463325252ull;
    static const uint64_t likely[] = {BASE + 0x1000, BASE + 0x1700, LIB + 0x1000, LIB + 0x8000,
                                      MADE,          STACK,         STACK + ROOM, 0};
    double begin = cost_seconds();

    for (int round = 0; round < 300; round++) {
        for (size_t at = 0; at < ROOM; at += 8) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            word(w, at, likely[random % 8] + random / 8 % 0x800);
        }
        for (unsigned r = 0; r < REGS_N_; r++)
            memcpy(&w->regs.r[r], w->bytes + 8 * r + 64, 8);
        w->regs.r[REGS_SP] = STACK + random % 0x1000;
        walk(w, AT(random % N_FUNCTIONS) + random % 0x100);
        for (size_t i = 0; i < w->stack.n; i++)
            if (!w->stack.items[i].pc_entry->module || w->stack.items[i].cfa < w->stack.items[i].sp)
                CHECK(!"a frame that cannot be");
    }
    CHECK(cost_seconds() - begin < COST_MAX);
    fixture_free(w);
}

/* ---- the caller's notes ---- */

static void test_notes(void)
{
    struct fixture *w = fixture_new();
    int note;

    word(w, 8, MADE + 0x100);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 2 && !w->stack.items[0].pc_entry->user);
    w->stack.items[0].pc_entry->user = &note;
    w->stack.items[1].pc_entry->user = &note;
    walk(w, AT(SMALL));
    CHECK(w->stack.items[0].pc_entry->user == &note && w->stack.items[1].pc_entry->user == &note);
    /* No module is gone: notes on files stay, notes on JIT-compiled code may be stale. */
    update(w, MAPS "c00000-c01000 rwxp 00000000 00:00 0\n");
    walk(w, AT(SMALL));
    CHECK(w->stack.items[0].pc_entry->user == &note && !w->stack.items[1].pc_entry->user);
    /* A module is gone: all notes are dropped. */
    update(w, "400000-408000 r-xp 00000000 08:01 11 /bin/a\n");
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 1 && w->stack.unknown_pc && !w->stack.items[0].pc_entry->user);
    /* It is back: what was in no module is in one. */
    w->stack.items[0].pc_entry->user = &note;
    update(w, MAPS);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 2 && w->stack.items[0].pc_entry->user == &note && w->stack.items[1].pc_entry->module);
    CHECK(unwind_modules(w->u)->n == 3);
    fixture_free(w);
}

/* A library that is loaded later provides rows for addresses that were seen before. */
static void test_loaded_later(void)
{
    struct fixture *w = fixture_new();

    update(w, "7f0000-7f8000 r-xp 00000000 08:01 12 /lib/b.so\n");
    word(w, 8, AT(FIRST) + 1);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 0 && w->stack.unknown_pc);
    update(w, MAPS);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 2 && w->stack.complete);
    fixture_free(w);
}

/* Whether an unwound stack is still valid. */
static void test_still_valid(void)
{
    struct fixture *w = fixture_new();
    bool shares;

    word(w, 8, LIB + 0x2000);
    word(w, 16, AT(FIRST) + 9);
    memset(fake_mem_at(w->m, AT(FIRST), 16), 0xe8, 16);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 3 && w->stack.complete);
    CHECK(unwind_modules_unchanged(w->u, &w->m->mem, &w->stack, &shares) && !shares);
    fake_mem_put(w->m, LIB + 0x800, 42); /* another library */
    CHECK(!unwind_modules_unchanged(w->u, &w->m->mem, &w->stack, &shares));
    update(w, MAPS);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 3 && unwind_modules_unchanged(w->u, &w->m->mem, &w->stack, &shares) && shares);
    fake_mem_remove(w->m, LIB);
    CHECK(!unwind_modules_unchanged(w->u, &w->m->mem, &w->stack, &shares));
    w->stack.n = 0;
    CHECK(unwind_modules_unchanged(w->u, &w->m->mem, &w->stack, &shares) && !shares);
    fixture_free(w);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_rows);
    TEST_RUN(test_saved_registers);
    TEST_RUN(test_rules);
    TEST_RUN(test_unknown_registers);
    TEST_RUN(test_find_frame_pointer);
    TEST_RUN(test_lost_registers);
    TEST_RUN(test_signal);
    TEST_RUN(test_signal_cycle);
    TEST_RUN(test_frame_pointer);
    TEST_RUN(test_wrong_frame_pointer);
    TEST_RUN(test_calls);
    TEST_RUN(test_scan);
    TEST_RUN(test_generated);
    TEST_RUN(test_generated_frame_pointer);
    TEST_RUN(test_generated_deep);
    TEST_RUN(test_generated_entry);
    TEST_RUN(test_generated_epilogue);
    TEST_RUN(test_unmapped);
    TEST_RUN(test_truncated);
    TEST_RUN(test_core_file_reads);
    TEST_RUN(test_deep);
    TEST_RUN(test_many_addresses);
    TEST_RUN(test_random);
    TEST_RUN(test_notes);
    TEST_RUN(test_loaded_later);
    TEST_RUN(test_still_valid);
    CHECK(unwind_free(NULL) == NULL);
    return test_finish("test_unwind");
}
