/*
 * sample/verdict.c: cycles, chains and their certainty; the sentences of out/dump_verdict.c; the names in sample/library_waits.c.
 */
#include "out/dump.h"
#include "sample/library_waits.h"
#include "sample/verdict.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#define MAX 200

static const struct func work = {.name = "work", .filename = "/a.py", .short_filename = "a.py"};
static const struct frame in_work = {.func = &work, .line = 7};
static const struct proc_info process = {.pid = 42};

struct world {
    struct trace traces[MAX];
    struct wait_reason waits[MAX];
    char names[MAX][24];
    size_t n;
};

static struct world *world_new(size_t n)
{
    struct world *w = calloc(1, sizeof(*w));

    w->n = n;
    for (size_t i = 0; i < n; i++) {
        snprintf(w->names[i], sizeof(w->names[i]), "t%zu", i);
        w->waits[i] = (struct wait_reason){.state = TRACE_WAITING_FOR_LOCK, .call = "futex"};
        w->traces[i] = (struct trace){.process = &process,
                                      .thread_id = 1000 + 7 * ((i * 31) % MAX),
                                      .os_thread_id = (pid_t)(100 + i),
                                      .thread_name = w->names[i],
                                      .wait = &w->waits[i],
                                      .frames = &in_work,
                                      .n_frames = 1};
    }
    return w;
}

/* Thread `from` waits for a lock of thread `to`. */
static void link_to(struct world *w, size_t from, size_t to, bool certain)
{
    w->waits[from].object = (struct awaited_object){
        .kind = certain ? AWAITED_RLOCK : AWAITED_LOCK,
        .certain = true,
        .confirmed = true,
        .name = "lock",
        .owner = {.known = true, .certain = certain, .thread_id = w->traces[to].thread_id, .name = w->names[to]}};
}

static void check_text(const struct world *w, const char *wanted)
{
    struct verdict v;
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    CHECK(verdict_find(w->traces, w->n, &v) == 0);
    dump_text_verdict(&v, out);
    fclose(out);
    if (strcmp(text, wanted) != 0)
        fprintf(stderr, "found:  %s\nwanted: %s\n", text, wanted);
    CHECK(strcmp(text, wanted) == 0);
    free(text);
}

static void test_two(void)
{
    struct world *w = world_new(2);

    link_to(w, 0, 1, true);
    link_to(w, 1, 0, true);
    check_text(w, "Deadlock: t0 waits for RLock lock, held by t1, which waits for RLock lock, held by t0.");
    link_to(w, 1, 0, false);
    check_text(w,
               "Likely deadlock: t0 waits for RLock lock, held by t1, which waits for Lock lock, likely held by t0.");
    free(w);
}

/* What was not true at the same time is not certain. */
static void test_unconfirmed(void)
{
    struct world *w = world_new(2);
    struct verdict v;

    link_to(w, 0, 1, true);
    link_to(w, 1, 0, true);
    w->waits[1].object.confirmed = false;
    CHECK(verdict_find(w->traces, 2, &v) == 0 && v.kind == VERDICT_NONE);
    w->waits[1].object.confirmed = true;
    w->waits[0].object.certain = false;
    CHECK(verdict_find(w->traces, 2, &v) == 0 && v.kind == VERDICT_DEADLOCK && !v.certain);
    w->waits[0].object.certain = true;
    CHECK(verdict_find(w->traces, 2, &v) == 0 && v.kind == VERDICT_DEADLOCK && v.certain);
    w->waits[0].has_limit = true;
    CHECK(verdict_find(w->traces, 2, &v) == 0 && v.kind == VERDICT_NONE);
    w->waits[0].has_limit = false;
    w->traces[0].active = true; /* it has just got the lock */
    CHECK(verdict_find(w->traces, 2, &v) == 0 && v.kind == VERDICT_NONE);
    free(w);
}

static void test_itself(void)
{
    struct world *w = world_new(1);

    link_to(w, 0, 0, false);
    check_text(w, "Likely deadlock: t0 waits for Lock lock, likely held by itself.");
    free(w);
}

/* A certain cycle comes before a likely one. Others wait behind it. */
static void test_several(void)
{
    struct world *w = world_new(8);
    struct verdict v;

    link_to(w, 0, 1, false);
    link_to(w, 1, 0, false);
    link_to(w, 4, 3, true);
    link_to(w, 3, 5, true);
    link_to(w, 5, 4, true);
    link_to(w, 6, 5, true);
    link_to(w, 7, 6, false);
    CHECK(verdict_find(w->traces, 8, &v) == 0 && v.kind == VERDICT_DEADLOCK && v.certain && v.n == 3 &&
          v.n_others == 2);
    CHECK(v.threads[0] == &w->traces[3] && v.threads[1] == &w->traces[5] && v.threads[2] == &w->traces[4]);
    check_text(w,
               "Deadlock: t3 waits for RLock lock, held by t5, which waits for RLock lock, held by t4, which waits for "
               "RLock lock, held by t3. 2 more threads wait for this.");
    free(w);
}

static void test_long(void)
{
    struct world *w = world_new(MAX);
    struct verdict v;

    for (size_t i = 0; i < MAX; i++)
        link_to(w, i, (i + 1) % MAX, true);
    CHECK(verdict_find(w->traces, MAX, &v) == 0 && v.kind == VERDICT_DEADLOCK && v.n == MAX && v.certain &&
          !v.n_others);
    for (size_t i = 0; i < VERDICT_THREADS_MAX; i++)
        CHECK(v.threads[i] == &w->traces[i]);
    w->waits[MAX - 1].object = (struct awaited_object){0};
    CHECK(verdict_find(w->traces, MAX, &v) == 0 && v.kind == VERDICT_WAITS && v.n == MAX);
    free(w);
}

static void test_exited(void)
{
    struct world *w = world_new(2);

    link_to(w, 0, 1, true);
    w->waits[1].object =
        (struct awaited_object){.kind = AWAITED_RLOCK,
                                .certain = true,
                                .confirmed = true,
                                .addr = 0xab0,
                                .owner = {.known = true, .certain = true, .exited = true, .thread_id = 0x7f00}};
    check_text(w,
               "t1 waits for RLock at 0xab0, held by thread 0x7F00, which no longer exists. Nothing will release it. 1 "
               "more thread waits for this.");
    free(w);
}

static void test_gil(void)
{
    struct world *w = world_new(3);

    w->traces[2].owns_gil = w->traces[2].active = true;
    w->traces[2].wait = NULL;
    for (size_t i = 0; i < 2; i++) {
        w->traces[i].waits_for_gil = true;
        w->traces[i].wait = NULL;
    }
    check_text(w, "All 2 other threads wait for the GIL, held by t2 in work (a.py:7).");
    w->traces[1].waits_for_gil = false;
    check_text(w, "1 thread waits for the GIL, held by t2 in work (a.py:7).");
    w->traces[1].active = true;
    check_text(w, "");
    free(w);
}

/* The collector below the innermost Python function; a finalizer in Python may run below a collector. */
static void test_garbage(void)
{
    static const struct func
        mark = {.name = "gc_reset_refs", .short_filename = "gcmodule.c", .module = "/usr/bin/python3.12"},
        main_312 = {.name = "gc_collect_main", .short_filename = "gcmodule.c", .module = "/usr/bin/python3.12"},
        other = {.name = "gc_collect_main", .short_filename = "gc.c", .module = "/usr/lib/libgc.so"},
        collect = {.name = "collect", .short_filename = "gcmodule.c", .module = "/lib/libpython3.8.so"};
    struct frame frames[] = {{.func = &mark, .line = 3}, {.func = &main_312}, {.func = &work, .line = 7}};
    struct world *w = world_new(2);

    w->traces[0].owns_gil = w->traces[0].active = w->traces[1].waits_for_gil = true;
    w->traces[0].wait = w->traces[1].wait = NULL;
    w->traces[0].frames = frames;
    w->traces[0].n_frames = 3;
    check_text(w,
               "The other thread waits for the GIL, held by t0 in gc_reset_refs (gcmodule.c:3), collecting garbage.");
    frames[1].func = &collect;
    check_text(w,
               "The other thread waits for the GIL, held by t0 in gc_reset_refs (gcmodule.c:3), collecting garbage.");
    frames[1].func = &other;
    check_text(w, "The other thread waits for the GIL, held by t0 in gc_reset_refs (gcmodule.c:3).");
    frames[1].func = &work;
    frames[2].func = &main_312;
    check_text(w, "The other thread waits for the GIL, held by t0 in gc_reset_refs (gcmodule.c:3).");
    free(w);
}

/* A thread that holds the GIL waits for a lock of one that waits for the GIL. */
static void test_gil_and_lock(void)
{
    struct world *w = world_new(2);

    w->traces[0].owns_gil = true;
    link_to(w, 0, 1, true);
    w->traces[1].waits_for_gil = true;
    w->traces[1].wait = NULL;
    check_text(w, "Likely deadlock: t0 waits for RLock lock, held by t1, which waits for the GIL, held by t0.");
    free(w);
}

/* Which of several GILs the others wait for is unknown. */
static void test_gils(void)
{
    struct world *w = world_new(3);

    for (size_t i = 0; i < 3; i++) {
        w->traces[i].wait = NULL;
        w->traces[i].waits_for_gil = i == 2;
        w->traces[i].owns_gil = i < 2;
    }
    check_text(w, "");
    w->traces[0].owns_gil = false;
    check_text(w, "1 thread waits for the GIL, held by t1 in work (a.py:7).");
    free(w);
}

/* After a fork(), a lock of multiprocessing names a thread that does not hold it. */
static void test_shared_lock(void)
{
    struct world *w = world_new(2);
    struct verdict v;

    link_to(w, 0, 0, false);
    w->waits[0].object.kind = AWAITED_SHARED_LOCK;
    CHECK(verdict_find(w->traces, 2, &v) == 0 && v.kind == VERDICT_WAITS && v.n == 1);
    link_to(w, 0, 1, false);
    link_to(w, 1, 0, true);
    w->waits[0].object.kind = AWAITED_SHARED_LOCK;
    CHECK(verdict_find(w->traces, 2, &v) == 0 && v.kind == VERDICT_WAITS && v.n == 1);
    w->waits[0].object.owner.exited = true;
    CHECK(verdict_find(w->traces, 2, &v) == 0 && v.kind == VERDICT_WAITS && v.n == 1);
    free(w);
}

static void test_child(void)
{
    struct world *w = world_new(1);

    w->waits[0] = (struct wait_reason){.state = TRACE_WAITING_FOR_CHILD,
                                       .call = "wait4",
                                       .object.confirmed = true,
                                       .processes = {{.pid = 43,
                                                      .state = 'S',
                                                      .command = "sh",
                                                      .call = "read",
                                                      .awaits_us = true,
                                                      .is_pipe = true,
                                                      .both_single = true}},
                                       .n_processes = 1};
    check_text(
        w, "Deadlock: t0 waits for a child process (wait4): process 43 (sh), which waits in read for this process.");
    w->waits[0].processes[0].both_single = false;
    check_text(w,
               "Likely deadlock: t0 waits for a child process (wait4): process 43 (sh), which waits in read for this "
               "process.");
    w->waits[0].processes[0].both_single = true;
    w->waits[0].processes[0].is_pipe = false; /* a socket */
    check_text(w,
               "Likely deadlock: t0 waits for a child process (wait4): process 43 (sh), which waits in read for this "
               "process.");
    w->waits[0].processes[0].awaits_us = false;
    check_text(w, "");
    free(w);
}

/* Two processes, each of which fills a pipe that the other one should read. */
static void test_full_pipes(void)
{
    struct world *w = world_new(1);
    struct awaited_file *file = &w->waits[0].files[0];
    struct verdict v;

    w->waits[0] =
        (struct wait_reason){.state = TRACE_WAITING_FOR_IO, .call = "write", .object.confirmed = true, .n_files = 1};
    *file = (struct awaited_file){.fd = 4,
                                  .kind = "pipe",
                                  .n_others = 1,
                                  .only_other = true,
                                  .others = {{.pid = 43,
                                              .state = 'S',
                                              .command = "cat",
                                              .call = "write",
                                              .awaits_us = true,
                                              .is_pipe = true,
                                              .both_single = true}}};
    check_text(w,
               "Deadlock: t0 waits for I/O (write): fd 4 pipe, other end in process 43 (cat), which waits in write for "
               "this process.");
    file->others[0].both_single = false;
    CHECK(verdict_find(w->traces, 1, &v) == 0 && v.kind == VERDICT_CHILD && !v.certain);
    file->others[0].both_single = true;
    file->kind = "Unix";
    CHECK(verdict_find(w->traces, 1, &v) == 0 && v.kind == VERDICT_CHILD && !v.certain);
    file->kind = "pipe";
    w->waits[0].object.confirmed = false; /* it ran while the other process was read */
    check_text(w, "");
    w->waits[0].object.confirmed = true;
    file->only_other = false; /* a process that may not be read may have it, too */
    check_text(w, "");
    free(w);
}

/* All threads wait for one process, and that is stopped. */
static void test_stopped(void)
{
    static const struct awaited_process stopped = {.pid = 43, .state = 'T', .command = "convert -", .is_stopped = true};
    struct world *w = world_new(2);

    link_to(w, 0, 1, true);
    w->waits[1] = (struct wait_reason){.state = TRACE_WAITING_FOR_CHILD,
                                       .call = "wait4",
                                       .object.confirmed = true,
                                       .processes = {stopped},
                                       .n_processes = 1};
    check_text(w, "Everything waits for process 43 (convert -), which is stopped by a signal.");
    w->waits[1].processes[0].state = 't';
    w->waits[1].processes[0].tracer = 900;
    w->waits[1].processes[0].tracer_command = "gdb";
    check_text(w, "Everything waits for process 43 (convert -), which is stopped, traced by process 900 (gdb).");
    link_to(w, 0, 1, false);
    check_text(w,
               "Likely, everything waits for process 43 (convert -), which is stopped, traced by process 900 (gdb).");
    w->waits[1].processes[0].is_stopped = false; /* only its main thread is */
    check_text(w, "No cycle found: t0 waits for Lock lock, likely held by t1, which waits for a child process (wait4): "
                  "process 43 (convert -), which is stopped, traced by process 900 (gdb).");
    w->waits[1].processes[0] = stopped;
    w->waits[0].has_limit = true;
    check_text(w, "No cycle found: t0 waits for Lock lock, likely held by t1, which waits for a child process (wait4): "
                  "process 43 (convert -), which is stopped by a signal.");
    w->waits[0] = w->waits[1];
    w->waits[0].processes[0].pid = 44;
    check_text(w, "No cycle found: t0 waits for a child process (wait4): process 44 (convert -), which is stopped by a "
                  "signal.");
    w->waits[0] = w->waits[1] = (struct wait_reason){.state = TRACE_STOPPED, .object.confirmed = true};
    check_text(w, "The process is stopped by a signal.");
    w->waits[0] = w->waits[1] = (struct wait_reason){.state = TRACE_STOPPED,
                                                     .object.confirmed = true,
                                                     .processes = {{.pid = 900, .command = "gdb"}},
                                                     .n_processes = 1};
    check_text(w, "The process is stopped, traced by process 900 (gdb).");
    w->waits[1].object.confirmed = false; /* strace stops it for a moment at each system call */
    check_text(w, "No cycle found: t0 is stopped, traced by process 900 (gdb).");
    w->traces[1].wait = NULL;
    w->traces[1].active = true;
    check_text(w, "");
    free(w);
}

static void test_no_cycle(void)
{
    struct world *w = world_new(3);

    link_to(w, 0, 1, false);
    w->waits[0].object.kind = AWAITED_THREAD;
    w->waits[1] = (struct wait_reason){.state = TRACE_WAITING_FOR_IO,
                                       .call = "recvfrom",
                                       .files = {{.fd = 5, .kind = "TCP", .local = "a:1", .peer = "b:2"}},
                                       .n_files = 1};
    check_text(
        w, "No cycle found: t0 waits for the end of thread t1, which waits for I/O (recvfrom): fd 5 TCP a:1 -> b:2.");
    w->traces[2].active = true;
    check_text(w, "");
    w->traces[2].active = false;
    w->traces[1].wait = NULL;
    check_text(w, "No cycle found: t0 waits for the end of thread t1, which is idle in work (a.py:7).");
    check_text(&(struct world){0}, "");
    free(w);
}

/* The names only: what these functions do on a GPU or between ranks is not tested here. */
static void test_libraries(void)
{
    static const struct func all[] = {
        {.name = "futex_wait", .filename = "libc.so.6", .module = "/usr/lib/libc.so.6"},
        {.name = "cudaStreamSynchronize_ptsz", .filename = "libcudart.so", .module = "/opt/libcudart.so"},
        {.name = "gloo::allreduce(gloo::AllreduceOptions const&)",
         .filename = "a.cc",
         .module = "/opt/libtorch_cpu.so"},
        {.name = "all_reduce", .filename = "/venv/torch/distributed/distributed_c10d.py"},
        {.name = "all_reduce", .filename = "/app/mytorch/distributed/distributed_c10d.py"},
        {.name = "cudaDeviceSynchronize", .filename = "/app/fake.py"},
        {.name = "MPI_Recv", .filename = "libmpi.so", .module = "/opt/libmpi.so"},
    };
    static const struct {
        int frames[4]; /* innermost first, ended by -1 */
        enum awaited_kind kind;
        int operation;
    } rows[] = {
        {{0, -1}, AWAITED_UNKNOWN, 0},       {{0, 1, -1}, AWAITED_GPU, 1},
        {{0, 2, -1}, AWAITED_COLLECTIVE, 2}, {{0, 2, 3, -1}, AWAITED_COLLECTIVE, 3},
        {{4, 5, -1}, AWAITED_UNKNOWN, 0},    {{0, 1, 3, -1}, AWAITED_COLLECTIVE, 3},
        {{6, 5, -1}, AWAITED_COLLECTIVE, 6},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct awaited_object found = {0};
        struct frame frames[4];
        size_t n = 0;

        for (; rows[i].frames[n] >= 0; n++)
            frames[n] = (struct frame){.func = &all[rows[i].frames[n]]};
        CHECK(library_wait_find(frames, n, &found) == (rows[i].kind != AWAITED_UNKNOWN));
        CHECK(found.kind == rows[i].kind);
        if (found.kind)
            CHECK_STR(found.operation, all[rows[i].operation].name);
    }
}

/* A proven lock or thread tells more than the name of a function. */
static void test_weaker(void)
{
    for (int kind = AWAITED_UNKNOWN; kind < AWAITED_KINDS; kind++) {
        struct awaited_object object = {.kind = (enum awaited_kind)kind, .certain = true};

        CHECK(library_wait_is_weaker(&object) == (kind != AWAITED_UNKNOWN && kind < AWAITED_OPERATION));
        object.certain = false;
        CHECK(!library_wait_is_weaker(&object));
        object.owner.known = true;
        CHECK(library_wait_is_weaker(&object));
    }
}

/* A thread that waits for a GPU without sleeping does not wait in the kernel. */
static void test_spins(void)
{
    struct world *w = world_new(1);
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    w->waits[0] = (struct wait_reason){.state = TRACE_RUNNING, .object = {.kind = AWAITED_GPU, .certain = true}};
    dump_json(w->traces, 1, NULL, 0, &(struct dump_options){0}, out);
    fclose(out);
    CHECK(strstr(text, "\"what\": \"spins\""));
    free(text);
    free(w);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_two);
    TEST_RUN(test_unconfirmed);
    TEST_RUN(test_itself);
    TEST_RUN(test_several);
    TEST_RUN(test_long);
    TEST_RUN(test_exited);
    TEST_RUN(test_gil);
    TEST_RUN(test_garbage);
    TEST_RUN(test_gil_and_lock);
    TEST_RUN(test_gils);
    TEST_RUN(test_shared_lock);
    TEST_RUN(test_child);
    TEST_RUN(test_full_pipes);
    TEST_RUN(test_stopped);
    TEST_RUN(test_no_cycle);
    TEST_RUN(test_libraries);
    TEST_RUN(test_weaker);
    TEST_RUN(test_spins);
    return test_finish("test_verdict");
}
