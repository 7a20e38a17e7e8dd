/*
 * python/frames_unpaused on synthetic interpreters: which frames are verified for a thread that runs while it is read.
 */
#include "base/clock.h"
#include "fake_python.h"
#include "python/frames.h"
#include "stack_reader.h"
#include "test.h"

#define ROOM ((size_t)1 << 20)

/* A thread in `outer`, which calls different functions. */
struct moving {
    struct fake_python p;
    struct fake_thread empty; /* not in Python */
    struct fake_thread outer; /* the stack without the innermost frame */
    addr_t tstate, code[3];   /* the module's, outer's, inner's */
    struct frames f;
    struct stack_reader reader;
    size_t sure;
    bool cut;
    addr_t inner;
    uint64_t at_call; /* then the thread continues: */
    enum { TO_ANOTHER, TO_ANOTHER_THERE, BACK, OUT_OF_PYTHON, N_WAYS } way;
};

static void moving_init(struct moving *m, size_t version)
{
    static const char *const names[] = {"<module>", "outer", "inner"};

    *m = (struct moving){0};
    fake_python_init_nth(&m->p, version, ROOM);
    m->outer = fake_thread_add(&m->p, fake_interp_add(&m->p), 0x1000, 1);
    m->tstate = m->outer.tstate;
    m->empty = m->outer;
    for (int i = 0; i < 3; i++)
        m->code[i] = fake_code(&m->p, names[i], "/srv/app/main.py", 10);
    fake_entry_push(&m->p, &m->outer);
    fake_frame_push(&m->p, &m->outer, m->code[0], 0, FAKE_PLAIN);
    fake_frame_push(&m->p, &m->outer, m->code[1], 4, FAKE_PLAIN);
}

static void moving_free(struct moving *m)
{
    stack_reader_free(&m->reader);
    frames_free(&m->f);
    fake_python_free(&m->p);
}

/* The innermost frame is a new one, at an address where none was before. */
static addr_t moving_call(struct moving *m)
{
    struct fake_thread t = m->outer;

    m->inner = fake_frame_push(&m->p, &t, m->code[2], 8, FAKE_GENERATOR);
    return m->inner;
}

static void go_on(void *arg, uint64_t call)
{
    struct moving *m = arg;

    if (call != m->at_call)
        return;
    switch (m->way) {
    case TO_ANOTHER:
        moving_call(m);
        break;
    case TO_ANOTHER_THERE:
        fake_mem_put(m->p.mem, m->inner + (addr_t)m->p.py.layout.fr_code, m->code[1]);
        break;
    case BACK:
        fake_thread_sync(&m->p, &m->outer);
        break;
    default:
        fake_thread_sync(&m->p, &m->empty);
    }
}

static int moving_read(struct moving *m)
{
    m->reader.state.usual_ns = 1000 * NS_PER_S; /* a test may be interrupted */
    return stack_reader_unpaused(&m->reader, &m->f, &m->p.py, m->tstate, &m->sure, &m->cut);
}

static void check_whole(const struct moving *m)
{
    CHECK_INT(m->f.n, 3);
    CHECK_INT(m->sure, 3);
    CHECK_INT(m->cut, false);
    for (size_t i = 0; i < m->f.n && i < 3; i++)
        CHECK_INT(m->f.items[i].code, m->code[2 - i]);
}

/* The thread calls another function at each sample, but does not move during the read: all frames are verified. */
static void test_new_addresses(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct moving m;

        moving_init(&m, i);
        for (int k = 0; k < 10; k++) {
            moving_call(&m);
            CHECK_INT(moving_read(&m), 0);
            check_whole(&m);
        }
        moving_free(&m);
    }
}

/* 3.11 and 3.12: a _PyCFrame that is not set yet leads into the data stack, once. Its frames are verified as before. */
static void test_torn_cframe(void)
{
    static const int with_cframe[] = {11, 12};

    for (size_t i = 0; i < 2; i++) {
        struct moving m;
        addr_t field, before;

        moving_init(&m, fake_version_index(3, with_cframe[i]));
        fake_frame_push(&m.p, &m.outer, m.code[2], 8, FAKE_PLAIN);
        for (int k = 0; k < 2; k++) {
            CHECK_INT(moving_read(&m), 0);
            check_whole(&m);
        }
        field = m.outer.cframe + (addr_t)m.p.py.layout.cf_previous;
        before = fake_mem_get(m.p.mem, field);
        fake_mem_put(m.p.mem, field, m.outer.chunk + 64);
        moving_read(&m);
        fake_mem_put(m.p.mem, field, before);
        for (int k = 0; k < 2; k++) {
            CHECK_INT(moving_read(&m), 0);
            check_whole(&m);
        }
        moving_free(&m);
    }
}

/* A few calls in turn: all but the last are where they were, and one read is enough. */
static void test_alternating_calls(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fake_thread turns[3];
        struct moving m;

        moving_init(&m, i);
        for (int k = 0; k < 3; k++) {
            turns[k] = m.outer;
            fake_frame_push(&m.p, &turns[k], m.code[2], 8, FAKE_GENERATOR);
        }
        for (int k = 0; k < 12; k++) {
            uint64_t calls;

            fake_thread_sync(&m.p, &turns[k % 3]);
            calls = m.p.mem->calls;
            CHECK_INT(moving_read(&m), 0);
            check_whole(&m);
            if (k >= 3)
                CHECK_INT(m.p.mem->calls - calls, 1);
        }
        moving_free(&m);
    }
}

/* The thread continues after our first read: its new frames differ, and only the callers are verified. */
static void test_thread_continues(void)
{
    for (size_t i = 0; i < N_VERSIONS * N_WAYS; i++) {
        struct moving m;

        moving_init(&m, i / N_WAYS);
        m.way = i % N_WAYS;
        moving_call(&m);
        CHECK_INT(moving_read(&m), 0);
        moving_call(&m);
        m.at_call = m.p.mem->calls + 3; /* all; the new one; all again */
        m.p.mem->on_call = go_on;
        m.p.mem->on_call_arg = &m;
        CHECK_INT(moving_read(&m), 0);
        if (m.way != OUT_OF_PYTHON)
            CHECK_INT(m.sure, 2);
        CHECK_INT(m.cut || m.sure < m.f.n || (m.way == OUT_OF_PYTHON && !m.f.n), true);
        moving_free(&m);
    }
}

static void wait_a_while(void *arg, uint64_t call)
{
    uint64_t end = clock_now_ns() + 4 * NS_PER_MS;
    const struct moving *m = arg;

    while (call <= m->at_call && clock_now_ns() < end)
        ;
}

/* We were interrupted during a read: it is retried. If that never succeeds, the innermost frames are not verified. */
static void test_interrupted(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct moving m;

        moving_init(&m, i);
        moving_call(&m);
        CHECK_INT(moving_read(&m), 0);
        m.p.mem->on_call = wait_a_while;
        m.p.mem->on_call_arg = &m;
        m.at_call = m.p.mem->calls + 1;
        m.reader.state.usual_ns = 400 * NS_PER_US;
        CHECK_INT(stack_reader_unpaused(&m.reader, &m.f, &m.p.py, m.tstate, &m.sure, &m.cut), 0);
        CHECK_INT(m.p.mem->calls > m.at_call, true);
        check_whole(&m);
        m.at_call = UINT64_MAX;
        m.reader.state.usual_ns = 1 * NS_PER_US;
        CHECK_INT(stack_reader_unpaused(&m.reader, &m.f, &m.p.py, m.tstate, &m.sure, &m.cut), 0);
        CHECK_INT(m.cut, true);
        moving_free(&m);
    }
}

static void put_state(struct moving *m, addr_t frame, bool executing)
{
    const struct layout *l = &m->p.py.layout;

    if (l->fr_state != NO)
        fake_mem_put_bytes(m->p.mem, frame + (addr_t)l->fr_state, executing == (l->fr_executing >> 1 & 1) ? "\1" : "",
                           1);
}

/* A frame that has returned, or a generator that has yielded, has no caller. It is not taken for an outermost frame,
 * however often it is seen, and what is known of the rest counts. 2.7 cannot tell. */
static void test_without_root(void)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct moving m;
        addr_t frame;

        moving_init(&m, i);
        frame = moving_call(&m);
        CHECK_INT(moving_read(&m), 0);
        check_whole(&m);
        put_state(&m, frame, false);
        frame = moving_call(&m);
        fake_mem_put(m.p.mem, frame + (addr_t)m.p.py.layout.fr_back, 0);
        put_state(&m, frame, false);
        for (int k = 0; i > 0 && k < 5; k++) {
            CHECK_INT(moving_read(&m), 0);
            CHECK_INT(m.cut, true);
            CHECK_INT(m.sure, 2);
            CHECK_INT(m.f.n, 2);
            CHECK_INT(m.f.n ? m.f.items[m.f.n - 1].code : 0, m.code[0]);
        }
        if (i == 0) {
            CHECK_INT(moving_read(&m), 0); /* seen twice, it is accepted, but nothing of the last stack is added */
            CHECK_INT(m.f.n, 1);
        }
        moving_free(&m);
    }
}

int main(void)
{
    TEST_RUN(test_new_addresses);
    TEST_RUN(test_torn_cframe);
    TEST_RUN(test_alternating_calls);
    TEST_RUN(test_thread_continues);
    TEST_RUN(test_interrupted);
    TEST_RUN(test_without_root);
    return test_finish("test_frames_unpaused");
}
