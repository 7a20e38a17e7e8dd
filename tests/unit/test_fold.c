/*
 * Floods of short-lived threads and processes: the profile stays within its bounds, and no sample is lost.
 */
#include "profile/profile.h"
#include "test.h"

#define MS    1000000ull
#define MAX   400u
#define FLOOD 20000u

static const struct func func_main = {"<module>", "/src/a.py", "a.py", NULL, 1};
static const struct func func_f = {"f", "/src/a.py", "a.py", NULL, 10};
static const struct frame frames[] = {{.func = &func_f, .line = 12}, {.func = &func_main, .line = 6}};
static const struct proc_info server = {.pid = 1, .command = "python server.py"};

static void add(struct profile *p, const struct proc_info *process, int tid, uint64_t time_ns)
{
    struct trace trace = {.process = process,
                          .thread_id = 0x7f00 + (uint64_t)tid,
                          .os_thread_id = tid,
                          .thread_name = "a name",
                          .frames = frames,
                          .n_frames = 2};

    CHECK_INT(profile_add(p, &trace, time_ns), 0);
    CHECK_INT(profile_enforce_limits(p), 0);
}

/* The samples of the node and all below it. */
static uint64_t sum_below(const struct profile *p, uint32_t top)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < p->n_nodes; i++) {
        uint32_t up = (uint32_t)i;

        while (up != 0 && up != top)
            up = p->nodes[up].parent;
        sum += up == top ? p->nodes[i].self : 0;
    }
    return sum;
}

/* The node of a root below `parent`; 0 if there is none. Labels of siblings are unique. */
static uint32_t find_root(const struct profile *p, uint32_t parent, const char *label)
{
    uint32_t found = 0;

    for (size_t i = 1; i < p->n_nodes; i++) {
        const char *has = p->frames[p->nodes[i].frame].label;

        if (p->nodes[i].parent == parent && has && strcmp(has, label) == 0) {
            CHECK_INT(found, 0);
            found = (uint32_t)i;
        }
    }
    return found;
}

static void check_bounds(const struct profile *p)
{
    CHECK(p->n_threads <= MAX);
    CHECK(p->n_frames <= 3 * MAX);
    CHECK(p->n_nodes <= 6 * MAX);
}

static void test_threads(void)
{
    struct profile *p =
        profile_new(&(struct profile_options){.interval_ns = 10 * MS, .threads = true, .max_threads = MAX});
    size_t bad = 0;

    for (unsigned i = 0; i < FLOOD; i++) {
        add(p, &server, (int)i + 2, i * MS);
        if (i % 2)
            add(p, &server, 1, i * MS);
        bad += p->n_threads > MAX;
    }
    CHECK_INT(bad, 0);
    check_bounds(p);
    CHECK(p->folded > FLOOD - MAX && p->folded < FLOOD);
    CHECK_INT(p->samples, FLOOD + FLOOD / 2);
    CHECK_INT(sum_below(p, 0), p->samples);
    CHECK_INT(sum_below(p, find_root(p, 0, "thread (1): a name")), FLOOD / 2);
    CHECK_INT(sum_below(p, find_root(p, 0, "[other threads]")), p->folded);
    CHECK_INT(find_root(p, 0, "[other processes]"), 0);
    profile_free(p);
}

/* A thread that was merged and is seen again is one of its own again. */
static void test_thread_returns(void)
{
    struct profile *p =
        profile_new(&(struct profile_options){.interval_ns = 10 * MS, .threads = true, .max_threads = MAX});

    for (unsigned i = 0; i <= MAX; i++)
        add(p, &server, (int)i + 1, i * MS);
    CHECK_INT(find_root(p, 0, "thread (1): a name"), 0);
    CHECK(find_root(p, 0, "thread (401): a name") != 0);
    for (int i = 0; i < 5; i++)
        add(p, &server, 1, MAX * MS);
    CHECK_INT(sum_below(p, find_root(p, 0, "thread (1): a name")), 5);
    CHECK_INT(sum_below(p, 0), p->samples);
    profile_free(p);
}

/* Without roots and without a timeline, nobody sees the threads. */
static void test_no_roots(void)
{
    struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10 * MS, .max_threads = MAX});

    for (unsigned i = 0; i < FLOOD; i++)
        add(p, &server, (int)i + 1, i * MS);
    check_bounds(p);
    CHECK_INT(p->n_nodes, 3);
    CHECK_INT(p->nodes[2].self, FLOOD);
    profile_free(p);
}

/* Frees the processes that the profile does not refer to, as record does. */
static void forget(const struct profile *p, struct proc_info **processes, size_t n)
{
    const struct proc_info **used;
    size_t n_used, at = 0;

    if (profile_list_processes(p, &used, &n_used) < 0)
        abort();
    CHECK(n_used <= 3 * MAX);
    for (size_t i = 1; i < n_used; i++)
        CHECK(used[i - 1] <= used[i]);
    for (size_t i = 0; i < n; i++) {
        for (at = 0; processes[i] && at < n_used && used[at] != processes[i]; at++)
            continue;
        if (processes[i] && at == n_used) {
            memset(processes[i], 0xff, sizeof(**processes)); /* whoever reads it crashes */
            free(processes[i]);
            processes[i] = NULL;
        }
    }
    free(used);
}

static void check_processes(bool threads, bool timeline)
{
    struct profile *p = profile_new(&(struct profile_options){
        .interval_ns = 10 * MS, .processes = true, .threads = threads, .timeline = timeline, .max_threads = MAX});
    struct proc_info **processes = calloc(FLOOD, sizeof(*processes));
    uint64_t folded = 0, visible;
    uint32_t root, other;

    if (!processes)
        abort();
    for (unsigned i = 0; i < FLOOD / 4; i++) {
        processes[i] = calloc(1, sizeof(**processes));
        *processes[i] = (struct proc_info){.pid = (int)i + 2, .command = "python child.py", .parent_info = &server};
        add(p, &server, 1, i * MS);
        add(p, processes[i], (int)i + 2, i * MS);
        add(p, processes[i], (int)FLOOD + (int)i, i * MS);
        if (p->folded != folded)
            forget(p, processes, i + 1);
        folded = p->folded;
    }
    check_bounds(p);
    CHECK(folded > 0);
    root = find_root(p, 0, "process 1:\"python server.py\"");
    other = find_root(p, root, "[other processes]");
    CHECK(root != 0 && other != 0);
    CHECK_INT(sum_below(p, root), p->samples);
    visible = sum_below(p, other);
    CHECK(visible >= folded - MAX &&
          visible <= folded); /* processes of which one thread is kept have [other threads] */
    for (size_t i = 1; i < p->n_nodes; i++)
        CHECK(p->nodes[i].parent != other || p->frames[p->nodes[i].frame].label == NULL);
    profile_free(p);
    for (size_t i = 0; i < FLOOD; i++)
        free(processes[i]);
    free(processes);
}

static void test_processes(void)
{
    check_processes(false, false);
    check_processes(true, false);
    check_processes(true, true);
}

/* A process that reuses the PID of another, with the same command line, shares its root. */
static void test_reused_pid(void)
{
    struct profile *p = profile_new(
        &(struct profile_options){.interval_ns = 10 * MS, .processes = true, .threads = true, .max_threads = MAX});
    struct proc_info *first = malloc(sizeof(*first)), second = {.pid = 7, .command = "x", .parent_info = &server};

    if (!first)
        abort();
    *first = second;
    add(p, first, 7, 0);
    for (unsigned i = 0; i < FLOOD; i++) {
        add(p, &second, 8, i * MS);
        add(p, &server, (int)i + 100, i * MS);
        if (p->folded && first)
            forget(p, &first, 1);
    }
    CHECK(first == NULL);
    CHECK_INT(sum_below(p, find_root(p, find_root(p, 0, "process 1:\"python server.py\""), "process 7:\"x\"")),
              FLOOD + 1);
    profile_free(p);
}

/* All stacks are still there, one after the other. */
static void check_spans(const struct profile *p)
{
    uint64_t count = 0, weight = 0;
    size_t n = 0;

    for (size_t i = 0; i < p->n_threads; i++) {
        const struct profile_thread *t = &p->threads[i];

        n += t->n_spans;
        for (size_t k = 0; k < t->n_spans; k++) {
            count += t->spans[k].count;
            weight += t->spans[k].weight_ns;
            CHECK(t->spans[k].time_ns <= t->spans[k].end_ns);
            CHECK(k == 0 || t->spans[k - 1].end_ns <= t->spans[k].time_ns);
            CHECK(p->frames[p->nodes[t->spans[k].node].frame].func == &func_f);
        }
    }
    CHECK_INT(n, p->n_spans);
    CHECK_INT(count, p->samples);
    CHECK_INT(weight, p->samples * 10 * MS);
}

static void test_timeline(void)
{
    struct profile *p = profile_new(
        &(struct profile_options){.interval_ns = 10 * MS, .timeline = true, .max_threads = MAX, .max_spans = 5000});

    for (unsigned i = 0; i < FLOOD; i++)
        add(p, &server, (int)i + 1, i * MS);
    check_bounds(p);
    CHECK(p->n_spans <= 5000);
    check_spans(p);
    profile_free(p);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_threads);
    TEST_RUN(test_thread_returns);
    TEST_RUN(test_no_roots);
    TEST_RUN(test_processes);
    TEST_RUN(test_reused_pid);
    TEST_RUN(test_timeline);
    return test_finish("test_fold");
}
