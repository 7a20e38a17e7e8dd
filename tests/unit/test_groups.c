/*
 * Groups of equal stacks: golden text of the grouping, properties of the prefix tree, who is elsewhere, what changed between rounds,
 * names of members, and the files that `group` reads, whole and broken.
 */
#include "base/err.h"
#include "base/helper.h"
#include "base/json_read.h"
#include "cmd/dump_group.h"
#include "cmd/process_rank.h"
#include "out/format.h"
#include "out/groups.h"
#include "profile/group_files.h"
#include "test.h"

#include <fcntl.h>
#include <unistd.h>

#define STACK_MAX 8

static const struct dump_options plain = {0};

static struct func func_of(const char *name, const char *file)
{
    return (struct func){
        .name = name, .filename = file, .short_filename = *file == '/' ? strrchr(file, '/') + 1 : file};
}

/* Adds a main thread. `stack` is "inner middle outer", all in /srv/t.py, each followed by its line: "reduce:3 main:9". */
static void add(struct groups *g, struct group_member m, const char *thread, pid_t tid, const char *stack)
{
    struct func funcs[STACK_MAX];
    struct frame frames[STACK_MAX];
    struct trace trace = {.thread_name = thread, .os_thread_id = tid, .frames = frames};
    char text[256], *save = NULL;
    uint32_t member = 0;

    snprintf(text, sizeof(text), "%s", stack);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *colon = strchr(word, ':');

        *colon = '\0';
        funcs[trace.n_frames] =
            func_of(word, strcmp(word, "wait") == 0 ? "/usr/lib/python3.11/threading.py" : "/srv/t.py");
        frames[trace.n_frames] = (struct frame){.func = &funcs[trace.n_frames], .line = atoi(colon + 1)};
        trace.n_frames++;
    }
    CHECK_INT(groups_add_member(g, &m, &member), 0);
    CHECK_INT(groups_add_thread(g, member, &trace, &(struct group_run){.known = true, .count = 5, .ns = 7}), 0);
}

static struct group_member rank_of(int rank)
{
    return (struct group_member){.pid = 100 + rank, .command = "train", .rank = rank, .rank_variable = "RANK"};
}

static struct group_member pid_of(pid_t pid, pid_t parent)
{
    return (struct group_member){.pid = pid, .parent = parent, .command = "python3 x.py"};
}

static void add_rank(struct groups *g, int rank, const char *stack)
{
    add(g, rank_of(rank), "MainThread", 100 + rank, stack);
}

static char *text_of(struct groups *g, bool json)
{
    struct groups_output output = {.options = &plain, .every = 5};
    char *text = NULL;
    size_t len = 0;
    FILE *mem = open_memstream(&text, &len);

    CHECK_INT((json ? groups_write_json : groups_write_text)(g, &output, mem), 0);
    fclose(mem);
    return text;
}

static void check_text(struct groups *g, const char *want)
{
    char *text;

    CHECK_INT(groups_finish(g), 0);
    text = text_of(g, false);
    CHECK_STR(text, want);
    free(text);
    groups_free(g);
}

static void test_outlier(void)
{
    struct groups *g = groups_new();

    for (int i = 0; i < 64; i++)
        add_rank(g, i, i == 3 ? "load:4 step:7 main:20" : "wait:320 reduce:3 step:8 main:20");
    check_text(g, "64 processes\n"
                  "rank 3 is elsewhere: in load (t.py:4)\n"
                  "63 others are in wait (threading.py:320), called in reduce (t.py:3)\n"
                  "\n"
                  "MainThread of 64 ranks (RANK): ranks 0-63 (idle)\n"
                  "    main (t.py:20)\n"
                  "    63: ranks 0-2,4-63 (idle)\n"
                  "        step (t.py:8)\n"
                  "        reduce (t.py:3)\n"
                  "        wait (threading.py:320)\n"
                  "    1: rank 3 (idle)\n"
                  "        step (t.py:7)\n"
                  "        load (t.py:4)\n");
}

/* A stack that is the beginning of another one, and a group within a group. */
static void test_tree(void)
{
    struct groups *g = groups_new();

    add_rank(g, 9, "a:1");
    for (int i = 0; i < 5; i++)
        add_rank(g, i, i < 3 ? "c:3 b:2 a:1" : "d:4 b:2 a:1");
    check_text(g, "6 processes\n"
                  "rank 9 is elsewhere: in a (t.py:1)\n"
                  "5 others are in b (t.py:2)\n"
                  "\n"
                  "MainThread of 6 ranks (RANK): ranks 0-4,9 (idle)\n"
                  "    a (t.py:1)\n"
                  "    1: rank 9 (idle)\n"
                  "        [no further frame]\n"
                  "    5: ranks 0-4 (idle)\n"
                  "        b (t.py:2)\n"
                  "        3: ranks 0-2 (idle)\n"
                  "            c (t.py:3)\n"
                  "        2: ranks 3-4 (idle)\n"
                  "            d (t.py:4)\n");
}

/* Names of those that are elsewhere, "" if none is said to be. */
static void check_common(const char *const *stacks, size_t n, const char *want)
{
    struct groups *g = groups_new();
    struct group_view view;
    uint32_t common;

    for (size_t i = 0; i < n; i++)
        add_rank(g, (int)i, stacks[i]);
    CHECK_INT(groups_finish(g), 0);
    CHECK_INT(groups_view(g, 0, 1, &view), 0);
    common = group_view_common(&view);
    CHECK_STR(common ? g->frames[g->nodes[view.steps[common].node].frame].func.name : "", want);
    group_view_free(&view);
    groups_free(g);
}

static void test_common(void)
{
    check_common((const char *const[]){"b:1 a:1", "c:1 a:1"}, 2, "");                       /* too few */
    check_common((const char *const[]){"b:1 a:1", "b:1 a:1", "c:1 a:1"}, 3, "b");           /* two of three */
    check_common((const char *const[]){"b:1 a:1", "b:1 a:1", "b:1 a:1"}, 3, "");            /* all */
    check_common((const char *const[]){"b:1 a:1", "b:1 a:1", "c:1 a:1", "c:1 a:1"}, 4, ""); /* half */
    check_common((const char *const[]){"b:1 a:1", "c:1 a:1", "d:1 a:1", "e:1 a:1"}, 4, ""); /* each for itself */
    check_common((const char *const[]){"x:1 b:1 a:1", "y:1 b:1 a:1", "z:1 b:1 a:1", "c:1 a:1"}, 4, "b"); /* below b */
    check_common((const char *const[]){"b:1 a:1", "b:2 a:1", "b:1 a:1"}, 3, "b"); /* another line */
}

/* Any set of stacks: each step has as many threads as its callees and itself, and each thread is below its own stack. */
static void test_properties(void)
{
    static const char names[] = "abc";
    struct groups *g = groups_new();
    struct group_view view;
    unsigned seed = 1;

    for (int i = 0; i < 300; i++) {
        char stack[64] = "";

        seed = seed * 1103515245 + 12345;
        for (unsigned k = 0; k <= (seed >> 16) % 5; k++)
            snprintf(stack + strlen(stack), sizeof(stack) - strlen(stack), "%c:%u ", names[(seed >> (20 + k)) % 3],
                     (seed >> k) % 2);
        add_rank(g, i, stack);
    }
    CHECK_INT(groups_finish(g), 0);
    CHECK_INT(g->n_sections, 1);
    CHECK_INT(groups_view(g, 0, 1, &view), 0);
    CHECK_INT(view.n_threads, 300);
    for (uint32_t i = 0; i < view.n_steps; i++) {
        const struct group_step *s = &view.steps[i];
        uint32_t below = s->self, last = UINT32_MAX, children = 0;

        for (uint32_t k = i + 1; k < view.n_steps; k++)
            if (view.steps[k].up == i) {
                CHECK(view.steps[k].n <= last); /* the largest first */
                last = view.steps[k].n;
                below += last;
                children++;
            }
        CHECK_INT(below, s->n);
        CHECK_INT(children, s->n_children);
        for (uint32_t k = s->first; k < s->first + s->n; k++) {
            uint32_t node = view.threads[k]->node;

            while (g->nodes[node].depth > g->nodes[s->node].depth)
                node = g->nodes[node].parent;
            CHECK_INT(node, s->node);
            CHECK_INT(k < s->first + s->self, view.threads[k]->node == s->node);
        }
    }
    group_view_free(&view);
    groups_free(g);
}

static void test_kinds(void)
{
    struct groups *g = groups_new();

    add_rank(g, 0, "a:1");
    add(g, (struct group_member){.pid = 500, .parent = 100, .rank = 0, .rank_variable = "RANK"}, NULL, 500, "a:1");
    add(g, (struct group_member){.pid = 30, .command = "ray::Trainer.step", .rank = 0, .rank_variable = "RANK"}, NULL,
        30, "a:1");
    add(g, (struct group_member){.pid = 31, .command = "ray::Trainer"}, NULL, 31, "a:1");
    add(g, (struct group_member){.pid = 40, .command = "python3 -m dask worker tcp://h:1 --name w-7"}, NULL, 40, "a:1");
    add(g, pid_of(50, 0), NULL, 50, "a:1");
    add(g, pid_of(51, 50), NULL, 51, "a:1");
    add(g,
        (struct group_member){.pid = 52,
                              .parent = 50,
                              .rank = 3,
                              .rank_variable = "RANK",
                              .command = "python3 -c from multiprocessing.resource_tracker import main;main(12)"},
        NULL, 52, "a:1");
    add(g, pid_of(51, 50), "Thread-3 (f)", 53, "b:1");
    add(g, pid_of(51, 50), "Thread-12 (f)", 54, "b:1");
    add(g, (struct group_member){.pid = 60, .rank = 5, .rank_variable = "SLURM_PROCID"}, NULL, 60, "a:1");
    add(g, (struct group_member){.pid = 61, .rank = 5, .rank_variable = "SLURM_PROCID"}, NULL, 61, "a:1");
    check_text(g, "10 processes\n"
                  "\n"
                  "MainThread of 3 processes: pids 50, 60, 61 (idle)\n"
                  "    a (t.py:1)\n"
                  "\n"
                  "MainThread of 2 workers ray::Trainer: pids 30, 31 (idle)\n"
                  "    a (t.py:1)\n"
                  "\n"
                  "MainThread of 1 rank (RANK): rank 0 (idle)\n"
                  "    a (t.py:1)\n"
                  "\n"
                  "MainThread of 1 process below ranks: below rank 0, pid 500 (idle)\n"
                  "    a (t.py:1)\n"
                  "\n"
                  "MainThread of 1 Dask worker: w-7 (idle)\n"
                  "    a (t.py:1)\n"
                  "\n"
                  "MainThread of 1 child process: pid 51 (idle)\n"
                  "    a (t.py:1)\n"
                  "\n"
                  "MainThread of 1 child process (resource tracker): pid 52 (idle)\n"
                  "    a (t.py:1)\n"
                  "\n"
                  "Thread-N (f): 2 threads of 1 child process: pid 51 (idle)\n"
                  "    b (t.py:1)\n");
}

static void test_hosts(void)
{
    struct groups *g = groups_new();

    for (int i = 0; i < 3; i++)
        for (int host = 0; host < 2; host++)
            add(g, (struct group_member){.host = host ? "n1" : "n0", .pid = 7 + i}, NULL, 7 + i, "a:1");
    check_text(g, "6 processes\n"
                  "\n"
                  "MainThread of 6 processes: pids 7, 8, 9 on n0, 7, 8, 9 on n1 (idle)\n"
                  "    a (t.py:1)\n");
}

/* Containers that have the host's name have the same PIDs. */
static void test_containers(void)
{
    struct groups *g = groups_new();

    for (int i = 0; i < 4; i++) {
        struct group_member m = {.host = "n0", .pid = 1, .rank = i, .rank_variable = "RANK"};

        add(g, m, NULL, 1, i == 2 ? "load:1" : "a:1");
        m.pid = 7;
        m.parent = 1;
        add(g, m, NULL, 7, "w:1");
    }
    check_text(g, "8 processes\n"
                  "rank 2 is elsewhere: in load (t.py:1)\n"
                  "3 others are in a (t.py:1)\n"
                  "\n"
                  "MainThread of 4 ranks (RANK): ranks 0-3 (idle)\n"
                  "    3: ranks 0-1,3 (idle)\n"
                  "        a (t.py:1)\n"
                  "    1: rank 2 (idle)\n"
                  "        load (t.py:1)\n"
                  "\n"
                  "MainThread of 4 processes below ranks: below ranks 0-3, pids 7, 7, 7, 7 (idle)\n"
                  "    w (t.py:1)\n");
}

/* LOCAL_RANK is the same on each machine. */
static void test_local_ranks(void)
{
    struct groups *g = groups_new();

    for (int i = 0; i < 8; i++)
        add(g,
            (struct group_member){
                .host = i < 4 ? "n1" : "n2", .pid = 10 + i, .rank = i % 4, .rank_variable = "LOCAL_RANK"},
            NULL, 10 + i, i == 6 ? "load:1" : "a:1");
    check_text(g, "8 processes\n"
                  "rank 2 on n2 is elsewhere: in load (t.py:1)\n"
                  "7 others are in a (t.py:1)\n"
                  "\n"
                  "MainThread of 8 ranks (LOCAL_RANK): ranks 0-3 (idle)\n"
                  "    7: ranks 0-3 (idle)\n"
                  "        a (t.py:1)\n"
                  "    1: rank 2 on n2 (idle)\n"
                  "        load (t.py:1)\n");
}

/* What `dump --json` without --subprocesses says of a rank and its worker. */
static void test_parent_pid(void)
{
    const char *text =
        "[{\"pid\":5,\"os_thread_id\":5,\"hostname\":\"n\",\"rank\":3,\"rank_from\":\"RANK\",\"frames\":[]},"
        "{\"pid\":6,\"os_thread_id\":6,\"hostname\":\"n\",\"rank\":3,\"rank_from\":\"RANK\","
        "\"parent_pid\":5,\"frames\":[],\"process_info\":{\"pid\":6,\"parent\":{\"pid\":4}}}]";
    struct group_file f = {.groups = groups_new(), .name = "a"};

    CHECK_INT(group_file_read(&f, text, strlen(text)), 0);
    check_text(f.groups, "2 processes\n\nMainThread of 1 rank (RANK): rank 3 (idle)\n\n"
                         "MainThread of 1 process below ranks: below rank 3, pid 6 (idle)\n");
}

static void test_rounds(void)
{
    struct groups *g = groups_new();

    for (int round = 0; round < 3; round++) {
        groups_next_round(g);
        add_rank(g, 9, "dropped:1"); /* by a round that fails */
        groups_drop_round(g);
        groups_next_round(g);
        for (int i = 0; i < 6; i++)
            add_rank(g, i, i == 2 ? "load:4 main:20" : i == 4 && round == 1 ? "other:1 main:20" : "reduce:3 main:20");
    }
    check_text(g, "6 processes\n"
                  "rank 2 is elsewhere: in load (t.py:4)\n"
                  "5 others are in reduce (t.py:3)\n"
                  "3 rounds, 5 s apart, MainThread of 6 ranks (RANK):\n"
                  "    1 moved: rank 4\n"
                  "    5 did not run between the rounds: ranks 0-3,5\n"
                  "    1 elsewhere in each round: rank 2\n"
                  "\n"
                  "MainThread of 6 ranks (RANK): ranks 0-5 (idle)\n"
                  "    main (t.py:20)\n"
                  "    5: ranks 0-1,3-5 (idle)\n"
                  "        reduce (t.py:3)\n"
                  "    1: rank 2 (idle)\n"
                  "        load (t.py:4)\n");
}

/* A thread beside the main one is named by its role. */
static void test_side_threads(void)
{
    struct groups *g = groups_new();

    for (int i = 0; i < 3; i++) {
        add(g, pid_of(10 + i, 0), "MainThread", 10 + i, "a:1");
        add(g, pid_of(10 + i, 0), "Thread-7 (mon)", 20 + i, i == 2 ? "load:1" : "b:1");
    }
    check_text(g, "3 processes\n"
                  "Thread-N (mon) of pid 12 is elsewhere: in load (t.py:1)\n"
                  "2 others are in b (t.py:1)\n"
                  "\n"
                  "MainThread of 3 processes: pids 10, 11, 12 (idle)\n"
                  "    a (t.py:1)\n"
                  "\n"
                  "Thread-N (mon) of 3 processes: pids 10, 11, 12 (idle)\n"
                  "    2: pids 10, 11 (idle)\n"
                  "        b (t.py:1)\n"
                  "    1: pid 12 (idle)\n"
                  "        load (t.py:1)\n");
}

/* The threads of a pool are not compared, neither in text nor in JSON. */
static void test_pool(void)
{
    struct groups *g = groups_new();
    char *text;

    for (int round = 0; round < 2; round++) {
        if (round)
            groups_next_round(g);
        for (int i = 0; i < 9; i++)
            add(g, pid_of(10 + i / 3, 0), "pool_1", 20 + i, i == 2 ? "work:1 run:1" : "idle:1 run:1");
    }
    CHECK_INT(groups_finish(g), 0);
    text = text_of(g, false);
    CHECK(!strstr(text, "elsewhere"));
    free(text);
    text = text_of(g, true);
    CHECK(strstr(text, "\"common_frame\": null") && strstr(text, "\"rounds_elsewhere\": 0}"));
    CHECK(!strstr(text, "\"elsewhere\": true") && !strstr(text, "\"rounds_elsewhere\": 2"));
    free(text);
    groups_free(g);
}

/* ---- output ---- */

static void test_json_and_picture(void)
{
    struct groups *g = groups_new();
    struct groups_picture *keep;
    struct json_reader r = {0};
    struct profile *p;
    char *text, *svg = NULL;
    size_t len = 0;
    FILE *mem = open_memstream(&svg, &len);

    for (int i = 0; i < 8; i++)
        add_rank(g, i, i == 3 ? "</script>\x1b[31m:4 main:20" : "reduce:3 main:20");
    CHECK_INT(groups_finish(g), 0);
    text = text_of(g, true);
    r.s = text;
    r.len = strlen(text);
    json_read_skip(&r);
    CHECK(json_read_end(&r));
    CHECK(strstr(text, "\"elsewhere\": true") && !strchr(text, '\x1b'));
    CHECK_INT(groups_draw(g, false, &p, &keep), 0);
    CHECK_INT(p->samples, 8);
    CHECK_INT(format_by_name("flamegraph")->write(p, &(struct out_options){.title = "t", .exporter = "e"}, mem), 0);
    fclose(mem);
    CHECK(strstr(svg, "ranks 0-2,4-7 (7 samples, 87.50%)") != NULL);
    CHECK(strstr(svg, "MainThread of 8 ranks (RANK) (8 samples, 100.00%)") != NULL);
    CHECK(!strchr(svg, '\x1b'));
    json_read_free(&r);
    free(text);
    free(svg);
    profile_free(p);
    groups_picture_free(keep);
    groups_free(g);
}

/* ---- input ---- */

static void check_file(const char *text, int want, size_t threads, const char *why)
{
    struct group_file f = {.groups = groups_new(), .name = "a"};

    CHECK_INT(group_file_read(&f, text, strlen(text)), want);
    CHECK_INT(f.n_threads, threads);
    if (want < 0)
        CHECK_STR(f.why, why);
    groups_free(f.groups);
}

#define FRAME "{\"name\":\"f\",\"filename\":\"/a.py\",\"line\":3}"
#define TEXT_DUMP                                                                                                      \
    "Process 12: python3 x.py\nPython v3.11.2 (/usr/bin/python3)\n\nThread 12 (idle): \"MainThread\"\n    f "          \
    "(a.py:3)\n"                                                                                                       \
    "        Arguments:\n            x: g (b.py:4)\n"

static void test_files(void)
{
    check_file("[{\"pid\":3,\"frames\":[" FRAME "]}]", 0, 1, NULL);
    check_file("[{\"pid\":3,\"frames\":[]}] \n[{\"frames\":[" FRAME "]}]", 0, 2, NULL);
    check_file("[]", ERR_DUMP, 0, "no thread has frames: expected the output of `dump --json`");
    check_file("[{\"pid\":3}]", ERR_DUMP, 0, "no thread has frames: expected the output of `dump --json`");
    check_file("", ERR_DUMP, 0, "the file is empty");
    check_file(" \n", ERR_DUMP, 0, "the file is empty");
    check_file("hello\n", ERR_DUMP, 0, "no thread found: expected the output of `dump` or `dump --json`");
    check_file("[{\"frames\":[" FRAME "]},{\"frames\":[]", ERR_DUMP, 1, "the text ends too early");
    check_file("[{\"frames\":[" FRAME "]} {}]", ERR_DUMP, 1, "expected a comma");
    check_file("[{\"frames\":[" FRAME "]}] x", ERR_DUMP, 1, "not JSON");
    check_file("[{\"parent\":\"frames\",\"process_info\":{\"parent\":\"pid\"},\"frames\":[" FRAME "]}]", 0, 1, NULL);
    check_file(TEXT_DUMP, 0, 1, NULL);
    check_file("\xef\xbb\xbf" TEXT_DUMP TEXT_DUMP, 0, 2, NULL);
    check_file("Thread 12 (idle)\n    f (a.py:3)\n", ERR_DUMP, 0,
               "no thread found: expected the output of `dump` or `dump --json`");
}

/* The same threads, as JSON and as text, are the same groups. */
static void test_text_equals_json(void)
{
    struct group_file f = {.groups = groups_new(), .name = "a"};
    const char *json =
        "[{\"pid\":13,\"os_thread_id\":13,\"frames\":[{\"name\":\"f\",\"filename\":\"a.py\",\"line\":3}]}]";

    CHECK_INT(group_file_read(&f, TEXT_DUMP, strlen(TEXT_DUMP)), 0);
    CHECK_INT(group_file_read(&f, json, strlen(json)), 0);
    check_text(f.groups, "2 processes\n\nMainThread of 2 processes: pids 12, 13 (idle)\n    f (a.py:3)\n");
}

static void test_ray_file(void)
{
    const char *text = "{\"workers\":[{\"node\":\"x\",\"hostname\":\"n1\",\"pid\":5,\"title\":\"A.f\",\"threads\":["
                       "{\"pid\":5,\"os_thread_id\":5,\"name\":\"MainThread\",\"active\":true,\"frames\":[" FRAME "],"
                       "\"process\":null}]}],\"problems\":{}}";
    struct group_file f = {.groups = groups_new(), .name = "a"};

    CHECK_INT(group_file_read(&f, text, strlen(text)), 0);
    check_text(f.groups, "1 process\n\nMainThread of 1 worker ray::A: pid 5 (active)\n    f (/a.py:3)\n");
}

static void test_deep_file(void)
{
    static char text[200000];
    struct group_file f = {.groups = groups_new(), .name = "a"};
    size_t n = 0;

    memset(text, '[', sizeof(text));
    CHECK_INT(group_file_read(&f, text, sizeof(text)), ERR_DUMP);
    CHECK_STR(f.why, "nested too deeply");
    n = (size_t)snprintf(text, sizeof(text), "Process 1: x\nThread 1 (idle)\n");
    while (n + 20 < sizeof(text))
        n += (size_t)snprintf(text + n, sizeof(text) - n, "    f (a.py:3)\n");
    CHECK_INT(group_file_read(&f, text, n), 0);
    CHECK(f.groups->n_nodes > 13000 && f.groups->n_frames == 1);
    groups_free(f.groups);
}

/* Long names are cut. Too many of them end the file: they would all be equal. */
static void test_many_names(void)
{
    size_t line = 4000, lines = 13000, n = 0;
    struct group_file f = {.groups = groups_new(), .name = "a"};
    char *text = malloc(lines * (line + 40) + 64);

    n += (size_t)sprintf(text, "Process 1: x\nThread 1 (idle)\n    ");
    memset(text + n, 'a', 3 * line);
    n += 3 * line;
    n += (size_t)sprintf(text + n, " (b.py:1)\n");
    CHECK_INT(group_file_read(&f, text, n), 0);
    CHECK_INT(strlen(f.groups->frames[0].func.name), GROUPS_TEXT_MAX);
    for (size_t i = 0; i < lines; i++) {
        n += (size_t)sprintf(text + n, "    %zu", i);
        memset(text + n, 'a', line);
        n += line;
        n += (size_t)sprintf(text + n, " (b.py:1)\n");
        if (i == 5)
            CHECK_INT(group_file_read(&f, text, n), 0);
    }
    CHECK_INT(group_file_read(&f, text, n), ERR_BOUNDS);
    free(text);
    groups_free(f.groups);
}

/* ---- live processes ---- */

/* A thread that there was no time for is left out; its process is only if that is all it has. */
static void test_unread_threads(void)
{
    struct func unread = func_of("[not read in time]", ""), main_func = func_of("main", "/srv/t.py");
    struct frame unread_frame = {.func = &unread}, main_frame = {.func = &main_func, .line = 3};
    struct proc_info info = {.pid = getpid(), .command = "python3"}, other = {.pid = getppid(), .command = "python3"};
    struct trace traces[] = {{.process = &info, .n_frames = 1, .frames = &unread_frame},
                             {.process = &info, .os_thread_id = getpid(), .n_frames = 1, .frames = &main_frame},
                             {.process = &other, .n_frames = 1, .frames = &unread_frame}};
    char path[] = "/tmp/test_groups.XXXXXX", text[256] = "";
    int fd = mkstemp(path);
    struct options o = {.group = true, .output = path, .format = format_by_name("raw"), .rounds = 1};
    struct dump_group *group = dump_group_new(&o);
    struct error_text error = {0};

    CHECK_INT(dump_group_add(group, traces, 2, &error), 0);
    CHECK_INT(dump_group_add(group, traces + 2, 1, &error), 0);
    CHECK_INT(dump_group_write(group, &o, &error), 0);
    close(fd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(read(fd, text, sizeof(text) - 1) > 0);
    CHECK(strstr(text, "MainThread of 1 process") && strstr(text, "main (t.py:3)") && !strstr(text, "not read"));
    close(fd);
    unlink(path);
    dump_group_free(group);
    helper_end();
}

/* ---- the JSON reader ---- */

static const char *json_error(const char *text)
{
    struct json_reader r = {.s = text, .len = strlen(text)};
    const char *why;

    json_read_skip(&r);
    json_read_end(&r);
    why = r.why;
    json_read_free(&r);
    return why;
}

static void test_json_reader(void)
{
    static const char *const good[] = {
        "1",         "-0.5e+7", "\"\"", "[]", "{}", " [1, {\"a\": [true, null]}, false] ", "\"\\ud83d\\ude00\\/\\n\"",
        "[[],[[]]]", "1E9"};
    static const char *const bad[] = {"",           "01",    "1.",       "-",           "[1,]",    "{\"a\"}",
                                      "{\"a\":1,}", "{1:2}", "[1 2]",    "\"a",         "\"\\x\"", "\"\n\"",
                                      "nul",        "[}",    "]",        "\"\\u12g4\"", "1 2",     "+1",
                                      "tru",        "[1",    "{\"a\":1", "'a'",         "1e",      "NaN"};
    struct json_reader r = {.s = "\"a\\u0000\\ud800\xff\\u00e9\"", .len = 22};
    const char *s = "";
    int64_t n = 0;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        CHECK_STR(json_error(good[i]), NULL);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(json_error(bad[i]) != NULL);
    r.len = strlen(r.s);
    CHECK(json_read_string(&r, &s));
    CHECK_STR(s, "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9");
    json_read_free(&r);
    r = (struct json_reader){.s = "-12", .len = 3};
    CHECK(json_read_integer(&r, &n) && n == -12);
    r = (struct json_reader){.s = "99999999999999999999", .len = 20};
    CHECK(!json_read_integer(&r, &n) && json_read_end(&r) && n == -12);
}

/* ---- ranks ---- */

static void test_ranks(void)
{
    static const struct {
        const char *environ;
        size_t len;
        int64_t rank;
        const char *variable;
    } cases[] = {
#define CASE(text, rank, variable) {text, sizeof(text) - 1, rank, variable}
        CASE("SLURM_PROCID=7\0RANK=3\0LOCAL_RANK=1", 3, "RANK"),
        CASE("A=1\0OMPI_COMM_WORLD_RANK=12\0", 12, "OMPI_COMM_WORLD_RANK"),
        CASE("RANK=x\0PMI_RANK=2", 2, "PMI_RANK"),
        CASE("RANK=\0XRANK=4\0RANK =5", 0, NULL),
        CASE("RANK=-1\0RANK=99999999999", 0, NULL),
        CASE("", 0, NULL),
#undef CASE
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct process_rank found = process_rank_parse(cases[i].environ, cases[i].len);

        CHECK_STR(found.variable, cases[i].variable);
        if (found.variable)
            CHECK_INT(found.rank, cases[i].rank);
    }
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_outlier);
    TEST_RUN(test_tree);
    TEST_RUN(test_common);
    TEST_RUN(test_properties);
    TEST_RUN(test_kinds);
    TEST_RUN(test_hosts);
    TEST_RUN(test_containers);
    TEST_RUN(test_local_ranks);
    TEST_RUN(test_parent_pid);
    TEST_RUN(test_rounds);
    TEST_RUN(test_side_threads);
    TEST_RUN(test_pool);
    TEST_RUN(test_json_and_picture);
    TEST_RUN(test_files);
    TEST_RUN(test_text_equals_json);
    TEST_RUN(test_ray_file);
    TEST_RUN(test_deep_file);
    TEST_RUN(test_many_names);
    TEST_RUN(test_unread_threads);
    TEST_RUN(test_json_reader);
    TEST_RUN(test_ranks);
    return test_finish("test_groups");
}
