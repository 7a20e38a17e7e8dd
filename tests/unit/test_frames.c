/*
 * python/frames and python/code on synthetic interpreters: stacks of every shape, and code objects that change.
 */
#include "base/err.h"
#include "cost.h"
#include "fake_python.h"
#include "python/code.h"
#include "python/frames.h"
#include "snapshot/successors.h"
#include "stack_reader.h"
#include "test.h"

#define ROOM ((size_t)1 << 20)

static bool has_entry_frames(const struct fake_python *p)
{
    return p->py.layout.fr_owner != NO && p->py.layout.fr_is_entry == NO;
}

/* One read, without state from another. */
static int read_fresh(const struct fake_python *p, addr_t tstate, struct frames *f)
{
    struct stack_reader reader = {0};
    int r = stack_reader_paused(&reader, f, &p->py, tstate);

    stack_reader_free(&reader);
    return r;
}

/* Outermost first: the module, then f, a generator's frame, then g, called from C. */
static void build_stack(struct fake_python *p, struct fake_thread *t, addr_t codes[4])
{
    static const char *const names[4] = {"<module>", "f", "A.gen", "A.gen.<locals>.g"};

    for (int i = 0; i < 4; i++)
        codes[i] = fake_code(p, names[i], "/srv/app/main.py", 10 * (i + 1));
    fake_entry_push(p, t);
    fake_frame_push(p, t, codes[0], 0, FAKE_PLAIN);
    fake_frame_push(p, t, codes[1], 4, FAKE_PLAIN);
    fake_frame_push(p, t, codes[2], 8, FAKE_GENERATOR);
    fake_entry_push(p, t);
    fake_frame_push(p, t, codes[3], 12, FAKE_PLAIN);
}

static void check_stack(const struct fake_python *p, const struct frames *f, const addr_t codes[4])
{
    CHECK_INT(f->n, 4);
    for (size_t i = 0; i < f->n && i < 4; i++) {
        CHECK_INT(f->items[i].code, codes[3 - i]);
        CHECK_INT(f->items[i].at, 4 * (3 - (int)i));
        if (has_entry_frames(p))
            CHECK_INT(f->items[i].is_shim_entry, i == 0 || i == 3);
        if (p->py.layout.fr_is_entry != NO)
            CHECK_INT(f->items[i].is_entry, i == 0 || i == 3);
    }
}

static void test_stack(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fake_python p;
        struct fake_thread t;
        struct frames f = {0};
        struct stack_reader reader = {0};
        addr_t codes[4];

        fake_python_init_nth(&p, i, ROOM);
        t = fake_thread_add(&p, fake_interp_add(&p), 0x1000, 1);
        CHECK_INT(stack_reader_paused(&reader, &f, &p.py, t.tstate), 0);
        CHECK_INT(f.n, 0); /* nothing runs */
        build_stack(&p, &t, codes);
        for (int again = 0; again < 3; again++) { /* the same with what was learnt */
            CHECK_INT(stack_reader_paused(&reader, &f, &p.py, t.tstate), 0);
            check_stack(&p, &f, codes);
        }
        fake_frame_push(&p, &t, codes[1], 4, FAKE_PLAIN);
        CHECK_INT(stack_reader_paused(&reader, &f, &p.py, t.tstate), 0);
        CHECK_INT(f.n, 5);
        CHECK_INT(f.n ? f.items[0].code : 0, codes[1]);
        CHECK_INT(stack_reader_paused(&reader, &f, &p.py, 0x10), ERR_READ);
        stack_reader_free(&reader);
        frames_free(&f);
        fake_python_free(&p);
    }
}

/* The read plan names memory that is unmapped, or that holds something else now. */
static void test_stale_plan(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fake_python a, b;
        struct fake_thread t, u;
        struct frames f = {0};
        struct stack_reader reader = {0};
        addr_t codes[4], code;

        fake_python_init_nth(&a, i, ROOM);
        fake_python_init_nth(&b, i, ROOM);
        t = fake_thread_add(&a, fake_interp_add(&a), 0x1000, 1);
        code = fake_code(&a, "f", "/srv/app/other.py", 1);
        fake_entry_push(&a, &t);
        for (int k = 0; k < 1000; k++)
            fake_frame_push(&a, &t, code, 0, k % 3 == 1 ? FAKE_GENERATOR : FAKE_PLAIN);
        CHECK_INT(stack_reader_paused(&reader, &f, &a.py, t.tstate), 0);
        CHECK_INT(f.n, 1000);
        fake_alloc(&b, 4096);
        u = fake_thread_add(&b, fake_interp_add(&b), 0x1000, 1);
        build_stack(&b, &u, codes);
        CHECK_INT(stack_reader_paused(&reader, &f, &b.py, u.tstate), 0);
        check_stack(&b, &f, codes);
        stack_reader_free(&reader);
        frames_free(&f);
        fake_python_free(&a);
        fake_python_free(&b);
    }
}

/* The entry frame of an earlier call from C, as its return left it on the C stack. */
static addr_t add_old_entry(struct fake_python *p)
{
    addr_t entry = fake_mem_alloc(p->mem, FAKE_C, (size_t)p->py.layout.fr_size);
    unsigned char owner = 3;

    fake_mem_put(p->mem, entry + (addr_t)p->py.layout.fr_code, p->none);
    fake_mem_put_bytes(p->mem, entry + (addr_t)p->py.layout.fr_owner, &owner, 1);
    return entry;
}

/* 3.11 and 3.12: a new _PyCFrame is current and its frame is not yet set. */
static void test_cframe_unset(void)
{
    static const int with_cframe[] = {11, 12};

    for (size_t i = 0; i < 2; i++) {
        struct fake_python p;
        struct fake_thread t;
        struct frames f = {0};
        addr_t codes[4], cframe, garbage[4];

        fake_python_init(&p, 3, with_cframe[i], ROOM);
        t = fake_thread_add(&p, fake_interp_add(&p), 0x1000, 1);
        build_stack(&p, &t, codes);
        garbage[0] = 0;
        garbage[1] = 0x1234567;
        garbage[2] = fake_alloc(&p, 128); /* zeroes */
        garbage[3] = p.py.layout.fr_is_entry == NO ? add_old_entry(&p) : 0;
        cframe = fake_mem_alloc(p.mem, FAKE_C, 24);
        fake_mem_put(p.mem, cframe + (addr_t)p.py.layout.cf_previous, t.cframe);
        fake_mem_put(p.mem, t.tstate + (addr_t)p.py.layout.ts_frame, cframe);
        for (size_t k = 0; k < 4; k++) {
            fake_mem_put(p.mem, cframe + (addr_t)p.py.layout.cf_frame, garbage[k]);
            CHECK_INT(read_fresh(&p, t.tstate, &f), 0);
            check_stack(&p, &f, codes);
        }
        /* A frame that C did not just call: it may as well be the current one of this _PyCFrame, with a stale caller. */
        fake_mem_put(p.mem, cframe + (addr_t)p.py.layout.cf_frame, t.frame);
        CHECK_INT(read_fresh(&p, t.tstate, &f), ERR_TORN);
        /* `previous` is not set yet: not the root _PyCFrame, nor is what it refers to. */
        for (int k = 0; k < 2; k++) {
            fake_mem_put(p.mem, cframe + (addr_t)p.py.layout.cf_previous, k ? garbage[2] : 0);
            fake_mem_put(p.mem, cframe + (addr_t)p.py.layout.cf_frame, 0);
            CHECK_INT(read_fresh(&p, t.tstate, &f), ERR_TORN);
        }
        frames_free(&f);
        fake_python_free(&p);
    }
}

/* A generator that is being resumed: its caller is not yet set. */
static void test_resumed_generator(void)
{
    for (size_t i = fake_version_index(3, 12); i < N_VERSIONS; i++) {
        struct fake_python p;
        struct fake_thread t;
        struct frames f = {0};
        addr_t codes[4], frame;

        fake_python_init_nth(&p, i, ROOM);
        t = fake_thread_add(&p, fake_interp_add(&p), 0x1000, 1);
        build_stack(&p, &t, codes);
        frame = fake_frame_push(&p, &t, codes[2], 0, FAKE_GENERATOR);
        fake_mem_put(p.mem, frame + (addr_t)p.py.layout.fr_back, 0);
        CHECK_INT(read_fresh(&p, t.tstate, &f), ERR_TORN);
        frames_free(&f);
        fake_python_free(&p);
    }
}

static void test_bad_frames(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fake_python p;
        struct fake_thread t;
        struct frames f = {0};
        addr_t codes[4], back, last;
        int r;

        fake_python_init_nth(&p, i, ROOM);
        t = fake_thread_add(&p, fake_interp_add(&p), 0x1000, 1);
        build_stack(&p, &t, codes);
        back = t.frame + (addr_t)p.py.layout.fr_back;
        last = fake_mem_get(p.mem, back);
        fake_mem_put(p.mem, back, 0x7f9900000000); /* nothing there */
        r = read_fresh(&p, t.tstate, &f);
        CHECK(r == ERR_READ || r == ERR_TORN);
        fake_mem_put(p.mem, back, last + 4); /* not where a frame can be */
        r = read_fresh(&p, t.tstate, &f);
        CHECK(r == ERR_READ || r == ERR_TORN);
        fake_mem_put(p.mem, back, last);
        fake_mem_put(p.mem, t.frame + (addr_t)p.py.layout.fr_code, 0); /* no code */
        r = read_fresh(&p, t.tstate, &f);
        CHECK(r == ERR_TORN || p.py.layout.cf_frame != NO);
        frames_free(&f);
        fake_python_free(&p);
    }
}

/* Cycles of length 1, 2, 3 and of the whole stack, at every depth: detected early. Of frames in the data stack, the first that
 * is out of place ends the walk; generators may be anywhere. */
static void check_cycles(bool generators)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fake_python p;
        struct fake_thread t;
        struct frames f = {0};
        addr_t frames[40], code;
        double begin = cost_seconds();

        fake_python_init_nth(&p, i, ROOM);
        t = fake_thread_add(&p, fake_interp_add(&p), 0x1000, 1);
        code = fake_code(&p, "f", "/a.py", 1);
        fake_entry_push(&p, &t);
        for (size_t k = 0; k < 40; k++)
            frames[k] = fake_frame_push(&p, &t, code, 0, k % 4 == 1 || (generators && k) ? FAKE_GENERATOR : FAKE_PLAIN);
        for (size_t from = generators; from < 40; from += 3)
            for (size_t to = from; to < 40; to += to < from + 3 ? 1 : 7) {
                addr_t back = frames[from] + (addr_t)p.py.layout.fr_back, before = fake_mem_get(p.mem, back);
                int r;

                fake_mem_put(p.mem, back, frames[to]);
                r = read_fresh(&p, t.tstate, &f);
                CHECK(r == ERR_CYCLE || (p.py.layout.cf_frame != NO && f.n == 0) ||
                      (r == ERR_TORN && !generators && p.py.layout.frame_size_kind != FRAME_SIZE_NONE));
                fake_mem_put(p.mem, back, before);
            }
        CHECK_INT(read_fresh(&p, t.tstate, &f), 0);
        CHECK_INT(f.n, 40);
        CHECK(cost_seconds() - begin < COST_MAX);
        frames_free(&f);
        fake_python_free(&p);
    }
}

static void test_cycle(void)
{
    check_cycles(false);
    check_cycles(true);
}

/* Only entry frames, each pointing to the next: no stack, but the walk must end. */
static void test_cycle_of_entries(void)
{
    for (size_t i = fake_version_index(3, 12); i < N_VERSIONS; i++) {
        struct fake_python p;
        struct fake_thread t;
        struct frames f = {0};
        addr_t first;

        fake_python_init_nth(&p, i, ROOM);
        t = fake_thread_add(&p, fake_interp_add(&p), 0x1000, 1);
        fake_entry_push(&p, &t);
        first = t.frame;
        fake_entry_push(&p, &t);
        fake_mem_put(p.mem, first + (addr_t)p.py.layout.fr_back, t.frame);
        CHECK(read_fresh(&p, t.tstate, &f) == ERR_CYCLE);
        frames_free(&f);
        fake_python_free(&p);
    }
}

/*
 * 3.11+: a frame that has just become current still has the `previous` of the frame that was in its place before. That one
 * had another caller, which is a frame of this stack as well.
 */
static void test_stale_previous(void)
{
    for (size_t i = fake_version_index(3, 11); i < N_VERSIONS; i++)
        for (int generators = 0; generators < 2; generators++) {
            struct fake_python p;
            struct fake_thread t;
            struct frames f = {0};
            struct stack_reader reader = {0};
            addr_t code, callers[40], back;

            fake_python_init_nth(&p, i, ROOM);
            t = fake_thread_add(&p, fake_interp_add(&p), 0x1000, 1);
            code = fake_code(&p, "f", "/srv/app/main.py", 10);
            back = (addr_t)p.py.layout.fr_back;
            fake_entry_push(&p, &t);
            fake_frame_push(&p, &t, code, 0, FAKE_PLAIN);
            fake_entry_push(&p, &t);
            for (size_t k = 0; k < 40; k++) {
                /* Not the outermost: a stack hardly ever ends in a generator. */
                enum fake_owner owner = generators && k % 3 == 1 ? FAKE_GENERATOR : FAKE_PLAIN;

                callers[k] = fake_frame_push(&p, &t, code, 0, owner);
                CHECK_INT(stack_reader_paused(&reader, &f, &p.py, t.tstate), 0);
                CHECK_INT(f.n, k + 2);
                for (size_t wrong = 0; wrong + 1 < k && owner == FAKE_PLAIN; wrong++) {
                    fake_mem_put(p.mem, callers[k] + back, callers[wrong]);
                    /* A generator between them does not take part. */
                    if (!generators || k - wrong > 3)
                        CHECK_INT(stack_reader_paused(&reader, &f, &p.py, t.tstate), ERR_TORN);
                }
                if (k)
                    fake_mem_put(p.mem, callers[k] + back, callers[k - 1]);
            }
            stack_reader_free(&reader);
            frames_free(&f);
            fake_python_free(&p);
        }
}

/* The same where the new frame is the first in its chunk. */
static void test_stale_previous_chunk(void)
{
    for (size_t i = fake_version_index(3, 11); i < N_VERSIONS; i++) {
        struct fake_python p;
        struct fake_thread t;
        struct frames f = {0};
        struct stack_reader reader = {0};
        addr_t code, first, last = 0, frame = 0;
        size_t n = 1;

        fake_python_init_nth(&p, i, ROOM);
        t = fake_thread_add(&p, fake_interp_add(&p), 0x1000, 1);
        code = fake_code(&p, "f", "/srv/app/main.py", 10);
        fake_entry_push(&p, &t);
        first = fake_frame_push(&p, &t, code, 0, FAKE_PLAIN);
        for (addr_t chunk = t.chunk; t.chunk == chunk; n++) {
            last = t.frame;
            frame = fake_frame_push(&p, &t, code, 0, FAKE_PLAIN);
        }
        CHECK_INT(stack_reader_paused(&reader, &f, &p.py, t.tstate), 0);
        CHECK_INT(f.n, n);
        fake_mem_put(p.mem, frame + (addr_t)p.py.layout.fr_back, first);
        CHECK_INT(stack_reader_paused(&reader, &f, &p.py, t.tstate), ERR_TORN);
        fake_mem_put(p.mem, frame + (addr_t)p.py.layout.fr_back, last);
        CHECK_INT(stack_reader_paused(&reader, &f, &p.py, t.tstate), 0);
        stack_reader_free(&reader);
        frames_free(&f);
        fake_python_free(&p);
    }
}

/* The same for a frame that a generator calls: the frame below the generator seems to be its caller. */
static void test_stale_previous_generator(void)
{
    for (size_t i = fake_version_index(3, 11); i < N_VERSIONS; i++) {
        struct fake_python p;
        struct fake_thread t;
        struct frames f = {0};
        const struct layout *l = &p.py.layout;
        addr_t code, caller, generator, called, slot;
        int top = 1;

        fake_python_init_nth(&p, i, ROOM);
        t = fake_thread_add(&p, fake_interp_add(&p), 0x1000, 1);
        code = fake_code(&p, "f", "/srv/app/main.py", 10);
        fake_entry_push(&p, &t);
        fake_frame_push(&p, &t, code, 0, FAKE_PLAIN);
        caller = fake_frame_push(&p, &t, code, 0, FAKE_PLAIN);
        slot = caller + (addr_t)l->fr_slots;
        if (l->fr_stacktop_is_pointer)
            fake_mem_put(p.mem, caller + (addr_t)l->fr_stacktop, slot + 8);
        else
            fake_mem_put_bytes(p.mem, caller + (addr_t)l->fr_stacktop, &top, sizeof(top));
        generator = fake_frame_push(&p, &t, code, 0, FAKE_GENERATOR);
        fake_mem_put(p.mem, slot, generator - (addr_t)l->ge_frame);
        called = fake_frame_push(&p, &t, code, l->minor <= 12 ? -2 : 0, FAKE_PLAIN);
        CHECK_INT(read_fresh(&p, t.tstate, &f), 0);
        CHECK_INT(f.n, 4);
        fake_mem_put(p.mem, called + (addr_t)l->fr_back, caller);
        CHECK_INT(read_fresh(&p, t.tstate, &f), ERR_TORN);
        /* The generator is suspended: the caller has called the frame itself. */
        fake_mem_put(p.mem, generator + (addr_t)l->fr_back, 0);
        CHECK_INT(read_fresh(&p, t.tstate, &f), 0);
        CHECK_INT(f.n, 3);
        frames_free(&f);
        fake_python_free(&p);
    }
}

/* 3.11+: a finalizer that runs while a frame is being freed: its own frame lies above that one, its caller below. */
static void test_finalizer(void)
{
    for (size_t i = fake_version_index(3, 11); i < N_VERSIONS; i++) {
        struct fake_python p;
        struct fake_thread t;
        struct frames f = {0};
        addr_t codes[4], caller;

        fake_python_init_nth(&p, i, ROOM);
        t = fake_thread_add(&p, fake_interp_add(&p), 0x1000, 1);
        build_stack(&p, &t, codes);
        caller = t.frame;
        fake_frame_push(&p, &t, codes[1], 0, FAKE_PLAIN);
        t.frame = caller; /* the frame that is being freed is not current any more */
        fake_thread_sync(&p, &t);
        fake_entry_push(&p, &t);
        fake_frame_push(&p, &t, codes[0], 0, FAKE_PLAIN);
        fake_frame_push(&p, &t, codes[1], 0, FAKE_PLAIN);
        CHECK_INT(read_fresh(&p, t.tstate, &f), 0);
        CHECK_INT(f.n, 6);
        frames_free(&f);
        fake_python_free(&p);
    }
}

/* Another code object, with larger frames, is at the address of one that was freed. */
static void test_frame_size_changes(void)
{
    for (size_t i = fake_version_index(3, 11); i < N_VERSIONS; i++) {
        struct fake_python p;
        struct fake_thread t, u;
        struct frames f = {0};
        addr_t code, field, interp;
        int size;

        fake_python_init_nth(&p, i, ROOM);
        interp = fake_interp_add(&p);
        t = fake_thread_add(&p, interp, 0x1000, 1);
        u = fake_thread_add(&p, interp, 0x2000, 2);
        code = fake_code(&p, "f", "/srv/app/main.py", 10);
        fake_entry_push(&p, &t);
        fake_entry_push(&p, &u);
        for (int k = 0; k < 3; k++) {
            fake_frame_push(&p, &t, code, 0, FAKE_PLAIN);
            fake_frame_push(&p, &u, code, 0, FAKE_PLAIN);
            u.top += 16;
        }
        CHECK_INT(read_fresh(&p, t.tstate, &f), 0);
        CHECK_INT(read_fresh(&p, u.tstate, &f), ERR_TORN);
        field = code + (addr_t)p.py.layout.co_firstline + (p.py.layout.frame_size_kind == FRAME_SIZE_SUM ? 4 : 8);
        size = (int)(uint32_t)fake_mem_get(p.mem, field) + 2;
        fake_mem_put_bytes(p.mem, field, &size, sizeof(size));
        CHECK_INT(read_fresh(&p, u.tstate, &f), 0);
        CHECK_INT(f.n, 3);
        CHECK_INT(read_fresh(&p, t.tstate, &f), ERR_TORN);
        frames_free(&f);
        fake_python_free(&p);
    }
}

/* 20,000 frames, in many chunks of the data stack, with generators among them. */
static void test_deep(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fake_python p;
        struct fake_thread t;
        struct frames f = {0};
        struct stack_reader reader = {0};
        addr_t codes[2];
        size_t wrong = 0;
        double begin;

        fake_python_init_nth(&p, i, 8 << 20);
        t = fake_thread_add(&p, fake_interp_add(&p), 0x1000, 1);
        codes[0] = fake_code(&p, "f", "/a.py", 1);
        codes[1] = fake_code(&p, "g", "/a.py", 1);
        fake_entry_push(&p, &t);
        for (int k = 0; k < 20000; k++)
            fake_frame_push(&p, &t, codes[k & 1], k % 60, k % 50 == 1 ? FAKE_GENERATOR : FAKE_PLAIN);
        begin = cost_seconds();
        for (int again = 0; again < 2; again++) {
            CHECK_INT(stack_reader_paused(&reader, &f, &p.py, t.tstate), 0);
            CHECK_INT(f.n, 20000);
            for (size_t k = 0; k < f.n; k++)
                wrong += f.items[k].code != codes[(f.n - 1 - k) & 1];
        }
        CHECK_INT(wrong, 0);
        if (!CHECK(cost_seconds() - begin < COST_MAX))
            fprintf(stderr, "    %d.%d: %.2f s\n", p.py.major, p.py.minor, cost_seconds() - begin);
        stack_reader_free(&reader);
        frames_free(&f);
        fake_python_free(&p);
    }
}

/* More frames than are shown, endless or nearly so: time stays bounded. */
static void test_endless(void)
{
    static const int minors[] = {8, 12, 14};

    for (size_t i = 0; i < 3; i++) {
        struct fake_python p;
        struct fake_thread t;
        struct frames f = {0};
        addr_t code;
        double begin;

        fake_python_init(&p, 3, minors[i], 64 << 20);
        t = fake_thread_add(&p, fake_interp_add(&p), 0x1000, 1);
        code = fake_code(&p, "f", "/a.py", 1);
        fake_entry_push(&p, &t);
        for (int k = 0; k < PY_MAX_FRAMES + 10; k++)
            fake_frame_push(&p, &t, code, 0, FAKE_PLAIN);
        begin = cost_seconds();
        CHECK_INT(read_fresh(&p, t.tstate, &f), ERR_TOO_DEEP);
        if (!CHECK(cost_seconds() - begin < COST_MAX))
            fprintf(stderr, "    %d.%d: %.2f s\n", p.py.major, p.py.minor, cost_seconds() - begin);
        frames_free(&f);
        fake_python_free(&p);
    }
}

/* A chunk that precedes itself, of the maximum size. */
static void test_chunk_cycle(void)
{
    for (size_t i = fake_version_index(3, 11); i < N_VERSIONS; i++) {
        struct fake_python p;
        struct fake_thread t;
        struct frames f = {0};
        addr_t codes[4], big = 0x7f4400000000;
        size_t before;
        double begin;

        fake_python_init_nth(&p, i, ROOM);
        t = fake_thread_add(&p, fake_interp_add(&p), 0x1000, 1);
        build_stack(&p, &t, codes);
        fake_mem_add(p.mem, big, 8 << 20);
        fake_mem_put(p.mem, t.chunk, big);
        fake_mem_put(p.mem, big, big);
        fake_mem_put(p.mem, big + 8, 8 << 20);
        fake_mem_put(p.mem, big + 16, ((8 << 20) - 32) / 8);
        before = cost_resident_mb();
        begin = cost_seconds();
        CHECK_INT(read_fresh(&p, t.tstate, &f), 0);
        check_stack(&p, &f, codes);
        CHECK(cost_seconds() - begin < COST_MAX);
        if (!CHECK(cost_resident_mb() - before <= 64))
            fprintf(stderr, "    3.%d: %zu MB\n", p.py.minor, cost_resident_mb() - before);
        frames_free(&f);
        fake_python_free(&p);
    }
}

/* Goes back and forth between few and many frames: those that are met again are fetched by few calls. */
static void test_successors(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fake_python p;
        struct fake_thread few, many;
        struct frames f = {0};
        struct stack_reader reader = {0};
        addr_t codes[4], code;
        uint64_t calls[3];

        fake_python_init_nth(&p, i, ROOM);
        few = fake_thread_add(&p, fake_interp_add(&p), 0x1000, 1);
        build_stack(&p, &few, codes);
        code = fake_code(&p, "deep", "/srv/app/main.py", 10);
        many = few;
        for (int k = 0; k < 500; k++)
            fake_frame_push(&p, &many, code, 4, FAKE_GENERATOR);
        for (int k = 0; k < 3; k++) {
            fake_thread_sync(&p, &few);
            CHECK_INT(stack_reader_paused(&reader, &f, &p.py, few.tstate), 0);
            check_stack(&p, &f, codes);
            fake_thread_sync(&p, &many);
            calls[k] = p.mem->calls;
            CHECK_INT(stack_reader_paused(&reader, &f, &p.py, few.tstate), 0);
            CHECK_INT(f.n, 504);
            calls[k] = p.mem->calls - calls[k];
        }
        CHECK(calls[0] > 500);
        if (!CHECK(calls[1] < 60 && calls[2] < 60))
            fprintf(stderr, "    %d.%d: %d, %d calls\n", p.py.major, p.py.minor, (int)calls[1], (int)calls[2]);
        stack_reader_free(&reader);
        frames_free(&f);
        fake_python_free(&p);
    }
}

/* Followed without end, or through what is not there any more. */
static void test_successors_bounds(void)
{
    addr_t ring[32], got[100];
    struct successors *t = NULL;

    for (size_t i = 0; i < 32; i++)
        ring[i] = 0x1000 * (i % 31 + 1);
    CHECK_INT(successors_follow(t, ring[0], got, 100), 0);
    CHECK_INT(successors_note(&t, ring, 3), 0);
    CHECK(t == NULL);
    CHECK_INT(successors_note(&t, ring, 32), 0);
    CHECK_INT(successors_follow(t, ring[0], got, 100), 100);
    CHECK_INT(got[0], ring[1]);
    CHECK_INT(got[99], ring[100 % 31]);
    CHECK_INT(successors_follow(t, 0x999000, got, 100), 0);
    free(t);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_chunk_cycle); /* first: it checks the peak memory of the process */
    TEST_RUN(test_stack);
    TEST_RUN(test_stale_plan);
    TEST_RUN(test_cframe_unset);
    TEST_RUN(test_resumed_generator);
    TEST_RUN(test_bad_frames);
    TEST_RUN(test_cycle);
    TEST_RUN(test_cycle_of_entries);
    TEST_RUN(test_stale_previous);
    TEST_RUN(test_stale_previous_chunk);
    TEST_RUN(test_stale_previous_generator);
    TEST_RUN(test_finalizer);
    TEST_RUN(test_frame_size_changes);
    TEST_RUN(test_deep);
    TEST_RUN(test_endless);
    TEST_RUN(test_successors);
    TEST_RUN(test_successors_bounds);
    return test_finish("test_frames");
}
