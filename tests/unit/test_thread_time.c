/*
 * How CPU time is attributed to stacks: it adds up to the kernel's account, whatever the sampler sees in between.
 */
#include "sample/thread_time.h"

#include "base/clock.h"
#include "test.h"

#include <unistd.h>

#define MS NS_PER_MS

static struct time_parts take(struct thread_time *t, uint64_t run_ms, uint64_t wait_ms, uint64_t now_ms, bool is_exact)
{
    struct sched_stats stats = {.run_count = 1 + run_ms, .run_ns = run_ms * MS, .wait_ns = wait_ms * MS};

    return thread_time_take(t, &stats, is_exact, now_ms * MS, 10 * MS);
}

static void test_exact(void)
{
    struct thread_time t = {.is_known = true, .run_ns = 100 * MS, .core_wait_ns = 5 * MS, .at_ns = 1000 * MS};
    struct time_parts parts = take(&t, 104, 8, 1010, true);

    CHECK_INT(parts.run_ns, 4 * MS);
    CHECK_INT(parts.core_wait_ns, 3 * MS);
    CHECK_INT(parts.elapsed_ns, 10 * MS);
    /* It did not run: nothing to attribute. */
    CHECK_INT(take(&t, 104, 8, 1020, true).run_ns, 0);
    /* Two ticks saw it asleep: the next stack stands for all that it has used since. */
    CHECK_INT(take(&t, 111, 8, 1050, true).run_ns, 7 * MS);
    CHECK_INT(t.run_ns, 111 * MS);
}

/* A thread that runs on another CPU: the kernel's account is up to 10 ms old. The sum is right in the end. */
static void test_lag(void)
{
    struct thread_time t = {.is_known = true, .at_ns = 0};
    uint64_t sum = 0;

    for (uint64_t now = 1; now <= 1000; now++)
        sum += take(&t, now / 10 * 10, 0, now, false).run_ns;
    CHECK(sum >= 990 * MS && sum <= 1010 * MS);
    /* It waits for a core now, and is given no more than that lag. */
    for (uint64_t now = 1001; now <= 2000; now++)
        sum += take(&t, 1000, 0, now, false).run_ns;
    CHECK(sum >= 1000 * MS && sum <= 1010 * MS);
    /* It runs again: what it was given too early is made up for. */
    for (uint64_t now = 2001; now <= 3000; now++)
        sum += take(&t, 1000 + (now - 2000) / 10 * 10, 0, now, false).run_ns;
    CHECK(sum >= 1990 * MS && sum <= 2010 * MS);
}

/* Never more than was used, at any rate and with any share of a core. */
static void test_sums(void)
{
    for (uint64_t step = 1; step <= 50; step += 7)
        for (uint64_t share = 1; share <= 10; share++) {
            struct thread_time t = {.is_known = true};
            uint64_t sum = 0, now = 0;

            for (; now < 5000; now += step)
                sum += take(&t, now * share / 10, 0, now, true).run_ns;
            CHECK_INT(sum, (now - step) * share / 10 * MS);
        }
}

/* A thread that is seen late: what it did before is not what it does now. */
static void test_new_thread(void)
{
    struct thread_time t = {.is_known = true, .is_new = true};
    struct time_parts parts = take(&t, 250, 0, 300, true);

    CHECK_INT(parts.run_ns, 10 * MS);
    CHECK_INT(parts.lost_ns, 240 * MS);
    CHECK_INT(take(&t, 260, 0, 310, true).run_ns, 10 * MS);
    /* It was outside of Python. That time is not lost: it belongs to another thread's work. */
    t = (struct thread_time){.is_known = true, .is_new = true, .was_elsewhere = true};
    parts = take(&t, 250, 0, 300, true);
    CHECK_INT(parts.run_ns, 10 * MS);
    CHECK_INT(parts.lost_ns, 0);
}

static void test_begin(void)
{
    struct task task;
    struct thread_time t;

    task_open(&task, getpid(), getpid());
    thread_time_begin(&t, &task, true, 7);
    CHECK(t.run_ns == 0 && t.at_ns == 7);
    thread_time_begin(&t, &task, false, 8);
    CHECK(t.at_ns == 8 && !t.is_new);
    task_close(&task);
}

static void test_competes(void)
{
    struct thread_time t = {.is_known = true};
    struct sched_stats stats = {.run_count = 1};

    /* With free cores, a thread waits only while we pause it. */
    for (int i = 0; i < 100; i++) {
        stats.run_count++;
        stats.run_ns += 5 * MS;
        stats.wait_ns += 40 * NS_PER_US;
        CHECK(!thread_time_competes(&t, &stats));
    }
    stats.wait_ns += 100 * MS;
    CHECK(thread_time_competes(&t, &stats));
    /* That is forgotten in time. */
    for (int i = 0; i < 1000; i++) {
        stats.run_count++;
        stats.run_ns += 5 * MS;
        thread_time_competes(&t, &stats);
    }
    CHECK(!thread_time_competes(&t, &stats));
}

/* This thread runs, so it has been taken off a CPU once less often than put on one. */
static void test_last_run(void)
{
    struct task task = {.pid = getpid(), .tid = getpid(), TASK_NO_FILES};
    struct task_run before, after;
    struct sched_stats stats;

    for (int i = 0; i < 10000; i++) {
        if (task_last_run(&task, &before) < 0 || task_sched_stats(&task, &stats) < 0 ||
            task_last_run(&task, &after) < 0)
            return;
        if (before.switches == after.switches)
            break;
    }
    CHECK_INT(stats.run_count, before.switches + 1);
    CHECK(before.charged_ns <= after.charged_ns && after.charged_ns - before.charged_ns < NS_PER_S);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_exact);
    TEST_RUN(test_lag);
    TEST_RUN(test_sums);
    TEST_RUN(test_new_thread);
    TEST_RUN(test_begin);
    TEST_RUN(test_competes);
    TEST_RUN(test_last_run);
    return test_finish("test_thread_time");
}
