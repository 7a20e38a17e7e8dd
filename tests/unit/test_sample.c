/*
 * sample/: what a session shares, short file names, the thread table, process trees.
 */
#include "base/clock.h"
#include "fake_python.h"
#include "pause/pause_method.h"
#include "sample/process_private.h"
#include "sample/sampled_tree.h"
#include "sample/sampler.h"
#include "sample/shorten.h"
#include "sample/thread_table.h"
#include "test.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct sampler_options options = {.include_idle = true};

static void test_funcs(void)
{
    struct sampler *s = sampler_new(&options);
    struct func key = {.filename = intern_str(s->names, "/a.py"), .short_filename = intern_str(s->names, "a.py")};
    const struct func *kept[3000];
    size_t wrong = 0;
    char name[32];

    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        key.name = intern_str(s->names, name);
        key.first_line = i;
        kept[i] = sampler_func(s, &key);
    }
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        key.name = intern_str(s->names, name);
        key.first_line = i;
        wrong += sampler_func(s, &key) != kept[i] || strcmp(kept[i]->name, name) != 0 || kept[i]->first_line != i;
    }
    CHECK_INT(wrong, 0);
    key.first_line = 7; /* the same name on another line is another function */
    CHECK(sampler_func(s, &key) != kept[2999]);
    key.first_line = 2999;
    key.module = intern_str(s->names, "libc.so.6");
    CHECK(sampler_func(s, &key) != kept[2999]);
    CHECK(sampler_free(s) == NULL);
    CHECK(sampler_free(NULL) == NULL);
}

static void test_counts(void)
{
    struct sampler *s = sampler_new(&options);

    CHECK_INT(sampler_errors(s), 0);
    for (int code = ERR_NOMEM; code < ERR_END_; code++)
        sampler_count_error(s, code);
    sampler_count_error(s, 5);
    sampler_count_error(s, ERR_END_);
    sampler_count_error(s, INT32_MIN);
    sampler_count_error(s, ERR_TORN);
    CHECK_INT(sampler_errors(s), SAMPLER_ERRORS + 4);
    CHECK_INT(s->errors[ERR_INTERNAL - ERR_NOMEM], 4);
    CHECK_INT(s->errors[ERR_TORN - ERR_NOMEM], 2);
    sampler_free(s);
}

static void touch(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    if (fd < 0)
        abort();
    close(fd);
}

static const char *by_files(struct intern *names, const char *filename)
{
    struct files files = {.pid = getpid(), .root = -1};
    struct short_names s = {0};
    const char *result = short_names_get(&s, &(struct short_names_from){.names = names, .files = &files}, filename);

    short_names_free(&s);
    return result;
}

static void test_shorten(void)
{
    static const char *const same[] = {"<string>", "<frozen importlib._bootstrap>", "<a/b>", "plain.py", "", "/", "a/"};
    struct intern *in = intern_new();
    char dir[] = "/tmp/spyglass-test-XXXXXX", path[256], *huge = malloc(20001);

    if (!mkdtemp(dir) || !huge)
        abort();
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        CHECK_STR(by_files(in, same[i]), same[i]);
    CHECK_STR(by_files(in, "rel/dir/a.py"), "a.py");
    CHECK_STR(by_files(in, "/a.py"), "a.py");
    CHECK_STR(by_files(in, "/nowhere/at all/a.py"), "a.py");
    snprintf(path, sizeof(path), "%s/pkg", dir);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/pkg/sub", dir);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/pkg/sub/m.py", dir);
    CHECK_STR(by_files(in, path), "m.py"); /* directories, but no packages */
    snprintf(path, sizeof(path), "%s/pkg/sub/__init__.py", dir);
    touch(path);
    snprintf(path, sizeof(path), "%s/pkg/sub/m.py", dir);
    CHECK_STR(by_files(in, path), "sub/m.py");
    snprintf(path, sizeof(path), "%s/pkg/__init__.py", dir);
    touch(path);
    snprintf(path, sizeof(path), "%s/pkg/sub/m.py", dir);
    CHECK_STR(by_files(in, path), "pkg/sub/m.py");
    for (size_t i = 0; i < 20000; i++) /* ten thousand directories, none of which can be opened */
        huge[i] = i % 2 ? 'a' : '/';
    huge[20000] = '\0';
    CHECK_STR(by_files(in, huge), "a");
    snprintf(path, sizeof(path), "%s/pkg/sub/__init__.py", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/pkg/__init__.py", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/pkg/sub", dir);
    rmdir(path);
    snprintf(path, sizeof(path), "%s/pkg", dir);
    rmdir(path);
    rmdir(dir);
    free(huge);
    intern_free(in);
}

/* A synthetic interpreter whose threads claim to be ours: the kernel knows one of the two. */
static void test_thread_table(void)
{
    static const int minors[] = {8, 11, 14};
    static const char *const names[] = {"MainThread", "gone"};

    for (size_t i = 0; i < 3; i++) {
        struct fake_python p;
        struct py_threads threads = {0};
        struct thread_table table = {0};
        struct fake_thread t[2];
        struct sampled_thread *k;
        addr_t interp, next;
        uint64_t ids[2];

        fake_python_init(&p, 3, minors[i], 1 << 20);
        interp = fake_interp_add(&p);
        ids[0] = fake_pthread(&p, getpid());
        ids[1] = fake_pthread(&p, 0x7ffffff0);
        t[0] = fake_thread_add(&p, interp, ids[0], (uint64_t)getpid());
        CHECK_INT(threads_read(&p.py, &threads), 0);
        CHECK_INT(thread_table_update(&table, &p.py, getpid(), &threads), 0);
        k = thread_table_find(&table, t[0].tstate);
        CHECK(k && k->os.tid == getpid() && k->name == NULL);
        t[1] = fake_thread_add(&p, interp, ids[1], 0x7ffffff0);
        fake_threading(&p, interp, ids, names, 2);
        CHECK_INT(threads_read(&p.py, &threads), 0);
        CHECK_INT(thread_table_update(&table, &p.py, getpid(), &threads), 0);
        k = thread_table_find(&table, t[0].tstate);
        CHECK(k && k->os.tid == getpid());
        CHECK_STR(k ? k->name : NULL, "MainThread");
        k = thread_table_find(&table, t[1].tstate);
        CHECK(k && k->os.tid == 0);
        CHECK_STR(k ? k->name : NULL, "gone");
        next = fake_mem_get(p.mem, interp + (addr_t)p.py.layout.in_threads);
        CHECK_INT(next, t[1].tstate);
        fake_mem_put(p.mem, interp + (addr_t)p.py.layout.in_threads, t[0].tstate); /* it exits */
        CHECK_INT(threads_read(&p.py, &threads), 0);
        CHECK_INT(thread_table_update(&table, &p.py, getpid(), &threads), 0);
        CHECK(thread_table_find(&table, t[1].tstate) == NULL);
        k = thread_table_find(&table, t[0].tstate);
        CHECK_STR(k ? k->name : NULL, "MainThread");
        thread_table_free(&table);
        threads_free(&threads);
        fake_python_free(&p);
    }
}

static size_t open_files(void)
{
    size_t n = 0;

    for (int fd = 0; fd < 4096; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Threads start and exit, in all numbers: each is found, none remains, and no descriptor stays open. */
static void test_thread_churn(void)
{
    struct fake_python p;
    struct py_threads threads = {0};
    struct thread_table table = {0};
    addr_t interp, list;
    size_t wrong = 0, before = open_files();

    fake_python_init(&p, 3, 14, 64 << 20);
    interp = fake_interp_add(&p);
    list = interp + (addr_t)p.py.layout.in_threads;
    for (size_t round = 0; round < 60; round++) {
        size_t n = (round * 37) % 101 + 1;

        fake_mem_put(p.mem, list, 0);
        for (size_t i = 0; i < n; i++)
            fake_thread_add(&p, interp, 0x1000 + i, i % 5 ? 0x7ffffff0 : (uint64_t)getpid());
        CHECK_INT(threads_read(&p.py, &threads), 0);
        CHECK_INT(thread_table_update(&table, &p.py, getpid(), &threads), 0);
        CHECK_INT(table.n, n);
        for (size_t i = 0; i < threads.n; i++)
            wrong += thread_table_find(&table, threads.items[i].tstate) == NULL;
    }
    CHECK_INT(wrong, 0);
    thread_table_free(&table);
    CHECK_INT(open_files(), before);
    threads_free(&threads);
    fake_python_free(&p);
}

static pid_t child_start(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        pause();
        _exit(0);
    }
    return pid;
}

/* Neither this process nor its child is Python. */
static void test_process_tree(void)
{
    struct sampler *s = sampler_new(&options);
    struct process_tree tree = {.sampler = s, .subprocesses = true};
    struct err_note note = {0};
    size_t before = open_files();
    pid_t pid = child_start();

    CHECK_INT(sampled_tree_add_root(&tree, 0x7ffffff0, 0, false, &note), ERR_NO_PROCESS);
    CHECK(note.facts.reason == REASON_NO_PID && note.facts.pid == 0x7ffffff0);
    process_tree_free(&tree);
    CHECK_INT(sampled_tree_add_root(&tree, getpid(), 0, true, &note), ERR_NOT_PYTHON);
    CHECK(note.facts.reason == REASON_OTHER_PROGRAM && note.facts.pid == getpid());
    CHECK(strstr(note.facts.path, "test_sample"));
    process_tree_free(&tree);
    CHECK_INT(sampled_tree_add_root(&tree, getpid(), 0, false, &note), 0);
    CHECK(process_tree_root_alive(&tree));
    CHECK_INT(sampled_tree_refresh(&tree), 0);
    CHECK_INT(tree.n, 2);
    CHECK(tree.n == 2 && tree.items[1].pid == pid && process_tree_entry_info(&tree.items[1])->parent == getpid());
    CHECK(tree.n == 2 &&
          process_tree_entry_info(&tree.items[1])->parent_info == process_tree_entry_info(&tree.items[0]));
    CHECK(strstr(process_tree_entry_info(&tree.items[0])->command, "test_sample") != NULL);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK_INT(sampled_tree_refresh(&tree), 0);
    CHECK_INT(tree.n, 1);
    process_tree_free(&tree);
    CHECK(!process_tree_root_alive(&tree));
    CHECK_INT(open_files(), before);
    sampler_free(s);
}

/* The last sample ended at 1 ms, and this one began at 2 ms. */
static bool ran_only_before(uint64_t turns, uint64_t run_us, uint64_t wait_us, uint64_t reading_us)
{
    struct os_thread k = {.left_ns = 1000000, .left = {.run_count = 7, .run_ns = 5000, .wait_ns = 900}};
    struct pause fz = {.since_ns = 2000000};
    struct sched_stats after = {7 + turns, 5000 + run_us * 1000, 900 + wait_us * 1000};

    return same_core_ran_only_before(&fz, &k, &after, fz.since_ns + reading_us * 1000);
}

static void test_ran_only_before(void)
{
    CHECK(ran_only_before(1, 990, 0, 20));
    CHECK(ran_only_before(1, 500, 490, 20));   /* it waited in the run queue first */
    CHECK(!ran_only_before(0, 0, 0, 20));      /* it slept all the time */
    CHECK(!ran_only_before(1, 500, 0, 20));    /* it went to sleep */
    CHECK(!ran_only_before(2, 990, 0, 20));    /* the second run may have been during the read */
    CHECK(!ran_only_before(1, 15, 980, 20));   /* and so may the only one, after a long wait */
    CHECK(!ran_only_before(1, 990, 0, 1000));  /* a read that took long */
    CHECK(!ran_only_before(1, 1000, 0, 5000)); /* with a complete run in the middle of it */
}

/* A child that blocks in a system call: on `futex`, if it is not NULL. */
static pid_t start_blocked(struct task *task, int *futex)
{
    struct task_look look = {0};
    pid_t pid = fork();

    while (pid == 0)
        if (futex)
            syscall(SYS_futex, futex, FUTEX_WAIT, *futex, NULL);
        else
            pause();
    CHECK(pid > 0);
    task_open(task, pid, pid);
    while (task_look(task, &look) == 0 && look.state != 'S')
        clock_sleep_ns(NS_PER_MS);
    return pid;
}

static void test_sleeps_on(void)
{
    static int word;

    for (int i = 0; i < 2; i++) {
        struct task task;
        pid_t pid = start_blocked(&task, i ? &word : NULL);
        uint64_t futex = 0, sp, sp2, pc;
        int r = task_sleeps_on(&task, &futex, &sp);

        if (task_waits_at(&task, &sp2, &pc) == 0) { /* the kernel lets us read /proc/PID/syscall */
            CHECK_INT(r, i ? 0 : ERR_UNSUPPORTED);
            CHECK(!i || (futex == (uintptr_t)&word && sp == sp2));
        }
        kill(pid, SIGKILL);
        CHECK_INT(waitpid(pid, NULL, 0), pid);
        CHECK_INT(task_sleeps_on(&task, &futex, &sp), ERR_UNSUPPORTED);
        task_close(&task);
    }
}

/* Whether emit_unchanged() concludes that the thread is in the call that ptrace interrupted, if the kernel has scheduled
 * it `runs` times since. */
static bool is_blocked_again(struct process *p, struct sampled_thread *th, uint64_t runs, uint64_t sp_offset)
{
    struct sched_stats stats;
    int r;

    th->last.blocked = true;
    th->last.off_cpu = false;
    CHECK_INT(task_waits_at(&th->os.task, &th->last.blocked_sp, &th->last.blocked_pc), 0);
    CHECK_INT(task_sched_stats(&th->os.task, &stats), 0);
    th->last.blocked_sp += sp_offset;
    th->os.stats = (struct sched_stats){.run_count = stats.run_count - runs};
    CHECK(!emit_unchanged(p, th, NULL, NULL, &r)); /* the sink knows no stack, so nothing is emitted */
    return th->last.off_cpu;
}

static void check_blocked_again(struct process *p, struct sampled_thread *th, struct fake_python *fake,
                                struct fake_thread *t)
{
    struct sched_stats stats;
    uint64_t sp, pc;

    if (task_sched_stats(&th->os.task, &stats) < 0 || task_waits_at(&th->os.task, &sp, &pc) < 0)
        return; /* the kernel has no schedstat, or does not let us read /proc/PID/syscall */
    CHECK(is_blocked_again(p, th, 2, 0));
    CHECK(!is_blocked_again(p, th, 1, 0));
    CHECK(!is_blocked_again(p, th, 3, 0));
    CHECK(!is_blocked_again(p, th, 2, 16));
    /* Another function blocks with the same SP and PC. */
    fake_frame_push(fake, t, fake_code(fake, "waits_too", "/a.py", 20), 4, FAKE_PLAIN);
    CHECK(!is_blocked_again(p, th, 2, 0));
    th->tstate = 0; /* a thread without Python */
    CHECK(is_blocked_again(p, th, 2, 0));
}

static void test_blocked_again(void)
{
    struct process p = {.sampler = sampler_new(&options), .codes = code_cache_new(false), .info = &p.own_info};
    struct stack_source src = {.sampler = p.sampler, .py = &p.py, .codes = p.codes};
    struct sampled_thread th = {0};
    struct fake_python fake;
    struct fake_thread t;

    fake_python_init(&fake, 3, 12, 1 << 20);
    t = fake_thread_add(&fake, fake_interp_add(&fake), 0x7000, 42);
    fake_entry_push(&fake, &t);
    fake_frame_push(&fake, &t, fake_code(&fake, "waits", "/a.py", 10), 4, FAKE_PLAIN);
    CHECK_INT(snapshot_new(fake.py.mem, false, &p.snapshot), 0);
    src.snapshot = p.snapshot;
    p.py = fake.py;
    p.py.mem = snapshot_mem(p.snapshot);
    th.tstate = t.tstate;
    th.os.tid = start_blocked(&th.os.task, NULL);
    CHECK(!stack_is_same(&p.stack, &src, &th)); /* there is no last stack */
    th.last.key = p.stack.key;

    check_blocked_again(&p, &th, &fake, &t);

    kill(th.os.tid, SIGKILL);
    CHECK_INT(waitpid(th.os.tid, NULL, 0), th.os.tid);
    task_close(&th.os.task);
    read_plan_free(&th.plan);
    frames_state_free(&th.frames);
    stack_free(&p.stack);
    snapshot_free(p.snapshot);
    code_cache_free(p.codes);
    fake_python_free(&fake);
    sampler_free(p.sampler);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_funcs);
    TEST_RUN(test_counts);
    TEST_RUN(test_shorten);
    TEST_RUN(test_thread_table);
    TEST_RUN(test_thread_churn);
    TEST_RUN(test_process_tree);
    TEST_RUN(test_ran_only_before);
    TEST_RUN(test_sleeps_on);
    TEST_RUN(test_blocked_again);
    return test_finish("test_sample");
}
