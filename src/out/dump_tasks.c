/*
 * Prints tasks and greenlets as text: a tree by who awaits whom, with equal ones folded.
 */
#include "base/text.h"
#include "out/dump_private.h"
#include "out/task_tree.h"

#include <inttypes.h>
#include <string.h>

#define STEP          4  /* columns per level of the tree */
#define PARENTS_MAX   32 /* of a running greenlet */
#define INDENT_MAX    80 /* deeper levels are not indented further */
#define NAMES_SHOWN   3  /* of a group */
#define CYCLE_SHOWN   12
#define NAME_BYTES    96
#define SECONDS_BYTES 32

struct printer {
    const struct task_set *set;
    const struct dump_options *options;
    FILE *out;
    size_t loops; /* whose headings are printed */
};

static unsigned indent_of(size_t depth)
{
    return depth * STEP < INDENT_MAX ? (unsigned)depth * STEP : INDENT_MAX;
}

static void put_name(const struct printer *p, uint32_t at)
{
    const struct async_task *task = &p->set->tasks[at];
    char name[NAME_BYTES];

    if (!task->name) {
        fprintf(p->out, "0x%" PRIx64, task->addr);
        return;
    }
    text_copy_safe(name, sizeof(name), task->name);
    fprintf(p->out, "\"%s\"", name);
}

/* Unnamed greenlets have the name of the function that they were started with. */
static bool have_one_name(const struct printer *p, const uint32_t *tasks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!p->set->tasks[tasks[i]].name || p->set->tasks[tasks[i]].name != p->set->tasks[tasks[0]].name)
            return false;
    return true;
}

static void put_names(const struct printer *p, const uint32_t *tasks, size_t n)
{
    if (have_one_name(p, tasks, n)) {
        put_name(p, tasks[0]);
        return;
    }
    for (size_t i = 0; i < n && i < NAMES_SHOWN; i++) {
        fputs(i ? ", " : "", p->out);
        put_name(p, tasks[i]);
    }
    if (n > NAMES_SHOWN) {
        fputs(n > NAMES_SHOWN + 1 ? ", ..., " : ", ", p->out);
        put_name(p, tasks[n - 1]);
    }
}

/* ---- what a group waits for ---- */

static void format_seconds(char to[SECONDS_BYTES], double seconds)
{
    if (seconds < 10)
        snprintf(to, SECONDS_BYTES, "%.1f s", seconds);
    else if (seconds < 600)
        snprintf(to, SECONDS_BYTES, "%.0f s", seconds);
    else if (seconds < 36000)
        snprintf(to, SECONDS_BYTES, "%.0f min", seconds / 60);
    else
        snprintf(to, SECONDS_BYTES, "%.3g h", seconds / 3600);
}

static void put_sleep(const struct printer *p, const struct task_group *g)
{
    char from[SECONDS_BYTES], to[SECONDS_BYTES];
    double least = -1, most = -1;
    bool is_left = true;

    fputs("sleeping", p->out);
    for (size_t i = 0; i < g->n; i++) {
        const struct task_wait *w = &p->set->tasks[g->tasks[i]].wait;

        if (w->seconds < 0)
            return;
        is_left &= w->is_left;
        least = !i || w->seconds < least ? w->seconds : least;
        most = !i || w->seconds > most ? w->seconds : most;
    }
    format_seconds(from, least);
    format_seconds(to, most);
    fprintf(p->out, "%s%s", is_left ? ", " : " for ", from);
    if (strcmp(from, to) != 0)
        fprintf(p->out, " to %s", to);
    fputs(is_left ? " left" : "", p->out);
}

static size_t awaited_tasks(const struct printer *p, const struct task_group *g)
{
    size_t n = 0;

    for (size_t i = 0; i < g->n; i++)
        n += p->set->tasks[g->tasks[i]].n_awaits - p->set->tasks[g->tasks[i]].n_in_groups;
    return n;
}

static void put_tasks(const struct printer *p, const struct task_group *g)
{
    const struct async_task *task = &p->set->tasks[g->tasks[0]];
    size_t n = awaited_tasks(p, g);

    if (strcmp(task->wait.kind, "task") == 0 && g->n > 1) {
        fputs("each waiting for a task", p->out);
        return;
    }
    fputs("waiting for ", p->out);
    if (strcmp(task->wait.kind, "task") == 0 && n == 1)
        fputs("task ", p->out), put_name(p, p->set->tasks[g->tasks[0]].awaits[0]);
    else if (n)
        fprintf(p->out, "%zu task%s", n, n == 1 ? "" : "s");
    else
        fputs("futures", p->out);
    if (task->wait.what && strcmp(task->wait.kind, "task") != 0) {
        fputs(" in ", p->out);
        text_print_safe(p->out, task->wait.what);
    }
}

/* How many different objects the tasks of a group wait for, up to 2. */
static size_t count_objects(const struct printer *p, const struct task_group *g)
{
    for (size_t i = 1; i < g->n; i++)
        if (p->set->tasks[g->tasks[i]].wait.object != p->set->tasks[g->tasks[0]].wait.object)
            return 2;
    return 1;
}

/* The tasks that hold the lock that a group waits for. */
static void put_holders(const struct printer *p, const struct task_wait *w)
{
    if (!w->n_held_by)
        return;
    fputs(w->is_owner ? ", held by " : ", likely held by ", p->out);
    if (w->n_held_by > 1)
        fprintf(p->out, "%zu tasks: ", w->n_held_by);
    put_names(p, w->held_by, w->n_held_by);
}

static void put_object(const struct printer *p, const struct task_group *g, bool always)
{
    const struct task_wait *w = &p->set->tasks[g->tasks[0]].wait;

    fputs("waiting for ", p->out);
    text_print_safe(p->out, w->what ? w->what : w->kind);
    if (!w->object)
        return;
    if (count_objects(p, g) > 1)
        fputs(always ? ", of several objects" : "", p->out);
    else if (always || g->n > 1)
        fprintf(p->out, ", %s 0x%" PRIx64, g->n > 1 ? "all at" : "at", w->object);
    if (count_objects(p, g) == 1)
        put_holders(p, w);
}

static bool same_text(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

static void put_word(const struct printer *p, const char *before, const char *word)
{
    if (!word)
        return;
    fputs(before, p->out);
    text_print_safe(p->out, word);
}

/* One socket; or how many, and their common peer. */
static void put_sockets(const struct printer *p, const struct task_group *g)
{
    const struct task_wait *w = &p->set->tasks[g->tasks[0]].wait;
    bool one_peer = w->peer && *w->peer;

    if (g->n == 1) {
        fputs("waiting for a socket", p->out);
        if (w->has_fd)
            fprintf(p->out, ", fd %" PRId64, w->number);
        put_word(p, " ", w->protocol);
        put_word(p, " ", w->local);
        put_word(p, " -> ", w->peer);
        return;
    }
    for (size_t i = 1; i < g->n; i++)
        one_peer &= same_text(w->peer, p->set->tasks[g->tasks[i]].wait.peer);
    fputs("waiting for sockets", p->out);
    if (one_peer) {
        put_word(p, ", all ", w->protocol);
        put_word(p, " -> ", w->peer);
    }
}

/* A job in a thread, and the function that it runs if all tasks of the group have the same. */
static void put_job(const struct printer *p, const struct task_group *g, const char *text)
{
    const struct task_wait *w = &p->set->tasks[g->tasks[0]].wait;

    fputs(text, p->out);
    if (w->what) {
        fputs(", ", p->out);
        text_print_safe(p->out, w->what);
        fputs("()", p->out);
    }
    if (w->is_queued)
        fputs(", which has not started", p->out);
}

static void put_wait(const struct printer *p, const struct task_group *g)
{
    const struct task_wait *w = &p->set->tasks[g->tasks[0]].wait;

    if (!w->kind)
        fputs("waiting", p->out);
    else if (strcmp(w->kind, "sleep") == 0)
        put_sleep(p, g);
    else if (strcmp(w->kind, "task") == 0 || strcmp(w->kind, "tasks") == 0)
        put_tasks(p, g);
    else if (strcmp(w->kind, "socket") == 0)
        put_sockets(p, g);
    else if (strcmp(w->kind, "process") == 0 && w->number && g->n == 1)
        fprintf(p->out, "waiting for process %" PRId64, w->number);
    else if (strcmp(w->kind, "process") == 0)
        fputs("waiting for a process", p->out);
    else if (strcmp(w->kind, "executor") == 0)
        put_job(p, g, "waiting for a job in an executor");
    else if (strcmp(w->kind, "thread") == 0)
        put_job(p, g, "waiting for a worker thread");
    else if (strcmp(w->kind, "connections") == 0)
        fputs("waiting for connections", p->out);
    else
        put_object(p, g, strcmp(w->kind, "future") != 0);
}

/* Of cancel scopes. */
static void put_cancel(const struct printer *p, const struct task_group *g)
{
    const struct async_task *task = &p->set->tasks[g->tasks[0]];
    char text[SECONDS_BYTES];
    double least = task->seconds_to_cancel;

    if (task->is_cancelled) {
        fputs("; cancelled", p->out);
        return;
    }
    for (size_t i = 0; i < g->n; i++) {
        if (!p->set->tasks[g->tasks[i]].has_deadline)
            return;
        if (p->set->tasks[g->tasks[i]].seconds_to_cancel < least)
            least = p->set->tasks[g->tasks[i]].seconds_to_cancel;
    }
    format_seconds(text, least);
    fprintf(p->out, g->n > 1 ? "; the first is cancelled in %s" : "; cancelled in %s", text);
}

static void put_state(const struct printer *p, const struct task_group *g)
{
    static const struct {
        enum dump_style style;
        const char *text;
    } all[] = {[TASK_NEW] = {STYLE_ACTIVE, "not started"},
               [TASK_READY] = {STYLE_ACTIVE, "ready to run"},
               [TASK_RUNNING] = {STYLE_HAS_GIL, "running, see its thread"},
               [TASK_WAITING] = {STYLE_WAITING, NULL}};
    const struct async_task *task = &p->set->tasks[g->tasks[0]];
    bool sleeps = task->wait.kind && strcmp(task->wait.kind, "sleep") == 0;

    dump_style(p->options, sleeps ? STYLE_IDLE : all[task->state].style, p->out);
    if (all[task->state].text)
        fputs(all[task->state].text, p->out);
    else if (task->type && !task->wait.kind)
        fputs("suspended", p->out);
    else
        put_wait(p, g);
    dump_style(p->options, STYLE_NONE, p->out);
    put_cancel(p, g);
    if (task->unsure)
        fputs("; not sure, it ran meanwhile", p->out);
    if (g->n == 1 && task->n_awaited_by > 1)
        fprintf(p->out, "; %zu tasks wait for it", task->n_awaited_by);
}

/* ---- groups ---- */

static void put_loop(const struct printer *p, const struct task_loop *loop)
{
    fputs(loop->is_greenlets ? "\nGreenlets" : "\nEvent loop", p->out);
    if (loop->running && loop->os_thread_id > 0)
        fprintf(p->out, " of thread %d", (int)loop->os_thread_id);
    else if (loop->running)
        fprintf(p->out, " of thread 0x%" PRIX64, loop->thread_id);
    else
        fputs(", not running", p->out);
    fprintf(p->out, loop->is_greenlets ? " (%zu)" : loop->n == 1 ? " (%zu task)" : " (%zu tasks)", loop->n);
    if (loop->is_trio) {
        fputs(": trio", p->out);
    } else if (loop->type) {
        fputs(": ", p->out);
        text_print_safe(p->out, loop->type);
    }
    putc('\n', p->out);
}

static void put_above(const struct printer *p, const struct task_group *g, unsigned indent)
{
    fprintf(p->out, "%*s[awaits ", (int)indent, "");
    if (g->n_above == 1) {
        put_name(p, g->one_above);
        fputs(", shown above]\n", p->out);
    } else {
        fprintf(p->out, "%zu tasks that are shown above]\n", g->n_above);
    }
}

static void put_kind(const struct printer *p, const struct async_task *task)
{
    if (!task->type)
        fputs("Task ", p->out);
    else if (task->is_main)
        fputs("Main greenlet ", p->out);
    else if (strcmp(task->type, "greenlet") == 0)
        fputs("Greenlet ", p->out);
    else {
        text_print_safe(p->out, task->type);
        putc(' ', p->out);
    }
}

static size_t find_task(const struct task_set *set, const struct task_loop *loop, uint64_t addr)
{
    size_t i = loop->first;

    while (i < loop->first + loop->n && set->tasks[i].addr != addr)
        i++;
    return i;
}

/* The stack of a running greenlet, whose frames are those of its thread, goes on in its parent: there it returns to. */
static void put_parents(const struct printer *p, const struct task_group *g, unsigned indent)
{
    const struct task_loop *loop = &p->set->loops[g->loop];
    const struct async_task *task = &p->set->tasks[g->tasks[0]];

    for (int i = 0; i < PARENTS_MAX && task->parent; i++) {
        size_t at = find_task(p->set, loop, task->parent);

        if (at == loop->first + loop->n)
            return;
        task = &p->set->tasks[at];
        fprintf(p->out, "%*s[returns to ", (int)indent, "");
        put_kind(p, task);
        put_name(p, (uint32_t)at);
        fputs("]\n", p->out);
        for (size_t k = 0; k < task->n_frames; k++)
            dump_text_frame(&task->frames[k], p->options, indent, p->out);
    }
}

static void print_group(const struct task_group *g, void *arg)
{
    struct printer *p = arg;
    const struct async_task *task = &p->set->tasks[g->tasks[0]];
    unsigned indent = indent_of(g->depth);

    while (p->loops <= g->loop)
        put_loop(p, &p->set->loops[p->loops++]);
    fprintf(p->out, "%*s", (int)indent, "");
    if (g->n == 1) {
        put_kind(p, task);
        put_name(p, g->tasks[0]);
        fputs(" (", p->out);
        put_state(p, g);
        fputs(")\n", p->out);
    } else {
        fprintf(p->out, "%zu %s like this (", g->n, task->type ? "greenlets" : "tasks");
        put_state(p, g);
        fputs("): ", p->out);
        put_names(p, g->tasks, g->n);
        putc('\n', p->out);
    }
    for (size_t i = 0; i < task->n_frames; i++)
        dump_text_frame(&task->frames[i], p->options, indent + STEP, p->out);
    if (task->type && task->state == TASK_RUNNING)
        put_parents(p, g, indent + STEP);
    if (g->n_above)
        put_above(p, g, indent + STEP);
}

static void print_cycle(const struct task_cycle *cycle, void *arg)
{
    struct printer *p = arg;

    fprintf(p->out,
            cycle->is_likely ? "\nThese %zu tasks probably wait for each other: "
                             : "\nThese %zu tasks wait for each other: ",
            cycle->n);
    for (size_t i = 0; i < cycle->n && i < CYCLE_SHOWN; i++) {
        fputs(!i ? "" : cycle->tangled ? ", " : " -> ", p->out);
        put_name(p, cycle->tasks[i]);
    }
    if (cycle->n > CYCLE_SHOWN)
        fputs(cycle->tangled ? ", ..." : " -> ...", p->out);
    if (!cycle->tangled) {
        fputs(" -> ", p->out);
        put_name(p, cycle->tasks[0]);
    }
    putc('\n', p->out);
}

int dump_text_tasks(const struct task_set *set, const struct dump_options *options, FILE *out)
{
    struct printer p = {.set = set, .options = options, .out = out};
    long left = task_tree_walk(set, &(struct task_tree_visitor){print_cycle, print_group, &p});

    if (left > 0)
        fprintf(out, "[%ld tasks that are awaited through more than %d others are not shown]\n", left, TASK_TREE_DEPTH);
    if (set->n_new_greenlets || set->n_dead_greenlets)
        fprintf(out, "[greenlets that are not shown: %zu not started, %zu dead]\n", set->n_new_greenlets,
                set->n_dead_greenlets);
    if (set->searched < set->total)
        fprintf(out, "[some greenlets may be missing: spyglass searched only %.1f of %.1f GB of memory]\n",
                (double)set->searched / 1e9, (double)set->total / 1e9);
    if (set->incomplete)
        fputs("[some tasks are missing: they changed while they were read, or cannot be read]\n", out);
    return left < 0 ? (int)left : 0;
}
