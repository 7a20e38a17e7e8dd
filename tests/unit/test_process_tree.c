/*
 * Process trees: each way to learn of new processes, places in the tree, the effects of exec, callers of sudo.
 */
#include "test.h"

#include "sample/sampled_roots.h"
#include "target/descriptors.h"
#include "target/launch.h"
#include "target/proc.h"
#include "target/sudo_caller.h"
#include "tree/new_pids.h"
#include "tree/proc_connector.h"
#include "tree/process_node.h"
#include "tree/profilers.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A child that runs until it is killed; it exists when this returns. */
static pid_t child_start(void)
{
    pid_t pid = fork();

    if (pid == 0)
        for (;;)
            pause();
    return pid;
}

static void child_end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static bool has(const struct new_pids *b, pid_t pid)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->items[i] == pid)
            return true;
    return false;
}

static void check_new_pids(struct new_pids *b)
{
    pid_t old = child_start(), pid;

    CHECK_INT(new_pids_read(b), 0);
    CHECK(has(b, old));
    pid = child_start();
    CHECK_INT(new_pids_read(b), 0);
    CHECK(has(b, pid) && !has(b, old));
    CHECK_INT(new_pids_read(b), 0);
    CHECK(!has(b, pid));
    child_end(pid);
    child_end(old);
}

static void test_new_pids(void)
{
    struct new_pids b;

    CHECK_INT(new_pids_open(&b), 0);
    CHECK(b.fd >= 0);
    check_new_pids(&b);
    new_pids_close(&b);
    CHECK_INT(new_pids_open_listing(&b), 0);
    CHECK(b.fd < 0 && b.n_listed > 0);
    check_new_pids(&b);
    new_pids_close(&b);
}

/* A PID that was not visible is reported again, but not forever, and not more often because it is polled again. */
static void test_new_pids_retry(void)
{
    struct new_pids b;
    pid_t pid;
    int reported = 0;

    CHECK_INT(new_pids_open(&b), 0);
    pid = child_start();
    CHECK_INT(new_pids_read(&b), 0);
    for (size_t i = 0; i < b.n; i++)
        new_pids_retry(&b, i);
    for (int look = 0; look < 100; look++) {
        CHECK_INT(new_pids_read(&b), 0);
        for (size_t i = 0; i < b.n; i++)
            if (b.items[i] == pid) {
                reported++;
                new_pids_retry(&b, i);
            }
    }
    CHECK(reported >= 2 && reported < 50);
    new_pids_retry(&b, b.n); /* there is no such item */
    new_pids_retry(&b, SIZE_MAX);
    child_end(pid);
    new_pids_close(&b);
}

/* PIDs wrap around; a large range is listed rather than probed one by one. */
static void test_new_pids_wraparound(void)
{
    struct new_pids b;
    pid_t pid;

    CHECK_INT(new_pids_open(&b), 0);
    pid = child_start();
    b.last = pid > 2000 ? pid - 2000 : 1;
    CHECK_INT(new_pids_read(&b), 0);
    CHECK(has(&b, pid));
    b.last = pid + 1000; /* as if the PIDs had wrapped around since */
    CHECK_INT(new_pids_read(&b), 0);
    CHECK(has(&b, pid));
    CHECK(has(&b, getpid()) == (getpid() <= b.last || getpid() > pid + 1000));
    child_end(pid);
    new_pids_close(&b);
}

static void test_proc_connector(void)
{
    struct proc_connector f;
    struct process_event e;
    bool seen = false;
    pid_t pid;
    int r;

    if (!proc_connector_open(&f)) {
        CHECK_INT(f.fd, -1); /* a kernel or a namespace without it */
        return;
    }
    pid = child_start();
    while ((r = proc_connector_next(&f, &e)) > 0)
        seen |= e.parent == getpid() && e.pid == pid;
    CHECK(seen && r == 0);
    child_end(pid);
    proc_connector_close(&f);
    CHECK_INT(f.fd, -1);
}

static void test_process_node(void)
{
    struct process_node *all = NULL, *root = process_node_new(NULL, 1), *child = process_node_new(root, 2),
                        *grandchild = process_node_new(child, 3);

    CHECK(root->depth == 0 && grandchild->depth == 2);
    CHECK(grandchild->info.parent == 2 && grandchild->info.parent_info == &child->info);
    CHECK_STR(grandchild->info.command, "");
    /* Ancestors outlive their processes for as long as they are referenced. */
    CHECK(process_node_release(root) == NULL);
    CHECK(process_node_release(child) == NULL);
    CHECK_INT(grandchild->info.parent_info->parent_info->pid, 1);
    process_node_pin(grandchild, &all);
    process_node_pin(grandchild, &all);
    process_node_release(grandchild);
    CHECK_INT(grandchild->info.parent_info->pid, 2);
    process_node_free_all(&all);
    CHECK(all == NULL && process_node_release(NULL) == NULL);
}

/* Only those that are still used stay, with their ancestors. */
static void test_process_node_unpin(void)
{
    struct process_node *all = NULL, *root = process_node_new(NULL, 1), *nodes[4];
    const struct proc_info *used[1];

    for (int i = 0; i < 4; i++) {
        nodes[i] = process_node_new(root, 2 + i);
        process_node_pin(nodes[i], &all);
    }
    process_node_release(root);
    process_node_release(nodes[1]); /* 1 and 2 have exited */
    process_node_release(nodes[2]);
    used[0] = &nodes[2]->info;
    process_node_unpin(&all, used, 1);
    CHECK(all == nodes[2] && all->previous == NULL && all->pinned);
    CHECK(!nodes[0]->pinned && nodes[0]->refs == 1);
    CHECK_INT(root->refs, 3);
    process_node_pin(nodes[0], &all);
    CHECK(all == nodes[0] && all->previous == nodes[2]);
    process_node_unpin(&all, NULL, 0);
    CHECK(all == NULL);
    process_node_release(nodes[0]);
    process_node_release(nodes[3]);
}

static void test_process_node_command(void)
{
    struct process_node *node = process_node_new(NULL, getpid());

    CHECK_INT(process_node_read_command(node), 0);
    CHECK(strstr(node->info.command, "test_process_tree") != NULL);
    node->info.pid = 0x7ffffff0;
    CHECK_INT(process_node_read_command(node), 0); /* what was known stays */
    CHECK(strstr(node->info.command, "test_process_tree") != NULL);
    process_node_release(node);
}

/* The same after a fork, different after an exec. */
static void test_image(void)
{
    struct proc_stat own, st;
    int ends[2];
    pid_t pid;
    char byte;

    CHECK_INT(proc_stat_read(getpid(), 0, &own), 0);
    CHECK(own.image != 0 && own.group == getpgrp() && own.session == getsid(0) && own.parent == getppid());
    pid = child_start();
    CHECK_INT(proc_stat_read(pid, 0, &st), 0);
    CHECK(st.image == own.image && st.parent == getpid());
    child_end(pid);
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pid = fork();
    if (pid == 0) {
        execlp("sleep", "sleep", "1000", NULL);
        _exit(1);
    }
    close(ends[1]);
    CHECK_INT(read(ends[0], &byte, 1), 0); /* exec has closed it */
    close(ends[0]);
    /* exec closes descriptors before it sets the addresses of the new image. */
    while (proc_stat_read(pid, 0, &st) == 0 && (st.image == 0 || st.image == own.image))
        usleep(1000);
    CHECK(st.image != 0 && st.image != own.image);
    CHECK(!profilers_match(pid) && profilers_match(getpid()));
    kill(pid, SIGKILL);
    while (proc_stat_read(pid, 0, &st) == 0 && st.state != 'Z')
        usleep(1000);
    CHECK_INT(st.image, 0);
    waitpid(pid, NULL, 0);
}

static void test_cpu(void)
{
    pid_t pid = child_start();
    uint64_t before, after;
    struct proc_stat st;

    while (proc_stat_read(pid, 0, &st) == 0 && st.state != 'S')
        usleep(1000);
    /* A thread is in the state S shortly before it leaves its CPU. Once it has, its clock stands still. */
    do {
        before = proc_cpu_ns(pid);
        usleep(1000);
        after = proc_cpu_ns(pid);
    } while (before != after);
    CHECK(before > 0);
    CHECK(proc_cpu_ns(getpid()) > 0);
    child_end(pid);
    CHECK_INT(proc_cpu_ns(pid), 0);
}

static void *rest(void *arg)
{
    while (!arg)
        pause();
    return NULL;
}

static void test_threads_are_no_processes(void)
{
    struct proc_status st;
    pthread_t thread;
    pid_t *tids;
    size_t n;

    CHECK_INT(pthread_create(&thread, NULL, rest, NULL), 0);
    CHECK_INT(proc_tasks_read(getpid(), &tids, &n), 0);
    for (size_t i = 0; i < n; i++) {
        CHECK_INT(proc_status_read(tids[i], 0, &st), 0);
        CHECK_INT(st.process, getpid());
    }
    free(tids);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
}

static void test_descriptors(void)
{
    struct rlimit old, low;
    int fds[64];

    CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
    low = old;
    low.rlim_cur = 100;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    for (int i = 0; i < 64; i++)
        fds[i] = descriptors_keep(open("/dev/null", O_RDONLY | O_CLOEXEC));
    CHECK(fds[0] >= 0 && fds[63] == -1);
    CHECK_INT(descriptors_keep(-1), -1);
    for (int i = 0; i < 64; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    descriptors_raise_limit();
    CHECK(getrlimit(RLIMIT_NOFILE, &low) == 0 && low.rlim_cur == old.rlim_max);
    setrlimit(RLIMIT_NOFILE, &old);
}

/* A child, its child and so on. */
static void chain_start(pid_t *pids, size_t n)
{
    int fds[2];

    CHECK(pipe(fds) == 0);
    for (size_t i = 0; i < n; i++) {
        pid_t pid = fork(); /* each but the last goes on in the child */

        if (pid == 0) {
            pid = getpid();
            if (write(fds[1], &pid, sizeof(pid)) != sizeof(pid))
                _exit(1);
            if (i + 1 < n)
                continue;
        }
        if (pid == 0 || i > 0)
            for (;;)
                pause();
        break;
    }
    for (size_t i = 0; i < n; i++)
        CHECK(read(fds[0], &pids[i], sizeof(pids[i])) == sizeof(pids[i]));
    close(fds[0]);
    close(fds[1]);
}

static pid_t parent_in(const struct process_tree *t, pid_t pid)
{
    const struct tree_entry *e = process_tree_find(t, pid);

    return !e ? -1 : e->node->up ? e->node->up->info.pid : 0;
}

/* Starts from the last of the chain, a process outside of it, and the first of the chain. */
static void check_roots(struct process_tree *t, const pid_t *chain, pid_t other, size_t n, pid_t up1, pid_t up2)
{
    struct sampled_root roots[] = {{.pid = chain[2]}, {.pid = other}, {.pid = chain[0]}};

    for (size_t i = 0; i < 3; i++)
        CHECK_INT(proc_stat_read(roots[i].pid, 0, &roots[i].st), 0);
    CHECK_INT(sampled_roots_add(t, roots, 3), 0);
    CHECK_INT(t->n, n);
    CHECK_INT(parent_in(t, chain[0]), 0);
    CHECK_INT(parent_in(t, other), 0);
    CHECK_INT(parent_in(t, chain[1]), up1);
    CHECK_INT(parent_in(t, chain[2]), up2);
    process_tree_free(t);
}

/* No process is in the tree twice, and one that descends from another one is below it. */
static void test_roots(void)
{
    struct sampler *s = sampler_new(&(struct sampler_options){0});
    struct process_tree t = {.sampler = s, .manual_attach = true};
    pid_t chain[3], other = child_start();

    chain_start(chain, 3);
    check_roots(&t, chain, other, 3, -1, 0);
    t = (struct process_tree){.sampler = s, .manual_attach = true, .subprocesses = true};
    check_roots(&t, chain, other, 4, chain[0], chain[1]);
    t = (struct process_tree){.sampler = s, .manual_attach = true, .subprocesses = true, .max_depth = 1};
    check_roots(&t, chain, other, 4, chain[0], 0);
    for (size_t i = 0; i < 3; i++)
        kill(chain[i], SIGKILL);
    waitpid(chain[0], NULL, 0);
    child_end(other);
    sampler_free(s);
}

static bool finds(const char *uid, const char *gid, struct sudo_caller *c)
{
    uid ? setenv("SUDO_UID", uid, 1) : unsetenv("SUDO_UID");
    gid ? setenv("SUDO_GID", gid, 1) : unsetenv("SUDO_GID");
    return sudo_caller_find(c);
}

static void test_sudo_caller(void)
{
    static const char *const bad[] = {"",   "0",  "-1",  "4294967295", "4294967296", "99999999999999",
                                      "1x", " 1", "0x1", "+1"};
    struct sudo_caller c = {0};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(!finds(bad[i], "5", &c));
    CHECK(!finds("5", "", &c) && !finds("5", NULL, &c) && !finds(NULL, "5", &c) && !finds("5", "x", &c));
    if (getuid() != 0) {
        CHECK(!finds("4000000001", "4000000002", &c));
        return;
    }
    CHECK(finds("4000000001", "4000000002", &c));
    CHECK(c.uid == 4000000001u && c.gid == 4000000002u && !c.name && !c.home);
    CHECK(c.n_groups == 1 && c.groups[0] == 4000000002u);
    sudo_caller_free(&c);
    CHECK(!c.groups);
    finds(NULL, NULL, &c);
}

static void test_launch(void)
{
    char *const argv[] = {"sh", "-c", "exit 7", NULL}, *const missing[] = {"/no/such/program", NULL};
    char *const killed[] = {"sh", "-c", "kill -9 $$", NULL};
    struct launch l;
    struct err_note note = {0};

    CHECK_INT(launch_start(missing, &(struct launch_options){0}, &l, &note), ERR_LAUNCH);
    CHECK_INT(note.facts.reason, REASON_EXEC);
    CHECK_INT(note.facts.error, ENOENT);
    CHECK_STR(note.facts.path, "/no/such/program");
    CHECK_INT(launch_start(argv, &(struct launch_options){0}, &l, &note), 0);
    while (!l.ended)
        launch_wait(&l, 1000000);
    CHECK_INT(launch_exit_status(&l), 7);
    CHECK(!launch_is_stopped(&l));
    launch_close(&l);
    CHECK_INT(launch_start(killed, &(struct launch_options){0}, &l, &note), 0);
    while (!l.ended)
        launch_wait(&l, 1000000);
    CHECK_INT(launch_exit_status(&l), 128 + SIGKILL);
    launch_close(&l);
}

/* spyglass reaps orphans that it adopts, and does not take one for the program. */
static void test_launch_orphans(void)
{
    char *const argv[] = {"sh", "-c", "sh -c 'sleep 0.1 & exit 0'; sleep 0.3; exit 5", NULL};
    struct launch l;
    siginfo_t info = {0};

    CHECK_INT(launch_start(argv, &(struct launch_options){.adopt = true}, &l, NULL), 0);
    CHECK(l.adopts);
    while (!l.ended)
        launch_wait(&l, 10000000);
    CHECK_INT(launch_exit_status(&l), 5);
    launch_poll(&l);
    CHECK(waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0); /* no child is left */
    launch_close(&l);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_new_pids);
    TEST_RUN(test_new_pids_retry);
    TEST_RUN(test_new_pids_wraparound);
    TEST_RUN(test_proc_connector);
    TEST_RUN(test_process_node);
    TEST_RUN(test_process_node_unpin);
    TEST_RUN(test_process_node_command);
    TEST_RUN(test_image);
    TEST_RUN(test_cpu);
    TEST_RUN(test_threads_are_no_processes);
    TEST_RUN(test_descriptors);
    TEST_RUN(test_roots);
    TEST_RUN(test_sudo_caller);
    TEST_RUN(test_launch);
    TEST_RUN(test_launch_orphans);
    return test_finish("test_process_tree");
}
