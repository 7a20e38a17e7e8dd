/*
 * out/task_tree.c: folding, order and cycles of tasks that are linked in every way; and the text made from them.
 */
#include "out/dump.h"
#include "out/task_tree.h"
#include "test.h"

#include <stdarg.h>

#include <stdlib.h>
#include <string.h>

#define MAX 2048

static const struct func handle = {.name = "handle", .filename = "/a.py", .short_filename = "a.py"};
static const struct func query = {.name = "query", .filename = "/a.py", .short_filename = "a.py"};
static const struct frame in_handle = {.func = &handle, .line = 3};
static const struct frame in_query = {.func = &query, .line = 7};

struct world {
    struct async_task tasks[MAX];
    uint32_t links[MAX][8], back[MAX][8];
    char names[MAX][24];
    struct task_loop loop;
    struct task_set set;
};

static struct world *world_new(size_t n)
{
    struct world *w = calloc(1, sizeof(*w));

    for (size_t i = 0; i < n; i++) {
        snprintf(w->names[i], sizeof(w->names[i]), "t%zu", i);
        w->tasks[i] = (struct async_task){.addr = 0x1000 + i * 16,
                                          .name = w->names[i],
                                          .state = TASK_WAITING,
                                          .wait = {.kind = "future", .what = "Future", .seconds = -1},
                                          .frames = &in_handle,
                                          .n_frames = 1,
                                          .awaits = w->links[i],
                                          .awaited_by = w->back[i]};
    }
    w->loop = (struct task_loop){.running = true, .os_thread_id = 42, .n = n};
    w->set = (struct task_set){.loops = &w->loop, .n_loops = 1, .tasks = w->tasks, .n = n};
    return w;
}

static void world_link(struct world *w, uint32_t from, uint32_t to)
{
    w->links[from][w->tasks[from].n_awaits++] = to;
    w->back[to][w->tasks[to].n_awaited_by++] = from;
    w->tasks[from].wait.kind = "task";
}

/* What a walk visits, as text: "cycle 0 1; 2x t0 at 0;". */
struct seen {
    char text[4096];
    size_t n_tasks, n_groups, deepest;
};

__attribute__((format(printf, 2, 3))) static void see(struct seen *s, const char *format, ...)
{
    size_t used = strlen(s->text);
    va_list args;

    va_start(args, format);
    if (used < sizeof(s->text) - 64)
        vsnprintf(s->text + used, 64, format, args);
    va_end(args);
}

static void see_cycle(const struct task_cycle *cycle, void *arg)
{
    see(arg, "%s%s", cycle->is_likely ? "likely " : "", cycle->tangled ? "tangle" : "cycle");
    for (size_t i = 0; i < cycle->n; i++)
        see(arg, " %zu", (size_t)cycle->tasks[i]);
    see(arg, "; ");
}

static void see_group(const struct task_group *group, void *arg)
{
    struct seen *s = arg;

    see(s, "%zux%zu@%zu", (size_t)group->n, (size_t)group->tasks[0], (size_t)group->depth);
    if (group->n_above)
        see(s, "^%zu", (size_t)group->n_above);
    see(s, "; ");
    s->n_tasks += group->n;
    s->n_groups++;
    s->deepest = group->depth > s->deepest ? group->depth : s->deepest;
}

static long walk(const struct world *w, struct seen *s)
{
    *s = (struct seen){0};
    return task_tree_walk(&w->set, &(struct task_tree_visitor){see_cycle, see_group, s});
}

static void test_folding(void)
{
    struct world *w = world_new(7);
    struct seen s;

    w->tasks[5].frames = &in_query;
    w->tasks[6].state = TASK_READY;
    CHECK_INT(walk(w, &s), 0);
    CHECK_STR(s.text, "5x0@0; 1x5@0; 1x6@0; "); /* the largest group first */
    world_link(w, 5, 1);
    world_link(w, 5, 2);
    world_link(w, 6, 2);
    CHECK_INT(walk(w, &s), 0);
    CHECK_STR(s.text, "3x0@0; 1x5@0; 2x1@1; 1x6@0^1; ");
    free(w);
}

static void test_cycles(void)
{
    struct world *w = world_new(8);
    struct seen s;

    world_link(w, 2, 1); /* 1 -> 3 -> 2 -> 1 */
    world_link(w, 1, 3);
    world_link(w, 3, 2);
    world_link(w, 0, 3); /* awaits one of them from outside */
    world_link(w, 4, 5);
    world_link(w, 5, 4);
    world_link(w, 4, 6);
    world_link(w, 6, 4);
    CHECK_INT(walk(w, &s), 0);
    CHECK(strstr(s.text, "cycle 1 3 2; "));
    CHECK(strstr(s.text, "tangle 4 "));
    CHECK_INT(s.n_tasks, 8);
    free(w);
    w = world_new(2);
    world_link(w, 0, 0); /* not possible, but memory may hold anything */
    CHECK_INT(walk(w, &s), 0);
    CHECK_INT(s.n_tasks, 2);
    free(w);
}

/* Two tasks that wait for each other's locks do not await each other: both are at the top. */
static void test_locks(void)
{
    struct world *w = world_new(4);
    uint32_t holders[] = {1, 0, 2, 3};
    struct seen s;

    for (size_t i = 0; i < 2; i++)
        w->tasks[i].wait = (struct task_wait){.kind = "lock",
                                              .what = "Lock.acquire",
                                              .object = 0x10 + i,
                                              .held_by = holders + i,
                                              .n_held_by = 1,
                                              .n_waiting = 1};
    w->tasks[2].wait = (struct task_wait){/* two hold it, so it can still be released */
                                          .kind = "lock", .what = "Semaphore.acquire",
                                          .object = 0x20, .held_by = holders + 2,
                                          .n_held_by = 2, .n_waiting = 1};
    CHECK_INT(walk(w, &s), 0);
    CHECK_STR(s.text, "likely cycle 0 1; 1x2@0; 1x3@0; 1x0@0; 1x1@0; ");
    free(w);
}

/* A parent holds the lock that its child waits for: both wait for each other only if the parent waits for its child, without end. */
static void test_claims(void)
{
    struct world *w = world_new(3);
    uint32_t holder = 0;
    struct seen s;

    world_link(w, 0, 1);
    w->tasks[1].wait = (struct task_wait){.kind = "lock",
                                          .what = "Lock.acquire",
                                          .object = 0x10,
                                          .held_by = &holder,
                                          .n_held_by = 1,
                                          .n_waiting = 1,
                                          .is_owner = true};
    w->tasks[0].wait.kind = "tasks";
    CHECK_INT(walk(w, &s), 0);
    CHECK_STR(s.text, "cycle 0 1; 1x2@0; 1x0@0; 1x1@1; ");
    w->tasks[1].unsure = true; /* the lock may have passed on */
    walk(w, &s);
    CHECK(strncmp(s.text, "likely cycle 0 1; ", 18) == 0);
    w->tasks[1].unsure = false;
    world_link(w, 0, 2); /* which may be the one that is enough, or fail */
    w->tasks[0].wait.kind = "tasks";
    walk(w, &s);
    CHECK(strncmp(s.text, "likely cycle 0 1; ", 18) == 0);
    for (int i = 0; i < 3; i++) {
        w->tasks[i].has_deadline = true;
        walk(w, &s);
        CHECK((strstr(s.text, "cycle") == NULL) == (i < 2));
        w->tasks[i].has_deadline = false;
    }
    w->tasks[1].is_cancelled = true;
    walk(w, &s);
    CHECK(!strstr(s.text, "cycle"));
    w->tasks[1].is_cancelled = false;
    w->tasks[0].wait.kind = "sleep"; /* in the block of a nursery */
    CHECK_INT(walk(w, &s), 0);
    CHECK(!strstr(s.text, "cycle") && s.n_tasks == 3);
    w->tasks[0].wait.kind = "tasks"; /* of another group */
    w->tasks[0].n_in_groups = 2;
    CHECK_INT(walk(w, &s), 0);
    CHECK(!strstr(s.text, "cycle") && s.n_tasks == 3);
    free(w);
}

/* A chain is cut where it is too deep to show, and nothing is visited twice. */
static void test_chain(void)
{
    struct world *w = world_new(MAX);
    struct seen s;

    for (uint32_t i = 0; i + 1 < MAX; i++)
        world_link(w, i, i + 1);
    CHECK_INT(walk(w, &s), MAX - TASK_TREE_DEPTH);
    CHECK_INT(s.n_tasks, TASK_TREE_DEPTH);
    CHECK_INT(s.deepest, TASK_TREE_DEPTH - 1);
    world_link(w, MAX - 1, 0);
    walk(w, &s);
    CHECK(strncmp(s.text, "cycle ", 6) == 0);
    free(w);
}

static char *text_of(const struct world *w)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    CHECK_INT(dump_text_tasks(&w->set, &(struct dump_options){0}, out), 0);
    fclose(out);
    return text;
}

static void test_text(void)
{
    struct world *w = world_new(12);
    char *text;

    world_link(w, 0, 1);
    world_link(w, 1, 0);
    w->tasks[2].wait = (struct task_wait){.kind = "sleep", .seconds = 2.5, .is_left = true};
    w->tasks[3].wait = (struct task_wait){.kind = "lock", .what = "Lock.acquire", .object = 0x7f00};
    w->tasks[3].name = "esc\x1b[31m\n";
    w->set.incomplete = true;
    text = text_of(w);
    CHECK_STR(text, "\nThese 2 tasks wait for each other: \"t0\" -> \"t1\" -> \"t0\"\n"
                    "\nEvent loop of thread 42 (12 tasks)\n"
                    "8 tasks like this (waiting for Future): \"t4\", \"t5\", \"t6\", ..., \"t11\"\n"
                    "    handle (a.py:3)\n"
                    "Task \"t2\" (sleeping, 2.5 s left)\n"
                    "    handle (a.py:3)\n"
                    "Task \"esc\\x1b[31m\\n\" (waiting for Lock.acquire, at 0x7f00)\n"
                    "    handle (a.py:3)\n"
                    "Task \"t0\" (waiting for task \"t1\")\n"
                    "    handle (a.py:3)\n"
                    "    Task \"t1\" (waiting for task \"t0\")\n"
                    "        handle (a.py:3)\n"
                    "        [awaits \"t0\", shown above]\n"
                    "[some tasks are missing: they changed while they were read, or cannot be read]\n");
    free(text);
    free(w);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_folding);
    TEST_RUN(test_cycles);
    TEST_RUN(test_locks);
    TEST_RUN(test_claims);
    TEST_RUN(test_chain);
    TEST_RUN(test_text);
    return test_finish("test_task_tree");
}
