/*
 * The profile: the tree, its synthetic roots, the timeline, and the tree as it is shown.
 */
#include "base/err.h"
#include "profile/process_label.h"
#include "profile/profile.h"
#include "profile/tree.h"
#include "test.h"

#define MS 1000000ull

static const struct func func_main = {"<module>", "/src/a.py", "a.py", NULL, 1};
static const struct func func_f = {"f", "/src/a.py", "a.py", NULL, 10};
static const struct func func_g = {"g", "/src/b.py", "b.py", NULL, 20};
static const struct func func_g2 = {"g", "/other/b.py", "b.py", NULL, 20};
static const struct func lambda1 = {"<lambda>", "/src/a.py", "a.py", NULL, 3};
static const struct func lambda2 = {"<lambda>", "/src/a.py", "a.py", NULL, 4};

static const struct proc_info parent = {.pid = 1, .command = "python a.py", .executable = "/bin/python"};
static const struct proc_info child = {.pid = 2, .command = "python b.py", .parent_info = &parent};

static struct trace make_trace(const struct proc_info *process, int tid, const char *name, const struct frame *frames,
                               size_t n)
{
    return (struct trace){.process = process,
                          .thread_id = 0x7f00 + (uint64_t)tid,
                          .os_thread_id = tid,
                          .thread_name = name,
                          .frames = frames,
                          .n_frames = n};
}

static void test_same_stack_is_one_node(void)
{
    struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10 * MS});
    struct frame frames[] = {{.func = &func_f, .line = 12}, {.func = &func_main, .line = 6}};
    struct trace trace = make_trace(&parent, 1, NULL, frames, 2);

    CHECK_INT(profile_add(p, &trace, 0), 0);
    CHECK_INT(profile_add(p, &trace, 10 * MS), 0);
    CHECK_INT(p->n_nodes, 3);
    CHECK_INT(p->n_frames, 2);
    CHECK_INT(p->samples, 2);
    CHECK_INT(p->nodes[2].self, 2);
    CHECK_INT(p->nodes[2].parent, 1);
    CHECK_INT(p->threads[0].n_spans, 0);
    frames[0].line = 13;
    CHECK_INT(profile_add(p, &trace, 20 * MS), 0);
    CHECK_INT(p->n_nodes, 4);
    trace.n_frames = 0;
    CHECK_INT(profile_add(p, &trace, 30 * MS), 0);
    CHECK_INT(p->samples, 3);
    CHECK(profile_free(p) == NULL);
    CHECK(profile_free(NULL) == NULL);
}

static void test_lines_by_option(void)
{
    struct frame frames[] = {{.func = &func_f, .line = 12}};
    struct trace trace = make_trace(&parent, 1, NULL, frames, 1);
    struct profile *p = profile_new(&(struct profile_options){.by_function = true});

    CHECK_INT(profile_add(p, &trace, 0), 0);
    frames[0].line = 13;
    CHECK_INT(profile_add(p, &trace, 0), 0);
    CHECK_INT(p->n_frames, 1);
    CHECK_INT(p->frames[0].line, 10);
    p = profile_free(p);
    p = profile_new(&(struct profile_options){.no_lines = true});
    CHECK_INT(profile_add(p, &trace, 0), 0);
    CHECK_INT(p->frames[0].line, 0);
    profile_free(p);
}

static void test_roots(void)
{
    struct frame frames[] = {{.func = &func_f, .line = 12}};
    struct trace trace = make_trace(&child, 7, NULL, frames, 1);
    struct profile *p = profile_new(&(struct profile_options){.processes = true, .threads = true});

    CHECK_INT(profile_add(p, &trace, 0), 0);
    CHECK_STR(p->frames[p->nodes[1].frame].label, "process 1:\"python a.py\"");
    CHECK_STR(p->frames[p->nodes[2].frame].label, "process 2:\"python b.py\"");
    CHECK_STR(p->frames[p->nodes[3].frame].label, "thread (7)");
    CHECK(p->frames[p->nodes[4].frame].func == &func_f);
    trace.thread_name = "worker";
    CHECK_INT(profile_add(p, &trace, 0), 0);
    CHECK_STR(p->frames[p->nodes[3].frame].label, "thread (7): worker");
    trace.thread_name = NULL;
    CHECK_INT(profile_add(p, &trace, 0), 0);
    CHECK_STR(p->threads[0].name, "worker");
    CHECK_INT(p->n_nodes, 5);
    trace.process = &parent;
    trace.os_thread_id = 0;
    CHECK_INT(profile_add(p, &trace, 0), 0);
    CHECK_STR(p->frames[p->nodes[5].frame].label, "thread (0x7F07)");
    CHECK_INT(p->nodes[5].parent, 1);
    profile_free(p);
}

static void test_process_labels(void)
{
    static const char *const cases[][2] = {
        {"", ""},
        {"python a.py", "python a.py"},
        {"python -c from m import main; main(5, 6, ['__main__'], **{'sys_path': ['/a', '/b', '/c', '/d']}) -x",
         "python -c from m import main; main(...) -x"},
        {"python -c f(tracker_fd=5, pipe_handle=7) --multiprocessing-fork",
         "python -c f(tracker_fd=5, pipe_handle=7) --multiprocessing-fork"},
        {"a) [1, 2] {x", "a) [1, 2] {x"},
        {"((((", "(((("},
        {"[1234567890123456789012345678901234567890]", "[1234567890123456789012345678901234567890]"},
        {"[12345678901234567890123456789012345678901]", "[...]"},
    };
    char command[2000], *label;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        label = process_label(cases[i][0]);
        CHECK_STR(label, cases[i][1]);
        free(label);
    }
    memset(command, 'x', sizeof(command));
    for (size_t n = PROCESS_LABEL_COLUMNS - 1; n <= PROCESS_LABEL_COLUMNS + 4; n++) {
        command[n] = '\0';
        label = process_label(command);
        CHECK_INT(strlen(label), n < PROCESS_LABEL_COLUMNS ? n : PROCESS_LABEL_COLUMNS);
        CHECK(n <= PROCESS_LABEL_COLUMNS ? strcmp(label, command) == 0
                                         : strcmp(label + PROCESS_LABEL_COLUMNS - 4, "x...") == 0);
        free(label);
        command[n] = 'x';
    }
    strcpy(command, "(");
    for (size_t i = 0; i < 300; i++)
        strcat(command, "\u6f22"); /* two columns, three bytes */
    label = process_label(command);
    CHECK_INT(strlen(label), 1 + 3 * ((PROCESS_LABEL_COLUMNS - 4) / 2) + 3);
    free(label);
}

/* A thread that C code started has a Python thread state, a pthread_t and a name in Python only while it calls Python. */
static void test_root_of_native_thread(void)
{
    struct frame frames[] = {{.func = &func_f, .line = 12}};
    struct trace with = make_trace(&parent, 7, NULL, frames, 1), without = with;
    struct profile *p = profile_new(&(struct profile_options){.threads = true});

    without.thread_id = 0;
    without.thread_name = "comm";
    without.is_kernel_name = true;
    CHECK_INT(profile_add(p, &without, 0), 0);
    CHECK_STR(p->frames[p->nodes[1].frame].label, "thread (7): comm");
    CHECK_INT(profile_add(p, &with, 0), 0);
    CHECK_STR(p->frames[p->nodes[1].frame].label, "thread (7): comm");
    with.thread_name = "worker";
    CHECK_INT(profile_add(p, &with, 0), 0);
    CHECK_INT(profile_add(p, &without, 0), 0);
    CHECK_STR(p->frames[p->nodes[1].frame].label, "thread (7): worker");
    CHECK_INT(p->n_threads, 1);
    profile_free(p);
}

static void test_cycle_of_parents(void)
{
    struct proc_info a = {.pid = 5, .command = "a"}, b = {.pid = 6, .command = "b", .parent_info = &a};
    struct frame frames[] = {{.func = &func_f, .line = 1}};
    struct trace trace = make_trace(&b, 6, NULL, frames, 1);
    struct profile *p = profile_new(&(struct profile_options){.processes = true});

    a.parent_info = &b;
    CHECK_INT(profile_add(p, &trace, 0), 0);
    CHECK(p->n_nodes < 100);
    profile_free(p);
}

static void test_spans(void)
{
    struct frame f[] = {{.func = &func_f, .line = 1}}, g[] = {{.func = &func_g, .line = 2}};
    struct trace in_f = make_trace(&parent, 1, NULL, f, 1), in_g = make_trace(&parent, 1, NULL, g, 1);
    struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10 * MS, .timeline = true});
    struct profile_thread *t;

    CHECK_INT(profile_add(p, &in_f, 0), 0);
    CHECK_INT(profile_add(p, &in_f, 10 * MS), 0);
    CHECK_INT(profile_add(p, &in_f, 25 * MS), 0); /* half an interval late: continues the span */
    CHECK_INT(profile_add(p, &in_f, 41 * MS), 0); /* later than that: a gap */
    CHECK_INT(profile_add(p, &in_g, 50 * MS), 0);
    CHECK_INT(profile_add(p, &in_g, 45 * MS), 0); /* a clock that went backwards */
    t = &p->threads[0];
    CHECK_INT(t->n_spans, 3);
    CHECK_INT(t->spans[0].count, 3);
    CHECK_INT(t->spans[0].end_ns, 35 * MS);
    CHECK_INT(t->spans[1].time_ns, 41 * MS);
    CHECK_INT(t->spans[2].count, 2);
    CHECK_INT(t->spans[2].end_ns, 60 * MS);
    profile_free(p);
}

/* However long it takes until the sampler looks again: if the thread still does the same, there is no gap. If it did
 * something else in between, there is one, however short. */
static void test_order(void)
{
    struct frame f[] = {{.func = &func_f, .line = 1}}, g[] = {{.func = &func_g, .line = 1}};
    struct trace in_f = make_trace(&parent, 1, NULL, f, 1);
    struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10 * MS, .timeline = true});
    struct profile_thread *t;

    in_f.order = TRACE_AFTER_GAP;
    CHECK_INT(profile_add(p, &in_f, 0), 0);
    in_f.order = TRACE_FOLLOWS;
    CHECK_INT(profile_add(p, &in_f, 19 * MS), 0); /* late */
    in_f.weight_ns = 200 * MS;
    CHECK_INT(profile_add(p, &in_f, 219 * MS), 0);
    in_f.weight_ns = 10 * MS;
    in_f.order = TRACE_AFTER_GAP;
    CHECK_INT(profile_add(p, &in_f, 233 * MS), 0); /* there was an idle look at 226 ms */
    in_f.frames = g;
    in_f.order = TRACE_FOLLOWS;
    CHECK_INT(profile_add(p, &in_f, 260 * MS), 0);
    t = &p->threads[0];
    CHECK_INT(t->n_spans, 3);
    CHECK_INT(t->spans[0].time_ns, 0);
    CHECK_INT(t->spans[0].end_ns, 229 * MS);
    CHECK_INT(t->spans[0].weight_ns, 220 * MS);
    CHECK_INT(t->spans[1].time_ns, 233 * MS);
    CHECK_INT(t->spans[1].end_ns, 260 * MS); /* up to the next stack */
    CHECK_INT(t->spans[2].time_ns, 260 * MS);
    profile_free(p);
}

/* With a measure, nodes count nanoseconds, and what the thread did is below its stack. */
static void test_weights(void)
{
    struct frame f[] = {{.func = &func_f, .line = 1}};
    struct trace in_f = make_trace(&parent, 1, NULL, f, 1);
    struct profile *p =
        profile_new(&(struct profile_options){.interval_ns = 10 * MS, .measure = "CPU time", .by_state = true});

    in_f.weight_ns = 3 * MS;
    CHECK_INT(profile_add(p, &in_f, 0), 0);
    in_f.weight_ns = 4 * MS;
    in_f.state = TRACE_WAITING_FOR_GIL;
    CHECK_INT(profile_add(p, &in_f, 10 * MS), 0);
    CHECK_INT(profile_add_unattributed(p, 5 * MS), 0);
    CHECK_INT(p->samples, 2);
    CHECK_INT(p->total, 12 * MS);
    CHECK_STR(p->frames[p->nodes[2].frame].func->name, "[running]");
    CHECK_INT(p->nodes[2].self, 3 * MS);
    CHECK_STR(p->frames[p->nodes[3].frame].func->name, "[waiting for the GIL]");
    CHECK_INT(p->nodes[3].parent, p->nodes[2].parent);
    CHECK_INT(p->nodes[3].self, 4 * MS);
    CHECK_STR(p->frames[p->nodes[4].frame].func->name, "[unattributed CPU time]");
    CHECK_INT(p->nodes[4].parent, 0);
    profile_free(p);
}

static void test_threads_apart(void)
{
    struct frame f[] = {{.func = &func_f, .line = 1}};
    struct trace a = make_trace(&parent, 1, NULL, f, 1), b = make_trace(&child, 1, NULL, f, 1);
    struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10 * MS, .timeline = true});

    for (unsigned int i = 0; i < 1000; i++) {
        a.os_thread_id = b.os_thread_id = (pid_t)i % 100 + 1;
        CHECK(profile_add(p, &a, 0) == 0 && profile_add(p, &b, 0) == 0);
    }
    CHECK_INT(p->n_threads, 200);
    CHECK_INT(p->n_nodes, 2);
    profile_free(p);
}

static void test_path_without_roots(void)
{
    struct frame frames[] = {{.func = &func_f, .line = 12}, {.func = &func_main, .line = 6}};
    struct trace trace = make_trace(&child, 7, "w", frames, 2);
    struct profile *p = profile_new(&(struct profile_options){.processes = true, .threads = true});
    struct profile_path path = {0};

    CHECK_INT(profile_add(p, &trace, 0), 0);
    CHECK_INT(profile_path_fill(&path, p, 5), 0);
    CHECK_INT(path.n, 2);
    CHECK(p->frames[p->nodes[path.nodes[0]].frame].func == &func_main);
    CHECK(p->frames[p->nodes[path.nodes[1]].frame].func == &func_f);
    profile_path_free(&path);
    profile_free(p);
}

static void add_pair(struct profile *p, const struct func *outer, const struct func *inner, int line)
{
    struct frame frames[] = {{.func = inner, .line = line}, {.func = outer, .line = 6}};
    struct trace trace = make_trace(&parent, 1, NULL, frames, 2);

    CHECK_INT(profile_add(p, &trace, 0), 0);
}

static void test_tree_merges_and_sorts(void)
{
    struct profile *p = profile_new(&(struct profile_options){0});
    struct tree *tree;
    uint32_t i;

    add_pair(p, &func_main, &func_g, 2);
    add_pair(p, &func_main, &func_g2, 2); /* the same with short file names */
    add_pair(p, &func_main, &lambda2, 5);
    add_pair(p, &func_main, &lambda1, 5);
    add_pair(p, &func_main, &func_f, 11);
    tree = tree_new(p, false, true);
    CHECK_INT(tree->n_nodes, 5);
    CHECK_INT(tree->nodes[0].total, 5);
    CHECK_INT(tree->max_depth, 2);
    i = tree_next(tree, tree_next(tree, 0, true), true);
    CHECK_STR(p->frames[tree->nodes[i].frame].func->name, "<lambda>");
    CHECK_INT(tree->nodes[i].self, 2);
    i = tree_next(tree, i, true);
    CHECK_STR(p->frames[tree->nodes[i].frame].func->name, "f");
    i = tree_next(tree, i, true);
    CHECK_STR(p->frames[tree->nodes[i].frame].func->name, "g");
    CHECK_INT(tree->nodes[i].total, 2);
    CHECK_INT(tree_next(tree, i, true), 0);
    tree = tree_free(tree);
    tree = tree_new(p, true, true);
    CHECK_INT(tree->n_nodes, 6);
    tree_free(tree);
    profile_free(p);
}

static void test_empty_tree(void)
{
    struct profile *p = profile_new(&(struct profile_options){0});
    struct tree *tree = tree_new(p, false, true);

    CHECK(tree != NULL && tree->n_nodes == 1);
    CHECK_INT(tree_next(tree, 0, true), 0);
    tree_free(tree);
    profile_free(p);
}

/* A million distinct stacks, as three levels of a hundred lines. */
static void test_million_stacks(void)
{
    struct profile *p = profile_new(&(struct profile_options){.interval_ns = 10 * MS});
    struct frame frames[3] = {{.func = &func_g}, {.func = &func_f}, {.func = &func_main}};
    struct trace trace = make_trace(&parent, 1, NULL, frames, 3);
    struct tree *tree;
    int failed = 0;

    for (int i = 0; i < 1000000; i++) {
        frames[0].line = i % 100 + 1;
        frames[1].line = i / 100 % 100 + 1;
        frames[2].line = i / 10000 + 1;
        failed += profile_add(p, &trace, 0) != 0;
    }
    CHECK_INT(failed, 0);
    CHECK_INT(p->n_nodes, 1000000 + 10000 + 100 + 1);
    CHECK_INT(p->n_frames, 300);
    tree = tree_new(p, false, true);
    CHECK_INT(tree->nodes[0].total, 1000000);
    CHECK_INT(tree->n_nodes, p->n_nodes);
    tree_free(tree);
    profile_free(p);
}

/* A limit on nodes: frequent calls stay, rare ones are merged into their callers, and no sample is lost. */
static void test_pruning(void)
{
    struct profile *p =
        profile_new(&(struct profile_options){.interval_ns = MS, .max_nodes = 1000, .threads = true, .timeline = true});
    struct frame often[] = {{.func = &func_f, .line = 12}, {.func = &func_main, .line = 6}};
    struct frame rare[] = {{.func = &func_g, .line = 1}, {.func = &func_main, .line = 7}};
    struct trace busy = make_trace(&parent, 1, "a", often, 2), thin = make_trace(&parent, 2, "b", rare, 2);
    uint64_t self = 0, spans = 0, kept = 0;

    for (unsigned int i = 0; i < 5000; i++) {
        rare[0].line = (int)i + 1;
        thin.key = i + 1;
        busy.key = 1000000;
        CHECK_INT(profile_add(p, &busy, i * MS), 0);
        CHECK_INT(profile_add(p, &thin, i * MS), 0);
        CHECK_INT(profile_enforce_limits(p), 0);
        CHECK(!profile_is_full(p) && p->n_nodes <= 1001);
    }
    CHECK(p->pruned >= 3900);
    for (size_t i = 0; i < p->n_nodes; i++) {
        self += p->nodes[i].self;
        CHECK(i == 0 || p->nodes[i].parent < i);
        if (i > 0 && p->frames[p->nodes[i].frame].func == &func_f)
            kept = p->nodes[i].self;
    }
    CHECK_INT(self, 10000);
    CHECK_INT(kept, 5000);
    for (size_t i = 0; i < p->n_threads; i++)
        for (size_t k = 0; k < p->threads[i].n_spans; k++) {
            spans += p->threads[i].spans[k].count;
            CHECK(p->threads[i].spans[k].node < p->n_nodes);
        }
    CHECK_INT(spans, 10000);
    profile_free(p);
}

/* A limit on spans: fewer, with all samples, still in order. */
static void test_coarsening(void)
{
    struct profile *p = profile_new(&(struct profile_options){.interval_ns = MS, .max_spans = 100, .timeline = true});
    struct frame frames[] = {{.func = &func_f, .line = 12}};
    struct trace trace = make_trace(&parent, 1, NULL, frames, 1);
    uint64_t count = 0, last = 0;

    for (unsigned int i = 0; i < 1000; i++) {
        frames[0].line = (int)(i % 2) + 1;
        CHECK_INT(profile_add(p, &trace, i * MS), 0);
        CHECK_INT(profile_enforce_limits(p), 0);
    }
    CHECK(p->coarsened > 0 && p->threads[0].n_spans <= 101 && p->n_spans == p->threads[0].n_spans);
    for (size_t i = 0; i < p->threads[0].n_spans; i++) {
        count += p->threads[0].spans[i].count;
        CHECK(i == 0 || p->threads[0].spans[i].time_ns >= last);
        last = p->threads[0].spans[i].end_ns;
    }
    CHECK_INT(count, 1000);
    profile_free(p);
}

/* A stack that was added can be added again by its key alone. */
static void test_keys(void)
{
    struct profile *p = profile_new(&(struct profile_options){.interval_ns = MS});
    struct frame frames[] = {{.func = &func_f, .line = 12}};
    struct trace trace = make_trace(&parent, 1, NULL, frames, 1);

    trace.key = 77;
    CHECK(!known_keys_have(profile_known_keys(p), 77));
    CHECK_INT(profile_add(p, &trace, 0), 0);
    CHECK(known_keys_have(profile_known_keys(p), 77) && !known_keys_have(profile_known_keys(p), 78));
    trace.frames = NULL;
    CHECK_INT(profile_add(p, &trace, MS), 0);
    CHECK_INT(p->nodes[1].self, 2);
    trace.key = 78;
    CHECK_INT(profile_add(p, &trace, MS), ERR_INTERNAL);
    profile_free(p);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_same_stack_is_one_node);
    TEST_RUN(test_lines_by_option);
    TEST_RUN(test_roots);
    TEST_RUN(test_root_of_native_thread);
    TEST_RUN(test_cycle_of_parents);
    TEST_RUN(test_spans);
    TEST_RUN(test_order);
    TEST_RUN(test_weights);
    TEST_RUN(test_threads_apart);
    TEST_RUN(test_path_without_roots);
    TEST_RUN(test_tree_merges_and_sorts);
    TEST_RUN(test_empty_tree);
    TEST_RUN(test_million_stacks);
    TEST_RUN(test_pruning);
    TEST_RUN(test_coarsening);
    TEST_RUN(test_keys);
    TEST_RUN(test_process_labels);
    return test_finish("test_profile");
}
