/*
 * unwind/unwind.c and the CPU's part: walks over stacks that are made up. Rows, signal frames, frame pointers, guesses;
 * what has no end, goes backwards or was made to cost time; what becomes of what a caller noted.
 */
#include "base/err.h"
#include "cost.h"
#include "fake_module.h"
#include "test.h"
#include "unwind/unwind.h"

#define BASE  0x400000ull /* a program with tables */
#define LIB   0x7f0000ull /* a library without */
#define MADE  0x900000ull /* code that somebody made */
#define STACK 0x10000000ull
#define ROOM  0x10000

/* The program's functions: where they begin, how far the CFA is from the stack pointer. */
enum { FIRST, SMALL, LARGE, POINTER, SIGNAL, RULES, EXPR, N_FUNCTIONS };
#define AT(f) (BASE + 0x1000 + (uint64_t)(f)*0x100)

struct world {
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

static void function(struct world *w, int f, const char *program, size_t len)
{
    w->starts[f] = AT(f);
    w->offsets[f] = fake_cfi_fde(&w->frame, AT(f), 0x100, program, len);
}

#define PROGRAM(w, f, text) function(w, f, text, sizeof(text) - 1)

static void make_functions(struct world *w)
{
    w->frame = (struct fake_cfi){.at = BASE + FAKE_MODULE_FRAME};
    fake_cfi_cie(&w->frame, &(struct fake_cie){0});
    PROGRAM(w, FIRST, "\x07\x10");                     /* there is no caller */
    PROGRAM(w, SMALL, "\x0e\x10");                     /* CFA is rsp + 16 */
    PROGRAM(w, LARGE, "\x0e\x80\x02\x83\x02\x86\x03"); /* rsp + 256; rbx at -16, rbp at -24 */
    PROGRAM(w, POINTER, "\x0c\x06\x10\x86\x02");       /* rbp + 16; rbp at -16 */
    /* rsp + 64; rbx is in rbp, r12 is CFA - 8, r13 is at CFA - 24, r14 is CFA + 1, by expressions; r15 is lost. */
    PROGRAM(w, RULES, "\x0e\x40\x09\x03\x06\x14\x0c\x01\x10\x0d\x03\x11\x68\x22\x16\x0e\x02\x23\x01\x07\x0f");
    /* CFA by an expression: what lies at rsp. */
    PROGRAM(w, EXPR, "\x0f\x03\x77\x00\x06");
    fake_cfi_cie(&w->frame, &(struct fake_cie){.letters = "zRS"});
    PROGRAM(w, SIGNAL, "");
    fake_cfi_end(&w->frame);
}

static void update(struct world *w, const char *text)
{
    struct proc_maps maps = fake_module_maps(text);
    bool changed;

    CHECK_INT(unwind_update(w->u, &w->m->mem, &maps, &changed), 0);
    proc_maps_free(&maps);
}

static struct world *world_new(void)
{
    struct world *w = calloc(1, sizeof(*w));

    if (!w)
        abort();
    w->m = fake_mem_new();
    w->u = unwind_new();
    fake_module_put(w->m, BASE);
    fake_module_put(w->m, LIB);
    fake_mem_add(w->m, MADE, 0x100000);
    memset(fake_mem_at(w->m, LIB + 0x1000, 0x7000), 0xe8, 0x7000); /* each address looks like one behind a call */
    memset(fake_mem_at(w->m, MADE, 0x100000), 0xe8, 0x100000);
    make_functions(w);
    fake_module_tables(w->m, BASE, &w->frame, w->starts, w->offsets, N_FUNCTIONS);
    update(w, MAPS);
    w->copy = (struct stack_copy){.addr = STACK, .bytes = w->bytes, .len = ROOM};
    w->regs.r[REGS_SP] = STACK;
    return w;
}

static void world_free(struct world *w)
{
    native_stack_free(&w->stack);
    unwind_free(w->u);
    mem_close(&w->m->mem);
    free(w);
}

/* A word of the stack, `at` bytes into it. */
static void word(struct world *w, size_t at, uint64_t value)
{
    memcpy(w->bytes + at, &value, sizeof(value));
}

static void walk(struct world *w, uint64_t pc)
{
    w->regs.r[REGS_PC] = pc;
    CHECK_INT(unwind_stack(w->u, &w->m->mem, &w->regs, &w->copy, &w->stack), 0);
}

/* Frame `i` is at `pc`, and has the stack from `sp` to `cfa`, in bytes from its beginning. */
static void check_frame(const struct world *w, size_t i, uint64_t pc, uint64_t sp, uint64_t cfa)
{
    const struct native_frame *f = &w->stack.items[i];

    if (!CHECK(i < w->stack.n && f->pc_entry->pc == pc && f->sp == STACK + sp && f->cfa == STACK + cfa) &&
        i < w->stack.n)
        fprintf(stderr, "    frame %zu: pc %llx, %llx to %llx\n", i, (unsigned long long)f->pc_entry->pc,
                (unsigned long long)(f->sp - STACK), (unsigned long long)(f->cfa - STACK));
}

/* ---- by tables ---- */

static void test_rows(void)
{
    struct world *w = world_new();

    word(w, 8, AT(LARGE) + 0x20);
    word(w, 16 + 256 - 8, AT(SMALL) + 1); /* the call was in SMALL, though the address is behind its first byte */
    word(w, 16 + 256 + 8, AT(FIRST) + 0x30);
    walk(w, AT(SMALL));
    CHECK_INT(w->stack.n, 4);
    check_frame(w, 0, AT(SMALL), 0, 16);
    check_frame(w, 1, AT(LARGE) + 0x1f, 16, 16 + 256);
    check_frame(w, 2, AT(SMALL), 16 + 256, 16 + 256 + 16);
    check_frame(w, 3, AT(FIRST) + 0x2f, 16 + 256 + 16, ROOM);
    CHECK(w->stack.complete && !w->stack.unknown_pc);
    CHECK(w->stack.items[0].pc_entry == w->stack.items[2].pc_entry); /* one place, met twice */
    CHECK(w->stack.items[0].pc_entry->row.function == AT(SMALL));
    world_free(w);
}

/* Registers go from frame to frame: LARGE has saved the pointer that POINTER lives by. */
static void test_saved_registers(void)
{
    struct world *w = world_new();

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
    world_free(w);
}

/* Every kind of rule: what it makes is seen by who uses it next. */
static void test_rules(void)
{
    struct world *w = world_new();

    w->regs.r[REGS_BP] = STACK + 0x700;
    word(w, 64 - 8, AT(POINTER) + 9); /* rbp is the same still */
    word(w, 0x708, AT(FIRST) + 9);
    walk(w, AT(RULES));
    CHECK_INT(w->stack.n, 3);
    check_frame(w, 1, AT(POINTER) + 8, 64, 0x710);
    CHECK(w->stack.complete);
    /* The CFA is what lies at rsp: up is good, down or the same is not. */
    word(w, 0, STACK + 0x40);
    word(w, 0x38, AT(FIRST) + 1);
    walk(w, AT(EXPR));
    CHECK(w->stack.n == 2 && w->stack.complete);
    check_frame(w, 0, AT(EXPR), 0, 0x40);
    word(w, 0, STACK);
    walk(w, AT(EXPR));
    CHECK(w->stack.n == 1 && !w->stack.complete);
    check_frame(w, 0, AT(EXPR), 0, 0); /* it holds nothing that is known */
    word(w, 0, STACK - 8);
    walk(w, AT(EXPR));
    CHECK(w->stack.n == 1 && !w->stack.complete);
    word(w, 0, UINT64_MAX);
    walk(w, AT(EXPR));
    CHECK(w->stack.n == 1 && !w->stack.complete);
    world_free(w);
}

/* Only what a function must save is known in its caller. */
static void test_lost_registers(void)
{
    struct world *w = world_new();
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
    CHECK_INT(w->stack.n, 2); /* in the caller r10 can be anything */
    CHECK(!w->stack.complete);
    world_free(w);
}

/* ---- signals ---- */

/* The kernel's frame at `at`: registers as they were. */
static void put_signal(struct world *w, size_t at, uint64_t pc, uint64_t sp, uint64_t bp)
{
    word(w, at + 40 + 8 * 10, bp);
    word(w, at + 40 + 8 * 15, sp);
    word(w, at + 40 + 8 * 16, pc);
}

static void test_signal(void)
{
    struct world *w = world_new();

    put_signal(w, 16, AT(POINTER), STACK + 0x400, STACK + 0x500);
    word(w, 0x508, AT(FIRST) + 1);
    word(w, 8, AT(SIGNAL) + 1);
    walk(w, AT(SMALL));
    CHECK_INT(w->stack.n, 4);
    check_frame(w, 1, AT(SIGNAL), 16, 16);
    check_frame(w, 2, AT(POINTER), 0x400, 0x510); /* that very instruction: it had called nobody */
    CHECK(w->stack.complete);
    /* It was interrupted at the first instruction of all. */
    put_signal(w, 16, AT(FIRST), STACK + 0x400, 0);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 3 && w->stack.complete && w->stack.items[2].pc_entry->pc == AT(FIRST));
    /* Its frame is not all there. */
    w->copy.len = 16 + 40 + 8 * 16;
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 2 && !w->stack.complete);
    world_free(w);
}

/* Handlers that interrupt each other in a ring. */
static void test_signal_ring(void)
{
    struct world *w = world_new();
    double begin = cost_seconds();

    word(w, 8, AT(SIGNAL) + 1);
    put_signal(w, 16, AT(SMALL), STACK, 0);
    walk(w, AT(SMALL));
    CHECK(w->stack.n > 2 && w->stack.n < 1000 && !w->stack.complete);
    CHECK(cost_seconds() - begin < COST_MAX);
    world_free(w);
}

/* ---- where there are no tables ---- */

static void test_frame_pointer(void)
{
    struct world *w = world_new();

    w->regs.r[REGS_BP] = STACK + 0x100;
    word(w, 0x100, STACK + 0x200);
    word(w, 0x108, LIB + 0x2000);
    word(w, 0x200, STACK + 0x300);
    word(w, 0x208, AT(POINTER) + 5); /* not behind a call */
    memset(fake_mem_at(w->m, AT(POINTER), 5), 0xe8, 5);
    word(w, 0x308, AT(FIRST) + 1);
    walk(w, LIB + 0x3000);
    CHECK_INT(w->stack.n, 4);
    check_frame(w, 0, LIB + 0x3000, 0, 0x110);
    check_frame(w, 1, LIB + 0x1fff, 0x110, 0x210);
    check_frame(w, 2, AT(POINTER) + 4, 0x210, 0x310);
    CHECK(w->stack.complete);
    CHECK(!w->stack.items[0].pc_entry->has_row && w->stack.items[0].pc_entry->module->is_elf);
    world_free(w);
}

/* Pointers that are none: below the stack pointer, askew, outside, to what is no code. */
static void test_wrong_frame_pointer(void)
{
    static const uint64_t wrong[] = {STACK - 16, STACK + 0x101, STACK + ROOM, STACK + ROOM - 8, 0, UINT64_MAX - 7};
    struct world *w = world_new();

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
    word(w, 0x108, BASE + 0x3000); /* code, but nothing calls there */
    walk(w, LIB + 0x3000);
    CHECK_INT(w->stack.n, 1);
    world_free(w);
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
    struct world *w = world_new();

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        uint64_t pc = LIB + 0x2000;

        memset(fake_mem_at(w->m, pc - 16, 16), 0x90, 16);
        fake_mem_put_bytes(w->m, pc - calls[i].len, calls[i].bytes, calls[i].len);
        word(w, 0, pc);
        walk(w, LIB + 0x3000);
        if (!CHECK((w->stack.n > 1) == calls[i].is_call))
            fprintf(stderr, "    call %zu\n", i);
    }
    world_free(w);
}

/* In a stub the return address is on top; a function that made room has it a little above. */
static void test_scan(void)
{
    struct world *w = world_new();

    w->regs.r[REGS_BP] = STACK + 0x200; /* of the caller: no frame was made */
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
    word(w, 0, AT(SIGNAL) + 1); /* a handler without tables: nobody called it */
    put_signal(w, 8, AT(FIRST) + 1, STACK + 0x700, 0);
    walk(w, MADE + 0x3000);
    CHECK(w->stack.n == 3 && w->stack.complete);
    CHECK(!w->stack.items[0].pc_entry->module->is_elf);
    world_free(w);
}

/* ---- nowhere ---- */

static void test_nowhere(void)
{
    struct world *w = world_new();

    /* A call of what is not there: who called is shown. */
    memset(fake_mem_at(w->m, AT(SMALL), 16), 0xe8, 16);
    word(w, 0, AT(SMALL) + 9);
    word(w, 8 + 8, AT(FIRST) + 1);
    for (int i = 0; i < 2; i++) {
        walk(w, i ? 0xdeadbeef000 : 0);
        CHECK(w->stack.n == 2 && w->stack.complete && w->stack.unknown_pc); /* it may be code that is new */
        check_frame(w, 0, AT(SMALL) + 8, 8, 24);
    }
    /* A jump there: nothing tells who did it. */
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
    /* The same behind a signal: the handler of the crash. */
    word(w, 8, AT(SIGNAL) + 1);
    put_signal(w, 16, 0, STACK + 0x400, 0);
    word(w, 0x400, AT(SMALL) + 9);
    word(w, 0x400 + 8 + 8, AT(FIRST) + 1);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 4 && w->stack.complete && w->stack.unknown_pc);
    check_frame(w, 2, AT(SMALL) + 8, 0x408, 0x418);
    world_free(w);
}

/* Copies that are short, empty, elsewhere. */
static void test_cut(void)
{
    struct world *w = world_new();

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
    world_free(w);
}

/* A core file: what was not copied is read, so that a handler's own stack is left behind. */
static void test_rest(void)
{
    struct world *w = world_new();

    word(w, 8, AT(SIGNAL) + 1);
    put_signal(w, 16, AT(SMALL), 0x20000000, 0);
    fake_mem_add(w->m, 0x20000000, 0x1000);
    fake_mem_put(w->m, 0x20000008, AT(FIRST) + 1);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 3 && !w->stack.complete);
    w->copy.fallback = &w->m->mem;
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 4 && w->stack.complete && w->stack.items[2].sp == 0x20000000);
    world_free(w);
}

/* ---- what costs time ---- */

/* A deep recursion is followed to its end. */
static void test_deep(void)
{
    size_t n = 200000;
    struct world *w = world_new();
    unsigned char *bytes = calloc(n + 2, 16);
    uint64_t pc = AT(SMALL) + 9, last = AT(FIRST) + 9;

    if (!bytes)
        abort();
    for (size_t i = 0; i <= n; i++)
        memcpy(bytes + i * 16 + 8, i < n ? &pc : &last, 8);
    w->copy = (struct stack_copy){.addr = STACK, .bytes = bytes, .len = (n + 2) * 16};
    walk(w, AT(SMALL));
    CHECK(w->stack.n == n + 2 && w->stack.complete);
    world_free(w);
    free(bytes);
}

/* Hundreds of thousands of different return addresses: it ends, and does not take all memory for them. */
static void test_flood(void)
{
    size_t n = 400000;
    struct world *w = world_new();
    uint64_t *words = calloc(n, 8);
    double begin = cost_seconds();

    if (!words)
        abort();
    for (size_t i = 0; i < n; i++)
        words[i] = MADE + 16 + i % 0xfff00;
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
    world_free(w);
    free(words);
}

/* Words of chance for registers and stack: whatever they are, it ends. */
static void test_chance(void)
{
    struct world *w = world_new();
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
    world_free(w);
}

/* ---- what the caller noted ---- */

static void test_notes(void)
{
    struct world *w = world_new();
    int note;

    word(w, 8, MADE + 0x100);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 2 && !w->stack.items[0].pc_entry->user);
    w->stack.items[0].pc_entry->user = &note;
    w->stack.items[1].pc_entry->user = &note;
    walk(w, AT(SMALL));
    CHECK(w->stack.items[0].pc_entry->user == &note && w->stack.items[1].pc_entry->user == &note);
    /* Nothing is gone: what is in a file stays, what somebody makes while it runs may be another thing by now. */
    update(w, MAPS "c00000-c01000 rwxp 00000000 00:00 0\n");
    walk(w, AT(SMALL));
    CHECK(w->stack.items[0].pc_entry->user == &note && !w->stack.items[1].pc_entry->user);
    /* A module is gone: all is forgotten. */
    update(w, "400000-408000 r-xp 00000000 08:01 11 /bin/a\n");
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 1 && w->stack.unknown_pc && !w->stack.items[0].pc_entry->user);
    /* It is there again: what was in no module is in one. */
    w->stack.items[0].pc_entry->user = &note;
    update(w, MAPS);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 2 && w->stack.items[0].pc_entry->user == &note && w->stack.items[1].pc_entry->module);
    CHECK(unwind_modules(w->u)->n == 3);
    world_free(w);
}

/* A library that is loaded later brings its rows to addresses that were met before. */
static void test_loaded_later(void)
{
    struct world *w = world_new();

    update(w, "7f0000-7f8000 r-xp 00000000 08:01 12 /lib/b.so\n");
    word(w, 8, AT(FIRST) + 1);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 0 && w->stack.unknown_pc);
    update(w, MAPS);
    walk(w, AT(SMALL));
    CHECK(w->stack.n == 2 && w->stack.complete);
    world_free(w);
}

/* Whether what was unwound means the same still. */
static void test_still(void)
{
    struct world *w = world_new();
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
    world_free(w);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_rows);
    TEST_RUN(test_saved_registers);
    TEST_RUN(test_rules);
    TEST_RUN(test_lost_registers);
    TEST_RUN(test_signal);
    TEST_RUN(test_signal_ring);
    TEST_RUN(test_frame_pointer);
    TEST_RUN(test_wrong_frame_pointer);
    TEST_RUN(test_calls);
    TEST_RUN(test_scan);
    TEST_RUN(test_nowhere);
    TEST_RUN(test_cut);
    TEST_RUN(test_rest);
    TEST_RUN(test_deep);
    TEST_RUN(test_flood);
    TEST_RUN(test_chance);
    TEST_RUN(test_notes);
    TEST_RUN(test_loaded_later);
    TEST_RUN(test_still);
    CHECK(unwind_free(NULL) == NULL);
    return test_finish("test_unwind");
}
