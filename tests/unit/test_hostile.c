/*
 * A hostile target. A synthetic process of each version is damaged, word by word and at random, and read completely
 * each time: the read must end cleanly, within a second and 64 MB, whatever it finds.
 */
#include "base/err.h"
#include "cost.h"
#include "fake_elf.h"
#include "fake_python.h"
#include "python/code.h"
#include "python/debug_offsets.h"
#include "python/detect.h"
#include "python/frames.h"
#include "python/gil.h"
#include "python/names.h"
#include "python/threads.h"
#include "stack_reader.h"
#include "test.h"

#include <unistd.h>

#define ROOM        ((size_t)192 * 1024)
#define N_THREADS   4
#define MAX_THREADS 16 /* of those in a damaged list, read at most this many */
#define RANDOM_RUNS 4000

struct hostile {
    struct fake_python p;
    struct fake_thread threads[N_THREADS];
    addr_t codes[3];
    /* The reader's state, kept between reads, as a sampler does. */
    struct frames frames;
    struct stack_reader readers[MAX_THREADS];
    struct code_cache *cache;
    struct py_threads list;
    struct thread_names names;
    uint64_t runs, random;
    double longest;
    size_t stacks; /* read without an error */
};

static void build(struct hostile *h, int major, int minor)
{
    static const char *const names[] = {"MainThread", "worker-1", "worker-2"};
    struct fake_python *p = &h->p;
    uint64_t ids[N_THREADS];
    addr_t interp[2];

    *h = (struct hostile){.random = 0x9e3779b97f4a7c15ull, .cache = code_cache_new(true)};
    fake_python_init(p, major, minor, ROOM);
    interp[0] = fake_interp_add(p);
    interp[1] = fake_interp_add(p);
    h->codes[0] = fake_code(p, "<module>", "/srv/app/main.py", 1);
    h->codes[1] = fake_code(p, "handle", "/srv/app/server.py", 40);
    h->codes[2] = fake_code(p, "Worker.stream", "/srv/app/worker.py", 7);
    for (int i = 0; i < N_THREADS; i++) {
        ids[i] = fake_pthread(p, 100 + i);
        h->threads[i] = fake_thread_add(p, interp[i == 3], ids[i], 100u + (unsigned int)i);
        fake_entry_push(p, &h->threads[i]);
        for (int k = 0; k < 3; k++)
            fake_frame_push(p, &h->threads[i], h->codes[k], 4 * k, k == 1 ? FAKE_GENERATOR : FAKE_PLAIN);
        fake_entry_push(p, &h->threads[i]);
        fake_frame_push(p, &h->threads[i], h->codes[1], 8, FAKE_PLAIN);
    }
    fake_threading(p, interp[0], ids, names, 3);
    fake_gil_take(p, &h->threads[0], true);
}

static void reader_reset(struct hostile *h)
{
    for (size_t i = 0; i < MAX_THREADS; i++)
        stack_reader_free(&h->readers[i]);
    frames_free(&h->frames);
    code_cache_free(h->cache);
    h->cache = code_cache_new(true);
    threads_free(&h->list);
    free(h->names.items);
    h->names = (struct thread_names){0};
}

static void destroy(struct hostile *h)
{
    reader_reset(h);
    code_cache_free(h->cache);
    fake_python_free(&h->p);
}

static uint64_t random_next(struct hostile *h)
{
    h->random ^= h->random << 13;
    h->random ^= h->random >> 7;
    h->random ^= h->random << 17;
    return h->random;
}

/* Names and lines of the frames that were just read. */
static void read_codes(struct hostile *h, const struct python *py)
{
    static const struct code *codes[PY_MAX_FRAMES];
    static addr_t addrs[PY_MAX_FRAMES];
    size_t n = h->frames.n;

    for (size_t i = 0; i < n; i++)
        addrs[i] = h->frames.items[i].code;
    code_cache_round(h->cache, false);
    if (code_cache_get(h->cache, py, addrs, n, codes) == ERR_NOMEM)
        test_now.failed++;
    for (size_t i = 0; i < n; i++)
        if (codes[i])
            test_now.failed += code_line(codes[i], h->frames.items[i].at) < 0 ||
                               strlen(codes[i]->name) > 5 * PY_MAX_NAME || strlen(codes[i]->filename) > 5 * PY_MAX_NAME;
    h->stacks++;
}

static void read_threads(struct hostile *h, const struct python *py)
{
    static const pid_t tids[] = {100, 101, 102, 103};
    addr_t last = 0;

    if (threads_read(py, &h->list) < 0)
        return;
    threads_heads_same(py, &h->list);
    if (py->layout.ts_native_id == NO)
        threads_find_tid_offset(py, &h->list, tids, 4);
    h->names.n = 0;
    for (size_t i = 0; i < h->list.n && i < MAX_THREADS; i++) {
        const struct py_thread *t = &h->list.items[i];
        struct gil_locks locks;
        size_t sure;
        bool cut;

        if (t->interp != last)
            names_read(py, t->interp, &h->names);
        last = t->interp;
        threads_gil_holder(py, t->interp);
        if (gil_find(py, t->interp, &locks))
            gil_has_futex(py, &locks, locks.cond + 1024, locks.cond);
        if (h->runs % 3 == 0 && stack_reader_unpaused(&h->readers[i], &h->frames, py, t->tstate, &sure, &cut) == 0 &&
            sure < h->frames.n)
            frames_keep_outermost(&h->frames, sure);
        if (stack_reader_paused(&h->readers[i], &h->frames, py, t->tstate) == 0)
            read_codes(h, py);
    }
    if (h->names.n)
        names_sort(&h->names);
    names_find(&h->names, last, 1);
}

/* One complete read. With `find` it begins with the search for the interpreter. */
static void read_all(struct hostile *h, bool find)
{
    struct python found = h->p.py;
    struct err_note note = {0};
    double begin = cost_seconds(), took;

    if (++h->runs % 64 == 0)
        reader_reset(h);
    if (!find ||
        detect_python(&(struct files){.pid = getpid()}, &h->p.mem->mem, &h->p.maps, h->p.py.names, &found, &note) == 0)
        read_threads(h, &found);
    took = cost_seconds() - begin;
    h->longest = took > h->longest ? took : h->longest;
}

/* Undamaged, everything is found: otherwise the damage below would test nothing. */
static void check_whole(struct hostile *h)
{
    h->stacks = 0;
    read_all(h, true);
    CHECK_INT(h->list.n, N_THREADS);
    CHECK_INT(h->stacks, N_THREADS);
    CHECK_INT(h->names.n, 3);
}

static void with_word(struct hostile *h, addr_t at, uint64_t value, bool find)
{
    uint64_t before = fake_mem_get(h->p.mem, at);

    if (before == value)
        return;
    fake_mem_put(h->p.mem, at, value);
    read_all(h, find);
    fake_mem_put(h->p.mem, at, before);
}

/* Damages every word that a read uses, one by one. */
static void damage_words(struct hostile *h)
{
    struct fake_mem *m = h->p.mem;

    reader_reset(h);
    m->watch = true;
    check_whole(h);
    m->watch = false;
    for (size_t i = 0; i < m->n; i++) {
        struct fake_region *r = &m->regions[i];
        size_t words = r->len / 8;

        /* The search also reads meaningless bytes of an image's data; they are skipped. */
        for (size_t w = 0; w < words; w++) {
            addr_t at = r->start + 8 * w;
            const uint64_t values[] = {0,  UINT64_MAX,          1ull << 31,           1ull << 63,
                                       at, h->threads[2].frame, h->threads[1].tstate, h->codes[2]};
            bool find = r->start == FAKE_IMAGE;

            if (!r->seen[w] || (find && fake_mem_get(m, at) == 0))
                continue;
            for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++)
                with_word(h, at, values[k], find);
        }
    }
    check_whole(h);
}

static addr_t random_place(struct hostile *h)
{
    const struct fake_mem *m = h->p.mem;
    const struct fake_region *r = &m->regions[random_next(h) % m->n];
    size_t used = r->used ? r->used : r->len;

    return r->start + random_next(h) % (used / 8) * 8;
}

static uint64_t random_value(struct hostile *h)
{
    switch (random_next(h) % 8) {
    case 0:
        return 0;
    case 1:
        return random_next(h);
    case 2:
        return random_next(h) % 4096;
    case 3:
        return 1ull << random_next(h) % 64;
    case 4:
        return (1ull << random_next(h) % 64) - 1;
    case 5:
        return random_place(h) + random_next(h) % 16;
    case 6:
        return random_place(h) & ~4095ull;
    default:
        return random_place(h);
    }
}

/* Several words at once, at random. */
static void damage_at_random(struct hostile *h)
{
    for (int run = 0; run < RANDOM_RUNS; run++) {
        addr_t at[8];
        uint64_t before[8];
        size_t n = random_next(h) % 8 + 1;

        for (size_t i = 0; i < n; i++) {
            at[i] = random_place(h);
            before[i] = fake_mem_get(h->p.mem, at[i]);
            fake_mem_put(h->p.mem, at[i], random_value(h));
        }
        read_all(h, run % 4 == 0);
        for (size_t i = n; i > 0; i--)
            fake_mem_put(h->p.mem, at[i - 1], before[i - 1]);
    }
    check_whole(h);
}

/* The debug offsets: every number at every boundary value, alone and with others. */
static void damage_offsets(struct hostile *h)
{
    static const uint64_t edges[] = {0,   1,   4,   7,   8,    15,   16,   56,   60,   63,   64,   255,     256,    500,
                                     504, 508, 511, 512, 1008, 1015, 1016, 1020, 1023, 1024, 4096, 4194304, 4194305};
    const size_t n_edges = sizeof(edges) / sizeof(edges[0]);
    size_t column = (size_t)(h->p.py.minor - DEBUG_OFFSETS_FIRST_MINOR), n_told = 0;
    const struct debug_offset *told;

    if (h->p.py.major < 3 || h->p.py.minor < DEBUG_OFFSETS_FIRST_MINOR)
        return;
    for (; (told = debug_offset_nth(n_told)); n_told++)
        for (size_t k = 0; told->at[column] && k < n_edges; k++)
            with_word(h, h->p.runtime + told->at[column], edges[k], true);
    for (int run = 0; run < RANDOM_RUNS; run++) {
        unsigned char before[DEBUG_OFFSETS_BYTES];

        memcpy(before, fake_mem_at(h->p.mem, h->p.runtime, sizeof(before)), sizeof(before));
        for (size_t i = 0, n = random_next(h) % 4 + 2; i < n; i++) {
            told = debug_offset_nth(random_next(h) % n_told);
            if (told->at[column])
                fake_mem_put(h->p.mem, h->p.runtime + told->at[column], edges[random_next(h) % n_edges]);
        }
        read_all(h, true);
        fake_mem_put_bytes(h->p.mem, h->p.runtime, before, sizeof(before));
    }
    check_whole(h);
}

/* Returns the number of reads. */
static uint64_t test_version(int major, int minor)
{
    static struct hostile h;
    size_t before = cost_resident_mb();
    uint64_t runs;

    build(&h, major, minor);
    check_whole(&h);
    damage_words(&h);
    damage_at_random(&h);
    damage_offsets(&h);
    if (!CHECK(h.longest < COST_MAX) || !CHECK(cost_resident_mb() - before <= 64) || getenv("VERBOSE"))
        fprintf(stderr, "%d.%d: %" PRIu64 " readings, the longest %.3f s, %zu MB more\n", major, minor, h.runs,
                h.longest, cost_resident_mb() - before);
    runs = h.runs;
    destroy(&h);
    return runs;
}

static void test_hostile(void)
{
    uint64_t runs = 0;

    for (size_t i = 0; i < N_VERSIONS; i++)
        runs += test_version(fake_versions[i].major, fake_versions[i].minor);
    CHECK(runs >= 10000);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_hostile);
    return test_finish("test_hostile");
}
