/*
 * pause/perf_regs: the registers of a thread's last context switch match what /proc says about where it waits. Where
 * the kernel does not allow perf events, nothing happens.
 */
#include "base/err.h"
#include "pause/perf_regs.h"
#include "target/task.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Blocks in one read after the other, one byte each. */
static void child_main(int fd)
{
    char byte;

    while (read(fd, &byte, 1) == 1)
        ;
    _exit(0);
}

static void wait_asleep(struct task *task)
{
    struct task_look look = {0};

    while (task_look(task, &look) == 0 && look.state != 'S')
        usleep(1000);
}

static void test_waiting(void)
{
    struct perf_regs s = {0};
    struct task task;
    struct regs regs;
    uint64_t sp, pc;
    int fds[2];
    pid_t pid;

    CHECK_INT(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        close(fds[1]);
        child_main(fds[0]);
    }
    task_open(&task, pid, pid);
    CHECK_INT(perf_regs_read(&s, &regs), ERR_UNSUPPORTED);
    wait_asleep(&task);
    perf_regs_open(&s, pid);
    if (s.ring) {
        CHECK_INT(perf_regs_read(&s, &regs), ERR_UNSUPPORTED); /* it has not run since */
        for (int i = 0; i < 200; i++) {                        /* more than there is room for */
            struct sched_stats before, after;

            task_sched_stats(&task, &before);
            CHECK_INT(write(fds[1], "x", 1), 1);
            for (after = before; after.run_count == before.run_count;)
                task_sched_stats(&task, &after);
            wait_asleep(&task);
            CHECK_INT(perf_regs_read(&s, &regs), 0);
            CHECK(task_waits_at(&task, &sp, &pc) == 0 && regs.r[REGS_SP] == sp && regs.r[REGS_PC] == pc);
            CHECK(regs.r[REGS_DI] == (uint64_t)fds[0]); /* the first argument of read */
        }
    } else {
        test_skip("perf events are not allowed here");
    }
    perf_regs_close(&s);
    CHECK(!s.ring);
    close(fds[1]);
    waitpid(pid, NULL, 0);
    task_close(&task);
    close(fds[0]);
}

/* A thread that does not exist. */
static void test_gone(void)
{
    struct perf_regs s = {0};
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
    perf_regs_open(&s, pid);
    CHECK(!s.ring && s.tried);
    perf_regs_close(&s);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_waiting);
    TEST_RUN(test_gone);
    return test_finish("test_perf_regs");
}
