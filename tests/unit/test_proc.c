/*
 * target/: parsing /proc. Synthetic maps, and this process for the rest.
 */
#include "base/err.h"
#include "target/mem.h"
#include "target/proc.h"
#include "target/task.h"
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct proc_maps parse(const char *text)
{
    struct proc_maps maps = {0};
    char *copy = strdup(text);

    if (!copy)
        abort();
    CHECK_INT(proc_maps_parse(copy, &maps), 0);
    return maps;
}

static void test_maps_plain(void)
{
    struct proc_maps m =
        parse("00400000-00401000 r--p 00000000 08:01 1234                               /usr/bin/python3\n"
              "00401000-00500000 r-xp 00001000 08:01 1234                               /usr/bin/python3\n"
              "00500000-00600000 rw-p 00000000 00:00 0 \n"
              "7ffc0000-7ffd0000 rw-p 00000000 00:00 0                                  [stack]\n"
              "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]\n");

    CHECK_INT(m.n, 5);
    CHECK_INT(m.items[0].start, 0x400000);
    CHECK_INT(m.items[0].end, 0x401000);
    CHECK(m.items[0].readable && !m.items[0].writable && !m.items[0].executable && !m.items[0].deleted);
    CHECK(m.items[0].device == (8ull << 32 | 1) && m.items[0].inode == 1234);
    CHECK_STR(m.items[0].path, "/usr/bin/python3");
    CHECK(m.items[1].executable && m.items[1].offset == 0x1000);
    CHECK_STR(m.items[2].path, "");
    CHECK(m.items[2].writable);
    CHECK_STR(m.items[3].path, "[stack]");
    CHECK(m.items[4].start == 0xffffffffff600000 && !m.items[4].readable);
    proc_maps_free(&m);
}

static void test_maps_paths(void)
{
    struct proc_maps m = parse("1000-2000 r-xp 00000000 08:01 1    /opt/my python/bin/a b\n"
                               "2000-3000 r-xp 00000000 08:01 2    /opt/gone (deleted)\n"
                               "3000-4000 r-xp 00000000 08:01 3    /opt/gone (deleted) (deleted)\n"
                               "4000-5000 r-xp 00000000 08:01 4    /opt/new\\012line\n"
                               "5000-6000 rw-s 00000000 00:05 5    /dev/zero (deleted)\n"
                               "6000-7000 rw-s 00000000 00:05 6    (deleted)\n"
                               "7000-8000 r-xp 00000000 08:01 7    /opt/\xff\x01\xc3\n");

    CHECK_INT(m.n, 7);
    CHECK_STR(m.items[0].path, "/opt/my python/bin/a b");
    CHECK(m.items[1].deleted && !m.items[0].deleted);
    CHECK_STR(m.items[1].path, "/opt/gone");
    CHECK_STR(m.items[2].path, "/opt/gone (deleted)");
    CHECK_STR(m.items[3].path, "/opt/new\\012line");
    CHECK(m.items[4].deleted);
    CHECK_STR(m.items[5].path, "(deleted)");
    CHECK_STR(m.items[6].path, "/opt/\xff\x01\xc3");
    proc_maps_free(&m);
}

/* Invalid lines are skipped; the others are kept. */
static void test_maps_bad(void)
{
    struct proc_maps m = parse("\n"
                               "1000-2000 r-xp 00000000 08:01 1 /a\n"
                               "nonsense\n"
                               "3000-2000 r-xp 00000000 08:01 1 /backwards\n"
                               "3000-3000 r-xp 00000000 08:01 1 /empty\n"
                               "3000-4000\n"
                               "3000-4000 r-xp\n"
                               "3000-4000 r-xp 00000000 08:01\n"
                               "fffffffffffffffff0000-fffffffffffffffffffffff r-xp 0 08:01 1 /over\n"
                               "8000-9000 r-xp 00000000 08:01 99999999999999999999999999 /inode\n"
                               "9000-a000 r-xp 00000000 08:01 3 /last");

    for (size_t i = 0; i < m.n; i++)
        CHECK(m.items[i].end > m.items[i].start && m.items[i].path != NULL);
    CHECK(m.n >= 2);
    CHECK_STR(m.items[m.n - 1].path, "/last");
    proc_maps_free(&m);
    m = parse("");
    CHECK_INT(m.n, 0);
    proc_maps_free(&m);
}

/* Truncated at every length: each complete line is there. */
static void test_maps_cut(void)
{
    static const char text[] = "1000-2000 r--p 00000000 08:01 1 /bin/a\n2000-3000 r-xp 00001000 08:01 1 /bin/a\n";
    size_t line = strlen(text) / 2;

    for (size_t len = 0; len < sizeof(text); len++) {
        char *copy = strndup(text, len);
        struct proc_maps m;

        if (!copy)
            abort();
        CHECK_INT(proc_maps_parse(copy, &m), 0);
        CHECK(m.n >= len / line && m.n <= 2);
        proc_maps_free(&m);
    }
}

static const struct proc_map *find_map(const struct proc_maps *maps, const void *p)
{
    for (size_t i = 0; i < maps->n; i++)
        if (maps->items[i].start <= (uintptr_t)p && (uintptr_t)p < maps->items[i].end)
            return &maps->items[i];
    return NULL;
}

static void test_maps_self(void)
{
    struct proc_maps m;
    const struct proc_map *code, *stack;

    CHECK_INT(proc_maps_read(getpid(), &m), 0);
    code = find_map(&m, (const void *)(uintptr_t)&test_maps_self);
    stack = find_map(&m, &m);
    CHECK(code && code->executable && code->inode != 0 && strstr(code->path, "test_proc"));
    CHECK(stack && stack->writable && !stack->executable);
    proc_maps_free(&m);
    CHECK_INT(proc_maps_read(0x7ffffff0, &m), ERR_NO_PROCESS);
}

static void test_stat_kernel_thread(void)
{
    /* The second process has kthreadd's name, but not PF_KTHREAD in its flags. */
    static const char kernel_thread[] = "3 (kworker/R-rcu_gp) I 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0 0 -20 1 0 24 0 0";
    static const char process[] = "77 (kthreadd) S 2 0 0 0 -1 4194560 0 0 0 0 0 0 0 0 0 -20 1 0 24 0 0";
    struct proc_stat st;

    CHECK_INT(proc_stat_parse(kernel_thread, &st), 0);
    CHECK(st.is_kernel_thread && st.parent == 2 && st.start_time == 24);
    CHECK_INT(proc_stat_parse(process, &st), 0);
    CHECK(!st.is_kernel_thread && st.parent == 2 && st.start_time == 24);
    CHECK_INT(proc_stat_read(getpid(), 0, &st), 0);
    CHECK(!st.is_kernel_thread);
    CHECK_INT(proc_stat_parse("3 (cut) S 2 0 0", &st), ERR_NO_PROCESS);
    CHECK_INT(proc_stat_parse("", &st), ERR_NO_PROCESS);
}

/* A name that looks like the fields after it. */
static void test_stat_name(void)
{
    static const char *const names[] = {"plain", ") R 1", "a) (b", ") Z 0 0 0 0 0", "((((", "))))"};
    struct proc_stat before, st;
    struct task task;
    struct task_look look;

    CHECK_INT(proc_stat_read(getpid(), 0, &before), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        prctl(PR_SET_NAME, names[i]);
        CHECK_INT(proc_stat_read(getpid(), getpid(), &st), 0);
        CHECK_INT(st.parent, getppid());
        CHECK_INT(st.state, 'R');
        CHECK(st.start_time == before.start_time && st.start_time > 0);
        task_open(&task, getpid(), getpid());
        CHECK_INT(task_look(&task, &look), 0);
        CHECK_INT(look.state, 'R');
        CHECK(look.cpu >= 0 && look.cpu < (int)sysconf(_SC_NPROCESSORS_CONF));
        task_close(&task);
    }
    CHECK_INT(proc_stat_read(0x7ffffff0, 0, &st), ERR_NO_PROCESS);
}

static void test_status(void)
{
    struct proc_status st;

    CHECK_INT(proc_status_read(getpid(), 0, &st), 0);
    CHECK(st.uid_real == getuid() && st.uid_effective == geteuid());
    CHECK(st.gid_real == getgid() && st.gid_effective == getegid());
    CHECK_INT(st.ns_pid, getpid());
    CHECK_INT(proc_status_read(0x7ffffff0, 0, &st), ERR_NO_PROCESS);
}

/* A thread that waits until it is asked to exit. */
struct waiter {
    pthread_t thread;
    int wake[2], ready[2];
    pid_t tid;
};

static void *waiter_run(void *arg)
{
    struct waiter *w = arg;
    char byte = 0;

    prctl(PR_SET_NAME, ") S 9 9");
    w->tid = (pid_t)syscall(SYS_gettid);
    if (write(w->ready[1], &byte, 1) != 1 || read(w->wake[0], &byte, 1) != 1)
        abort();
    return NULL;
}

static void waiter_start(struct waiter *w)
{
    char byte;

    if (pipe(w->wake) < 0 || pipe(w->ready) < 0 || pthread_create(&w->thread, NULL, waiter_run, w) != 0 ||
        read(w->ready[0], &byte, 1) != 1)
        abort();
}

static void waiter_end(struct waiter *w)
{
    if (write(w->wake[1], "", 1) != 1)
        abort();
    pthread_join(w->thread, NULL);
    for (int i = 0; i < 2; i++) {
        close(w->wake[i]);
        close(w->ready[i]);
    }
}

static void test_tasks(void)
{
    struct waiter w;
    struct task task;
    pid_t *tids;
    size_t n;
    bool main_seen = false, other_seen = false;
    struct task_look look = {0};
    struct sched_stats turns, again;

    waiter_start(&w);
    CHECK_INT(proc_tasks_read(getpid(), &tids, &n), 0);
    CHECK(n >= 2);
    for (size_t i = 0; i < n; i++) {
        main_seen |= tids[i] == getpid();
        other_seen |= tids[i] == w.tid;
    }
    CHECK(main_seen && other_seen);
    free(tids);
    task_open(&task, getpid(), w.tid);
    while (task_look(&task, &look) == 0 && look.state == 'R') /* it may still be entering its read */
        sched_yield();
    CHECK_INT(look.state, 'S');
    if (task_sched_stats(&task, &turns) == 0) { /* not every kernel has the count */
        CHECK_INT(task_sched_stats(&task, &again), 0);
        CHECK(turns.run_count == again.run_count && turns.run_count > 0 && turns.run_ns == again.run_ns);
    }
    waiter_end(&w);
    while (syscall(SYS_tgkill, getpid(), w.tid, 0) == 0) /* joined, but the kernel may need a moment to remove it */
        sched_yield();
    CHECK_INT(task_look(&task, &look), ERR_NO_PROCESS);
    task_close(&task);
    task_open(&task, getpid(), 0x7ffffff0);
    CHECK_INT(task_look(&task, &look), ERR_NO_PROCESS);
    CHECK_INT(task_sched_stats(&task, &turns), ERR_UNSUPPORTED);
    task_close(&task);
    CHECK_INT(proc_tasks_read(0x7ffffff0, &tids, &n), ERR_NO_PROCESS);
}

/* A child that waits for the end of its standard input; its name and arguments are hostile. */
static pid_t child_start(int pipe_fd[2])
{
    pid_t pid;

    if (pipe(pipe_fd) < 0)
        abort();
    pid = fork();
    if (pid == 0) {
        char byte;

        close(pipe_fd[1]);
        if (read(pipe_fd[0], &byte, 1) < 0)
            _exit(1);
        _exit(0);
    }
    close(pipe_fd[0]);
    return pid;
}

static void test_children(void)
{
    int pipe_fd[2];
    pid_t pid = child_start(pipe_fd), *pids;
    size_t n, found = 0;
    struct proc_stat st;
    char *command;

    CHECK_INT(proc_children_read(getpid(), &pids, &n), 0);
    for (size_t i = 0; i < n; i++)
        found += pids[i] == pid;
    CHECK_INT(found, 1);
    free(pids);
    CHECK_INT(proc_pids_read(&pids, &n), 0);
    found = 0;
    for (size_t i = 0; i < n; i++)
        found += pids[i] == pid || pids[i] == getpid();
    CHECK_INT(found, 2);
    free(pids);
    CHECK_INT(proc_stat_read(pid, 0, &st), 0);
    CHECK_INT(st.parent, getpid());
    close(pipe_fd[1]);
    while (proc_stat_read(pid, 0, &st) == 0 && st.state != 'Z')
        sched_yield();
    CHECK_INT(st.state, 'Z'); /* a zombie: no command line, only a name */
    CHECK_INT(proc_command_read(pid, &command), 0);
    CHECK(command[0] == '[' && command[strlen(command) - 1] == ']');
    free(command);
    waitpid(pid, NULL, 0);
    CHECK_INT(proc_command_read(pid, &command), ERR_NO_PROCESS);
    CHECK_INT(proc_children_read(0x7ffffff0, &pids, &n), ERR_NO_PROCESS);
}

static void test_command(void)
{
    char *command, *exe;

    CHECK_INT(proc_command_read(getpid(), &command), 0);
    CHECK(strstr(command, "test_proc") != NULL);
    free(command);
    CHECK_INT(proc_exe_read(getpid(), &exe), 0);
    CHECK(exe[0] == '/' && strstr(exe, "test_proc") != NULL);
    free(exe);
    CHECK_INT(proc_exe_read(0x7ffffff0, &exe), ERR_NO_PROCESS);
}

/* Our own memory, read through the kernel like that of another process. */
static void test_mem_live(void)
{
    static const char text[] = "something to read";
    struct mem_span spans[200];
    char copies[200][8], buf[sizeof(text)];
    struct mem *m;
    addr_t word = 0;

    CHECK_INT(mem_live_open(getpid(), &m), 0);
    CHECK_INT(mem_read(m, (addr_t)(uintptr_t)text, buf, sizeof(text)), 0);
    CHECK_STR(buf, text);
    CHECK_INT(mem_read(m, 0, buf, 8), ERR_READ);
    CHECK_INT(mem_read(m, UINT64_MAX - 3, buf, 8), ERR_READ);
    CHECK_INT(mem_read(m, 1ull << 63, buf, 8), ERR_READ);
    CHECK_INT(mem_read_addr(m, 8, &word), ERR_READ);
    CHECK_INT(word, 0);
    for (size_t i = 0; i < 200; i++) /* more spans than one call takes, one of them unreadable */
        spans[i] = (struct mem_span){i == 150 ? 8 : (addr_t)(uintptr_t)text + i % 9, copies[i], i % 9};
    spans[150].len = 8;
    CHECK_INT(mem_readv(m, spans, 200), 150);
    CHECK(memcmp(copies[149], text + 149 % 9, 149 % 9) == 0);
    CHECK_INT(mem_readv(m, spans, 0), 0);
    CHECK(mem_close(m) == NULL);
    CHECK(mem_close(NULL) == NULL);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_maps_plain);
    TEST_RUN(test_maps_paths);
    TEST_RUN(test_maps_bad);
    TEST_RUN(test_maps_cut);
    TEST_RUN(test_maps_self);
    TEST_RUN(test_command);
    TEST_RUN(test_stat_name);
    TEST_RUN(test_stat_kernel_thread);
    TEST_RUN(test_status);
    TEST_RUN(test_tasks);
    TEST_RUN(test_children);
    TEST_RUN(test_mem_live);
    return test_finish("test_proc");
}
