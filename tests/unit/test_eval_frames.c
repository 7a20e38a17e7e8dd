/*
 * Which native frame runs which Python frame, up to 3.10: synthetic C stacks whose evaluation loops contain the
 * addresses of their Python frames, with and without names, complete and truncated.
 */
#include "sample/eval_frames.h"
#include "test.h"

#define STACK      0x7ffc0000ull
#define WORDS      16 /* words per native frame; the last five are the return address and saved registers */
#define MAX        32
#define PYTHON     0x400000ull
#define LOOP       0x401000ull
#define COLD       0x400100ull
#define CREATOR    0x405000ull
#define FRAME(n)   (0x55550000ull + 0x200 * (addr_t)(n))
#define AT_REG(k)  (-16 - 8 * (int32_t)(k))
#define SAVED_REGS 4

enum kind { IS_OTHER, IS_LOOP, IS_COLD, IS_CREATOR, IS_SMALL, IS_LIBRARY };

struct fake {
    struct native native;
    struct native_frame items[MAX];
    struct pc_entry places[MAX];
    struct module python, library;
    uint64_t words[MAX * WORDS];
    struct frames frames;
    struct py_frame py[MAX];
    struct eval_frames loops;
    size_t at[MAX];
    bool named;
};

static struct native_chain *chain_new(bool is_eval)
{
    struct native_chain *c = calloc(1, sizeof(*c) + sizeof(c->items[0]));

    c->n = 1;
    c->items[0].is_eval = is_eval;
    return c;
}

static struct fake *fake_new(bool named)
{
    struct fake *f = calloc(1, sizeof(*f));

    f->named = named;
    f->python.start = f->native.names.interpreter = PYTHON;
    f->library.start = 0x900000;
    f->native.stack.items = f->items;
    f->native.stack.complete = true;
    f->frames.items = f->py;
    return f;
}

static void fake_free(struct fake *f)
{
    for (size_t i = 0; i < f->native.stack.n; i++)
        free((void *)f->places[i].user);
    eval_frames_free(&f->loops);
    free(f);
}

static addr_t function_of(enum kind kind)
{
    static const addr_t functions[] = {PYTHON + 0x9000, LOOP, COLD, CREATOR, PYTHON + 0x9800, 0x901000};

    return functions[kind];
}

/* Adds the next native frame outwards. `holds` is the value in its part of the stack. */
static size_t add(struct fake *f, enum kind kind, addr_t holds)
{
    size_t i = f->native.stack.n++;
    struct pc_entry *p = &f->places[i];
    struct native_frame *nf = &f->items[i];

    nf->pc_entry = p;
    nf->sp = STACK + 8 * WORDS * i;
    nf->cfa = nf->sp + 8 * WORDS;
    nf->known = (1u << CPU_CALLEE_SAVED) - 1;
    p->module = kind == IS_LIBRARY ? &f->library : &f->python;
    p->has_row = true;
    p->row.function = function_of(kind);
    p->row.regs[CFI_RA] = (struct cfi_rule){.kind = CFI_OFFSET, .value = -8};
    for (size_t k = 0; kind != IS_SMALL && k < SAVED_REGS; k++)
        p->row.regs[cpu_callee_saved_reg(k)] = (struct cfi_rule){.kind = CFI_OFFSET, .value = AT_REG(k)};
    p->user = chain_new(kind == IS_LOOP && f->named);
    f->words[i * WORDS + 3] = holds;
    f->native.copy = (struct stack_copy){.addr = STACK, .bytes = (unsigned char *)f->words, .len = 8 * WORDS * (i + 1)};
    return i;
}

/* What frame `i` saved of its caller's register `k`, and so the caller's value of it. */
static void save(struct fake *f, size_t i, size_t k, addr_t value)
{
    f->words[i * WORDS + WORDS - 2 - k] = value;
    f->items[i + 1].saved[k] = value;
}

static void place(struct fake *f, size_t n)
{
    f->frames.n = n;
    for (size_t i = 0; i < n; i++)
        f->py[i].addr = FRAME(i);
    CHECK_INT(eval_frames_match(&f->loops, &f->native, &f->frames, f->at), 0);
}

#define CHECK_PLACE(f, g, want) CHECK_INT((int64_t)(f)->at[g], (int64_t)(want))

static void test_straight(void)
{
    struct fake *f = fake_new(true);

    add(f, IS_LIBRARY, 0);
    add(f, IS_LOOP, FRAME(0));
    add(f, IS_CREATOR, FRAME(0));
    add(f, IS_LOOP, FRAME(1));
    add(f, IS_CREATOR, FRAME(1));
    add(f, IS_OTHER, 0);
    place(f, 2);
    CHECK_PLACE(f, 0, 1);
    CHECK_PLACE(f, 1, 3);
    fake_free(f);
}

/* The loop has its Python frame in a register, which its callee saved: the callee is not taken for the loop. */
static void test_in_register(void)
{
    for (int named = 0; named < 2; named++) {
        struct fake *f = fake_new(named);

        add(f, IS_OTHER, 0);
        add(f, IS_LOOP, 0);
        add(f, IS_OTHER, 0);
        add(f, IS_LOOP, 0);
        save(f, 0, 1, FRAME(0));
        save(f, 2, 2, FRAME(1));
        place(f, 2);
        CHECK_PLACE(f, 0, 1);
        CHECK_PLACE(f, 1, 3);
        fake_free(f);
    }
}

/* A register that a small function has not saved has its caller's value. */
static void test_register_of_caller(void)
{
    struct fake *f = fake_new(false);

    add(f, IS_SMALL, 0);
    add(f, IS_LOOP, FRAME(0));
    f->items[0].saved[0] = f->items[1].saved[0] = FRAME(0);
    place(f, 1);
    CHECK_PLACE(f, 0, 1);
    fake_free(f);
}

/* Without names: the loop's caller holds all frames too. The inner one is the loop. */
static void test_no_names(void)
{
    struct fake *f = fake_new(false);

    add(f, IS_OTHER, 0);
    for (size_t i = 0; i < 4; i++) {
        add(f, IS_LOOP, FRAME(i));
        add(f, IS_CREATOR, FRAME(i));
        add(f, IS_OTHER, 0);
    }
    place(f, 4);
    for (size_t i = 0; i < 4; i++)
        CHECK_PLACE(f, i, 1 + 3 * i);
    fake_free(f);
}

/* A loop that was just entered has no Python frame in the list yet. */
static void test_new_loop(void)
{
    struct fake *f = fake_new(true);

    add(f, IS_LOOP, FRAME(9));
    add(f, IS_LOOP, FRAME(0));
    add(f, IS_LOOP, FRAME(1));
    place(f, 2);
    CHECK_PLACE(f, 0, 1);
    CHECK_PLACE(f, 1, 2);
    fake_free(f);
}

/* Below a coroutine's C stack is the stack that was switched away from, whose Python frames are not in the list. */
static void test_coroutine_stack(void)
{
    struct fake *f = fake_new(true);

    add(f, IS_LOOP, FRAME(0));
    add(f, IS_LOOP, FRAME(1));
    add(f, IS_LIBRARY, 0);
    add(f, IS_LOOP, FRAME(20));
    add(f, IS_LOOP, FRAME(21));
    place(f, 2);
    CHECK_PLACE(f, 0, 0);
    CHECK_PLACE(f, 1, 1);
    fake_free(f);
}

/* A frame that C code pushed has no loop. */
static void test_frame_pushed_by_c(void)
{
    struct fake *f = fake_new(true);

    add(f, IS_LOOP, FRAME(0));
    add(f, IS_OTHER, 0);
    add(f, IS_LOOP, FRAME(2));
    place(f, 3);
    CHECK_PLACE(f, 0, 0);
    CHECK_PLACE(f, 1, EVAL_FRAMES_NONE);
    CHECK_PLACE(f, 2, 2);
    fake_free(f);
}

/* The .cold part of the loop has no name, but the loop's shape. Its caller holds the frame too. */
static void test_cold_part(void)
{
    struct fake *f = fake_new(true);

    add(f, IS_LIBRARY, 0);
    add(f, IS_LOOP, FRAME(0));
    add(f, IS_SMALL, FRAME(1));
    add(f, IS_COLD, FRAME(1));
    add(f, IS_CREATOR, FRAME(1));
    add(f, IS_LOOP, FRAME(2));
    place(f, 3);
    CHECK_PLACE(f, 0, 1);
    CHECK_PLACE(f, 1, 3);
    CHECK_PLACE(f, 2, 5);
    fake_free(f);
}

/* Unwinding did not reach the outer loops. */
static void test_truncated(void)
{
    struct fake *f = fake_new(true);

    f->native.stack.complete = false;
    add(f, IS_LOOP, FRAME(0));
    add(f, IS_LOOP, FRAME(1));
    place(f, 5);
    CHECK_PLACE(f, 0, 0);
    CHECK_PLACE(f, 1, 1);
    for (size_t i = 2; i < 5; i++)
        CHECK_PLACE(f, i, EVAL_FRAMES_NONE);
    fake_free(f);
}

/* No loop holds the expected frame: the loops are matched by count. */
static void test_matched_by_count(void)
{
    struct fake *f = fake_new(true);

    for (size_t i = 0; i < 3; i++)
        add(f, IS_LOOP, 0);
    place(f, 2);
    CHECK_PLACE(f, 0, 1);
    CHECK_PLACE(f, 1, 2);
    f->native.stack.complete = false;
    place(f, 2);
    CHECK_PLACE(f, 0, 0);
    CHECK_PLACE(f, 1, 1);
    fake_free(f);
}

/* Of a sleeping thread, the registers are not known in the innermost frames. */
static void test_unknown_register(void)
{
    struct fake *f = fake_new(true);

    add(f, IS_LIBRARY, 0);
    add(f, IS_LOOP, 0);
    add(f, IS_LOOP, FRAME(1));
    CHECK(!eval_frames_lack_registers(&f->native));
    f->items[0].known = f->items[1].known = 1;
    CHECK(eval_frames_lack_registers(&f->native));
    place(f, 2);
    CHECK_PLACE(f, 0, 1);
    CHECK_PLACE(f, 1, 2);
    place(f, 3); /* the third has no loop, and the first one that a loop may hold is the one next to it */
    CHECK_PLACE(f, 0, 1);
    CHECK_PLACE(f, 1, 2);
    CHECK_PLACE(f, 2, EVAL_FRAMES_NONE);
    fake_free(f);
}

static void test_nothing(void)
{
    struct fake *f = fake_new(false);

    place(f, 0);
    place(f, 3);
    CHECK_PLACE(f, 0, EVAL_FRAMES_NONE);
    add(f, IS_LIBRARY, FRAME(0));
    add(f, IS_OTHER, 0);
    place(f, 3);
    for (size_t i = 0; i < 3; i++)
        CHECK_PLACE(f, i, EVAL_FRAMES_NONE);
    fake_free(f);
}

/* Invalid bounds, as from a damaged stack: nothing outside of the copy is read. */
static void test_odd_bounds(void)
{
    struct fake *f = fake_new(true);

    add(f, IS_LOOP, FRAME(0));
    add(f, IS_LOOP, FRAME(1));
    f->items[0].sp = 3;
    f->items[0].cfa = UINT64_MAX - 2;
    f->items[1].sp = UINT64_MAX - 6;
    f->items[1].cfa = 5;
    place(f, 2);
    CHECK_PLACE(f, 0, 0); /* matched by count */
    CHECK_PLACE(f, 1, 1);
    fake_free(f);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_straight);
    TEST_RUN(test_in_register);
    TEST_RUN(test_register_of_caller);
    TEST_RUN(test_no_names);
    TEST_RUN(test_new_loop);
    TEST_RUN(test_coroutine_stack);
    TEST_RUN(test_frame_pushed_by_c);
    TEST_RUN(test_cold_part);
    TEST_RUN(test_truncated);
    TEST_RUN(test_matched_by_count);
    TEST_RUN(test_unknown_register);
    TEST_RUN(test_nothing);
    TEST_RUN(test_odd_bounds);
    return test_finish("test_eval_frames");
}
