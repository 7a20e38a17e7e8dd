/*
 * Which native frame runs which Python frame, up to 3.10: made-up C stacks whose loops have the addresses of their frames,
 * with names and without, whole and cut off.
 */
#include "sample/eval_frames.h"
#include "test.h"

#define STACK      0x7ffc0000ull
#define WORDS      16 /* of each native frame; the last five are the return address and saved registers */
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

/* The next native frame outwards. `holds` is what it keeps: in its part of the stack. */
static size_t add(struct fake *f, enum kind kind, addr_t holds)
{
    size_t i = f->native.stack.n++;
    struct pc_entry *p = &f->places[i];
    struct native_frame *nf = &f->items[i];

    nf->pc_entry = p;
    nf->sp = STACK + 8 * WORDS * i;
    nf->cfa = nf->sp + 8 * WORDS;
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

/* What frame `i` saved of its caller's register `k`, and so what the caller has there. */
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

/* The loop has its frame in a register, which what it called has saved: that one does not hold it for that. */
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

/* What a small function has not saved is its caller's. */
static void test_not_own(void)
{
    struct fake *f = fake_new(false);

    add(f, IS_SMALL, 0);
    add(f, IS_LOOP, FRAME(0));
    f->items[0].saved[0] = f->items[1].saved[0] = FRAME(0);
    place(f, 1);
    CHECK_PLACE(f, 0, 1);
    fake_free(f);
}

/* Without a name the one that calls the loop has all frames, too: the inner one is the loop. */
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

/* One that was just entered has no frame in the list yet. */
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

/* Below a coroutine's C stack is that of the one that was switched away from, whose frames are not in the list. */
static void test_other_below(void)
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

/* C code pushed a frame of its own: it has no loop. */
static void test_pushed(void)
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

/* The part of the loop that lies apart has no name, but the loop's shape; who calls it has the frame, too. */
static void test_apart(void)
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

/* The outer loops could not be reached. */
static void test_cut_off(void)
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

/* No loop has what it should: their number is all there is. */
static void test_counted(void)
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

/* Bounds that are wrong, as those of a damaged stack: nothing outside of the copy is looked at. */
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
    CHECK_PLACE(f, 0, 0); /* by their number */
    CHECK_PLACE(f, 1, 1);
    fake_free(f);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_straight);
    TEST_RUN(test_in_register);
    TEST_RUN(test_not_own);
    TEST_RUN(test_no_names);
    TEST_RUN(test_new_loop);
    TEST_RUN(test_other_below);
    TEST_RUN(test_pushed);
    TEST_RUN(test_apart);
    TEST_RUN(test_cut_off);
    TEST_RUN(test_counted);
    TEST_RUN(test_nothing);
    TEST_RUN(test_odd_bounds);
    return test_finish("test_eval_frames");
}
