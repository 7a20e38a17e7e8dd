/*
 * python/tasks.c, task_lists.c, task_waits.c and coroutines.c on synthetic memory of every version: tasks as they should be, endless
 * chains and lists, and random damage. The live tests compare with real interpreters.
 */
#include "base/err.h"
#include "fake_python.h"
#include "python/tasks.h"
#include "test.h"

#define HEAP_TYPE (1ull << 9)
#define TYPE_SIZE 1024
#define ROUNDS    300
#define N_TASKS   4

struct fixture {
    struct fake_python p;
    struct tasks *tasks;
    struct code_cache *codes;
    addr_t type, coroutine, iterator, future, task, set, none_type, function, method, lock, dict;
    addr_t context, runner, trio_task; /* of trio */
    addr_t interp, loop, table, heap_from;
    struct fake_thread thread;
    addr_t made[N_TASKS], coros[N_TASKS][3], futures[N_TASKS];
};

static void put(struct fixture *w, addr_t at, int offset, uint64_t value)
{
    fake_mem_put(w->p.mem, at + (addr_t)offset, value);
}

static addr_t make_type(struct fixture *w, const char *name)
{
    const struct layout *l = &w->p.py.layout;
    addr_t t = fake_alloc(&w->p, TYPE_SIZE), text = fake_alloc(&w->p, strlen(name) + 1);

    fake_mem_put_bytes(w->p.mem, text, name, strlen(name) + 1);
    put(w, t, 8, w->type ? w->type : t);
    put(w, t, l->ty_name, text);
    return t;
}

static addr_t make(struct fixture *w, addr_t type, size_t len)
{
    addr_t object = fake_alloc(&w->p, len);

    put(w, object, 8, type);
    return object;
}

/* A suspended coroutine that awaits `awaited`, with `n` more values on its value stack. */
static addr_t make_coroutine_with(struct fixture *w, const char *name, addr_t awaited, const addr_t *values, size_t n)
{
    const struct layout *l = &w->p.py.layout;
    addr_t coro = make(w, w->coroutine, 512), frame = coro + (addr_t)l->ge_frame,
           code = fake_code(&w->p, name, "/a.py", 10), top;
    unsigned char instructions[8] = {0, 0, 72, 3}, suspended = (unsigned char)l->ge_delegates;
    int32_t depth = (int32_t)n + 1;

    if (l->ge_state == NO) {
        frame = fake_alloc(&w->p, 512);
        put(w, coro, l->ge_frame, frame);
        put(w, code, l->co_code, fake_bytes(&w->p, instructions, sizeof(instructions)));
        suspended = l->minor == 10 ? 255 : 0;
        fake_mem_put_bytes(w->p.mem, frame + (addr_t)l->fr_state, &suspended, 1);
    } else {
        fake_mem_put_bytes(w->p.mem, coro + (addr_t)l->ge_state, &suspended, 1);
        put(w, frame, l->fr_instr, code + (addr_t)l->co_bytecode);
        fake_mem_put_bytes(w->p.mem, code + (addr_t)l->co_bytecode, instructions, sizeof(instructions));
    }
    put(w, frame, l->fr_code, code);
    top = frame + (addr_t)l->fr_slots + (n + 1) * 8;
    if (l->fr_stacktop_is_pointer) {
        put(w, frame, l->fr_stacktop, top + (addr_t)l->fr_awaited - 8);
    } else {
        fake_mem_put_bytes(w->p.mem, frame + (addr_t)l->fr_stacktop, &depth, sizeof(depth));
        if (l->fr_valuestack)
            put(w, frame, l->fr_valuestack, top - (n + 1) * 8);
    }
    for (size_t i = 0; i < n; i++)
        put(w, top - (n + 1 - i) * 8, 0, values[i]);
    put(w, top, -8, awaited);
    return coro;
}

static addr_t make_coroutine(struct fixture *w, const char *name, addr_t awaited)
{
    return make_coroutine_with(w, name, awaited, NULL, 0);
}

/* Within `async with lock`: a bound method, from 3.14 on a function and the object. */
static addr_t make_holder(struct fixture *w, const char *name, addr_t awaited)
{
    const struct layout *l = &w->p.py.layout;
    addr_t function = make(w, w->function, 256), method = make(w, w->method, 64), values[] = {function, w->lock};

    put(w, function, l->fu_name, fake_str(&w->p, "Lock.__aexit__"));
    put(w, method, 16, function);
    put(w, method, 24, w->lock);
    return l->minor >= 14 ? make_coroutine_with(w, name, awaited, values, 2)
                          : make_coroutine_with(w, name, awaited, &method, 1);
}

static addr_t make_future(struct fixture *w, addr_t type)
{
    addr_t future = make(w, type, 256);

    put(w, future, w->p.py.layout.fut_loop, w->loop);
    return future;
}

static void make_task(struct fixture *w, size_t i)
{
    const struct layout *l = &w->p.py.layout;
    addr_t future = make_future(w, w->future), iterator = make(w, w->iterator, 32), task = make_future(w, w->task),
           inner;
    char name[32];

    put(w, iterator, 16, future);
    w->coros[i][2] = make_coroutine(w, "wait", iterator);
    w->coros[i][1] = make_holder(w, "query", w->coros[i][2]);
    inner = w->coros[i][0] = make_coroutine(w, "handle", w->coros[i][1]);
    put(w, task, l->task_coro, inner);
    put(w, task, l->task_waiter, future);
    snprintf(name, sizeof(name), "req-%zu", i);
    if (l->task_name != NO)
        put(w, task, l->task_name, fake_str(&w->p, name));
    w->made[i] = task;
    w->futures[i] = future;
}

/* sys.modules["asyncio.tasks"]._all_tasks.data, or the linked list of the thread. */
static void make_lists(struct fixture *w)
{
    const struct layout *l = &w->p.py.layout;
    addr_t data = make(w, w->set, 128), key = fake_str(&w->p, "data"), weak = fake_instance(&w->p, &key, &data, 1);
    addr_t module = fake_alloc(&w->p, 64), module_name = fake_str(&w->p, "asyncio.tasks");
    addr_t name = fake_str(&w->p, l->minor >= 12 ? "_scheduled_tasks" : "_all_tasks"), head;

    w->table = fake_alloc(&w->p, 8 * 16);
    put(w, data, 24, l->ts_tasks == NO ? N_TASKS : 0);
    put(w, data, 32, 7);
    put(w, data, 40, w->table);
    for (size_t i = 0; i < N_TASKS && l->ts_tasks == NO; i++) {
        addr_t reference = fake_alloc(&w->p, 64);

        put(w, reference, 16, w->made[i]);
        put(w, w->table, (int)i * 32, reference);
    }
    fake_mem_put(w->p.mem, module + 16, fake_dict(&w->p, &name, &weak, 1, true));
    put(w, w->interp, l->in_modules, fake_dict(&w->p, &module_name, &module, 1, true));
    if (l->ts_tasks == NO)
        return;
    put(w, w->interp + (addr_t)l->in_tasks, 0, w->interp + (addr_t)l->in_tasks);
    head = w->thread.tstate + (addr_t)l->ts_tasks;
    for (size_t i = 0; i <= N_TASKS; i++) {
        addr_t from = i ? w->made[i - 1] + (addr_t)l->task_node : head;
        addr_t to = i < N_TASKS ? w->made[i] + (addr_t)l->task_node : head;

        put(w, from, 0, to);
        put(w, to, 8, from);
    }
}

/* An instance of a class of trio. */
static addr_t make_instance(struct fixture *w, const char *class_name, const char *const *names, const addr_t *values,
                            size_t n)
{
    const struct layout *l = &w->p.py.layout;
    addr_t keys[8], object, type, text = fake_alloc(&w->p, 64), key = fake_str(&w->p, "__module__");
    addr_t module = fake_str(&w->p, "trio._core._run");

    for (size_t i = 0; i < n; i++)
        keys[i] = fake_str(&w->p, names[i]);
    object = fake_instance(&w->p, keys, values, n);
    type = fake_mem_at(w->p.mem, object + 8, 8) ? *(const addr_t *)fake_mem_at(w->p.mem, object + 8, 8) : 0;
    fake_mem_put_bytes(w->p.mem, text, class_name, strlen(class_name) + 1);
    put(w, type, 8, w->type);
    put(w, type, l->ty_name, text);
    put(w, type, l->ty_flags, *(const uint64_t *)fake_mem_at(w->p.mem, type + (addr_t)l->ty_flags, 8) | HEAP_TYPE);
    put(w, type, l->ty_dict, fake_dict(&w->p, &key, &module, 1, true));
    return object;
}

static addr_t make_list(struct fixture *w, const addr_t *items, size_t n)
{
    addr_t list = make(w, make_type(w, "list"), 64), array = fake_alloc(&w->p, 8 * n + 8);

    put(w, list, 16, n);
    put(w, list, w->p.py.layout.li_items, array);
    for (size_t i = 0; i < n; i++)
        put(w, array, (int)i * 8, items[i]);
    return list;
}

static addr_t make_dict(struct fixture *w, const char *name, addr_t value)
{
    addr_t key = fake_str(&w->p, name), dict = fake_dict(&w->p, &key, &value, 1, true);

    put(w, dict, 8, w->dict);
    return dict;
}

/* sys.modules["trio._core._run"].GLOBAL_RUN_CONTEXT: a runner with one task, whose nursery has two. There is no asyncio. */
static void make_trio(struct fixture *w)
{
    static const char *const task_names[] = {"coro", "name", "_runner", "_child_nurseries"},
                             *const children[] = {"_children"}, *const runner_names[] = {"tasks"};
    addr_t nursery, list, tasks, local = fake_alloc(&w->p, 128), module = fake_alloc(&w->p, 64), key, threads,
                                 values[4];

    w->dict = make_type(w, "dict");
    list = make_list(w, w->made, 2);
    nursery = make_instance(w, "Nursery", children, &list, 1);
    tasks = make_list(w, NULL, 0);
    w->runner = make_instance(w, "Runner", runner_names, &tasks, 1);
    values[0] = w->coros[0][0];
    values[1] = fake_str(&w->p, "crawl");
    values[2] = w->runner;
    values[3] = make_list(w, &nursery, 1);
    w->trio_task = make_instance(w, "Task", task_names, values, 4);
    put(w, tasks, 16, 1);
    put(w, *(const addr_t *)fake_mem_at(w->p.mem, tasks + (addr_t)w->p.py.layout.li_items, 8), 0, w->trio_task);
    key = w->context = make(w, make_type(w, "_localdummy"), 32);
    threads = make_dict(w, "runner", w->runner);
    threads = fake_dict(&w->p, &key, &threads, 1, false);
    put(w, threads, 8, w->dict);
    put(w, local, 48, threads);
    put(w, module, 16, make_dict(w, "GLOBAL_RUN_CONTEXT", local));
    put(w, w->interp, w->p.py.layout.in_modules, make_dict(w, "trio._core._run", module));
    if (w->p.py.layout.ts_tasks != NO) { /* empty lists */
        addr_t head = w->thread.tstate + (addr_t)w->p.py.layout.ts_tasks;

        put(w, head, 0, head);
        put(w, head, 8, head);
    }
}

static void fixture_init(struct fixture *w, size_t version)
{
    *w = (struct fixture){0};
    fake_python_init_nth(&w->p, version, 1 << 20);
    w->tasks = tasks_new();
    w->codes = code_cache_new(false);
    code_cache_round(w->codes, false);
    if (w->p.py.layout.task_coro == NO)
        return;
    w->interp = fake_interp_add(&w->p);
    w->thread = fake_thread_add(&w->p, w->interp, 0x7000, 42);
    w->heap_from = w->type = make_type(w, "type");
    w->coroutine = make_type(w, "coroutine");
    w->iterator = make_type(w, "_asyncio.FutureIter");
    w->future = make_type(w, "_asyncio.Future");
    w->task = make_type(w, "_asyncio.Task");
    w->set = make_type(w, "set");
    w->function = make_type(w, "function");
    w->method = make_type(w, "method");
    w->lock = make(w, make_type(w, "Lock"), 64);
    w->loop = make(w, make_type(w, "Loop"), 64);
    for (size_t i = 0; i < N_TASKS; i++)
        make_task(w, i);
    make_lists(w);
    tasks_begin(w->tasks, &w->p.py, w->codes);
}

static void fixture_free(struct fixture *w)
{
    tasks_free(w->tasks);
    code_cache_free(w->codes);
    fake_python_free(&w->p);
}

static int list(struct fixture *w)
{
    w->tasks->n_found = 0;
    tasks_begin(w->tasks, &w->p.py, w->codes);
    return tasks_list(w->tasks, w->interp, &w->thread.tstate, 1);
}

static void check_tasks(struct fixture *w)
{
    struct tasks *t = w->tasks;

    CHECK_INT(list(w), 0);
    CHECK_INT((long)t->n_found, N_TASKS);
    for (size_t i = 0; i < t->n_found; i++) {
        char name[32];

        snprintf(name, sizeof(name), "req-%zu", i);
        CHECK_INT(tasks_read(t, t->found[i].addr), 0);
        CHECK_INT(t->state, PY_TASK_WAITING);
        CHECK_INT((long)t->coro.n, 3);
        CHECK_STR(t->codes[0]->name, "handle");
        CHECK_STR(t->codes[2]->name, "wait");
        CHECK(t->coro.leaf == w->futures[i] && t->wait.object == w->futures[i]);
        CHECK_STR(t->wait.kind, "future");
        CHECK_STR(t->wait.what, "Future");
        CHECK(t->loop == w->loop);
        if (w->p.py.layout.task_name != NO)
            CHECK_STR(t->name, name);
        CHECK(tasks_is_same(t, t->found[i].addr, &t->mark));
        CHECK(t->n_holds == 1 && t->holds[0] == w->lock);
    }
}

static void check_trio(struct fixture *w)
{
    struct tasks *t = w->tasks;

    make_trio(w);
    CHECK_INT(list(w), 0);
    CHECK_INT((long)t->n_found, 1);
    CHECK(t->found[0].addr == w->trio_task && tasks_loop_of(t, w->trio_task) == w->runner);
    CHECK(tasks_loop_is_trio(t, w->runner) && !tasks_loop_is_trio(t, w->loop));
    CHECK_INT(tasks_read(t, w->trio_task), 0);
    CHECK_INT(t->state, PY_TASK_WAITING);
    CHECK_STR(t->name, "crawl");
    CHECK_INT((long)t->coro.n, 3);
    CHECK(!t->wait.kind && t->n_awaits == 2 && t->awaits[0] == w->made[0]);
    CHECK(tasks_is_same(t, w->trio_task, &t->mark));
}

/* A coroutine that awaits itself, or that awaits 100,000 others. */
static void check_chains(struct fixture *w)
{
    const struct layout *l = &w->p.py.layout;
    addr_t wrapper = make(w, w->iterator, 32), last, first = wrapper;
    struct tasks *t = w->tasks;

    put(w, wrapper, 16, wrapper);
    put(w, w->made[0], l->task_coro, wrapper);
    tasks_begin(t, &w->p.py, w->codes);
    CHECK_INT(tasks_read(t, w->made[0]), 0);
    CHECK(t->coro.cut && t->coro.n == 0);
    last = make_coroutine(w, "last", 0);
    first = make_coroutine(w, "first", last);
    /* Both frames await the first. */
    for (addr_t at = last; at < last + 512; at += 8)
        if (l->ge_state != NO && fake_mem_at(w->p.mem, at, 8) && at == last + (addr_t)(l->ge_frame + l->fr_slots))
            put(w, at, 0, first);
    put(w, w->made[0], l->task_coro, first);
    tasks_begin(t, &w->p.py, w->codes);
    CHECK_INT(tasks_read(t, w->made[0]), 0);
    CHECK(l->ge_state == NO || (t->coro.cut && t->coro.n < 16));
}

/* Lists whose links, or whose size, make no sense. */
static void check_lists(struct fixture *w)
{
    const struct layout *l = &w->p.py.layout;

    if (l->ts_tasks != NO) {
        put(w, w->made[2] + (addr_t)l->task_node, 0, w->made[1] + (addr_t)l->task_node); /* never back to the head */
        CHECK_INT(list(w), ERR_TORN);
        put(w, w->made[2] + (addr_t)l->task_node, 0, 1);
        CHECK_INT(list(w), ERR_TORN);
        return;
    }
    put(w, w->table, 0, 1); /* not an object */
    CHECK_INT(list(w), 0);
    CHECK_INT((long)w->tasks->n_found, N_TASKS - 1);
}

static uint64_t random_next(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 17;
}

/* Damaged words: each read ends, whatever it finds. */
static void damage(struct fixture *w)
{
    addr_t end = fake_alloc(&w->p, 8);
    uint64_t state = 42;

    for (int i = 0; i < ROUNDS; i++) {
        addr_t at = w->heap_from + random_next(&state) % (end - w->heap_from - 8);
        uint64_t values[] = {random_next(&state), w->made[0], w->coros[1][1],           at,
                             UINT64_MAX,          1ull << 40, random_next(&state) % 256};

        fake_mem_put(w->p.mem, at & ~7ull, values[random_next(&state) % 7]);
        list(w);
        for (size_t k = 0; k < N_TASKS; k++)
            tasks_read(w->tasks, w->made[k]);
        if (w->trio_task && tasks_loop_of(w->tasks, w->trio_task) == w->runner)
            tasks_read(w->tasks, w->trio_task);
        tasks_loop_thread(w->tasks, w->runner, &w->thread.tstate, &w->thread.tstate, 1);
        tasks_loop_thread(w->tasks, w->loop, &w->thread.tstate, &w->thread.tstate, 1);
        CHECK(w->tasks->n_found <= TASKS_MAX);
    }
}

static void check_damage(struct fixture *w)
{
    damage(w);
}

static void check_trio_damage(struct fixture *w)
{
    make_trio(w);
    damage(w);
}

static void each_version(void (*check)(struct fixture *w))
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct fixture w;

        fixture_init(&w, i);
        if (w.p.py.layout.task_coro != NO)
            check(&w);
        else
            CHECK(!tasks_are_listed(&w.p.py));
        fixture_free(&w);
    }
}

static void test_tasks(void)
{
    each_version(check_tasks);
}

static void test_chains(void)
{
    each_version(check_chains);
}

static void test_lists(void)
{
    each_version(check_lists);
}

static void test_damage(void)
{
    each_version(check_damage);
}

static void test_trio(void)
{
    each_version(check_trio);
    each_version(check_trio_damage);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_tasks);
    TEST_RUN(test_chains);
    TEST_RUN(test_lists);
    TEST_RUN(test_damage);
    TEST_RUN(test_trio);
    return test_finish("test_tasks");
}
