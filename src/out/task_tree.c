/*
 * Tasks -> groups and cycles. Tarjan's algorithm finds the cycles; it keeps its own stack, since a chain of tasks may be long.
 */
#include "out/task_tree.h"

#include "base/err.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define NOT_SEEN UINT32_MAX

struct walk {
    const struct task_set *set;
    const struct task_tree_visitor *visitor;
    uint64_t *keys;
    uint32_t *order, *low, *stack, *path, *next; /* of Tarjan's algorithm */
    uint32_t *cycle_of;                          /* the cycle that a task is in, by its first task; NOT_SEEN: none */
    bool *on_stack, *visited;
    bool claims; /* find cycles that only an exception can end, instead of those that matter for the tree */
    size_t loop;
    bool no_memory;
};

/* ---- cycles ---- */

/* A deadline ends any wait, and a task in the block of a nursery or TaskGroup does not wait for the tasks in it yet. */
static size_t n_awaited(const struct walk *w, const struct async_task *task)
{
    const char *kind = task->wait.kind;

    if (!w->claims)
        return task->n_awaits;
    if (task->has_deadline || task->is_cancelled || !kind || (strcmp(kind, "task") != 0 && strcmp(kind, "tasks") != 0))
        return 0;
    return task->n_awaits - task->n_in_groups;
}

/* What a task depends on: the tasks that it awaits, and the one that holds the lock that it waits for. If several tasks hold it, each of
 * them can release it, so that there is no deadlock yet. */
static size_t n_needs(const struct walk *w, const struct async_task *task)
{
    bool may_end = w->claims && (task->has_deadline || task->is_cancelled);

    return n_awaited(w, task) + (task->wait.n_held_by == 1 && !may_end);
}

static uint32_t need(const struct walk *w, const struct async_task *task, size_t i)
{
    return i < n_awaited(w, task) ? task->awaits[i] : task->wait.held_by[0];
}

static bool needs(const struct walk *w, const struct async_task *task, uint32_t to)
{
    for (size_t i = 0; i < n_needs(w, task); i++)
        if (need(w, task, i) == to)
            return true;
    return false;
}

/* Puts the members of a strongly connected component into the order in which they await each other. */
static void emit_cycle(struct walk *w, uint32_t *members, size_t n)
{
    struct task_cycle cycle = {.tasks = members, .n = n};
    size_t inner = 0;

    for (size_t i = 1; i < n; i++) /* begin with the first one in display order */
        if (members[i] < members[0]) {
            uint32_t member = members[0];

            members[0] = members[i];
            members[i] = member;
        }
    for (size_t i = 0; i < n; i++)
        w->cycle_of[members[i]] = members[0];
    for (size_t i = 0; i < n; i++) {
        const struct async_task *task = &w->set->tasks[members[i]];

        cycle.is_likely |= task->unsure;
        for (size_t k = 0; k < n_needs(w, task); k++) {
            bool is_inner = w->cycle_of[need(w, task, k)] == members[0];

            inner += is_inner;
            if (is_inner) /* of several tasks, one may be enough */
                cycle.is_likely |= k == n_awaited(w, task) ? !task->wait.is_owner : n_awaited(w, task) > 1;
        }
    }
    if (!w->claims)
        return;
    cycle.tangled = inner > n;
    for (size_t i = 1; i < n && !cycle.tangled; i++)
        for (size_t k = i; k < n; k++)
            if (needs(w, &w->set->tasks[members[i - 1]], members[k])) {
                uint32_t member = members[i];

                members[i] = members[k];
                members[k] = member;
                break;
            }
    w->visitor->cycle(&cycle, w->visitor->arg);
}

/* The members are on top of the stack, from `root` on. */
static size_t pop_component(struct walk *w, uint32_t root, size_t n_stack)
{
    size_t first = n_stack;

    do
        w->on_stack[w->stack[--first]] = false;
    while (w->stack[first] != root);
    if (n_stack - first > 1)
        emit_cycle(w, w->stack + first, n_stack - first);
    return first;
}

static void enter(struct walk *w, uint32_t at, uint32_t *count, size_t *n_stack)
{
    w->order[at] = w->low[at] = (*count)++;
    w->stack[(*n_stack)++] = at;
    w->on_stack[at] = true;
    w->next[at] = 0;
}

static void find_cycles_from(struct walk *w, uint32_t root, uint32_t *count)
{
    size_t n_stack = 0, n_path = 0;

    enter(w, root, count, &n_stack);
    w->path[n_path++] = root;
    while (n_path > 0) {
        uint32_t at = w->path[n_path - 1];
        const struct async_task *task = &w->set->tasks[at];

        if (w->next[at] < n_needs(w, task)) {
            uint32_t to = need(w, task, w->next[at]++);

            if (w->order[to] == NOT_SEEN) {
                enter(w, to, count, &n_stack);
                w->path[n_path++] = to;
            } else if (w->on_stack[to] && w->order[to] < w->low[at]) {
                w->low[at] = w->order[to];
            }
            continue;
        }
        if (w->low[at] == w->order[at])
            n_stack = pop_component(w, at, n_stack);
        n_path--;
        if (n_path > 0 && w->low[at] < w->low[w->path[n_path - 1]])
            w->low[w->path[n_path - 1]] = w->low[at];
    }
}

static void find_cycles(struct walk *w)
{
    uint32_t count = 0;

    memset(w->order, 0xff, w->set->n * sizeof(*w->order));
    memset(w->cycle_of, 0xff, w->set->n * sizeof(*w->cycle_of));
    for (uint32_t i = 0; i < w->set->n; i++)
        if (w->order[i] == NOT_SEEN)
            find_cycles_from(w, i, &count);
}

/* ---- groups ---- */

static uint64_t mix_text(uint64_t key, const char *text)
{
    return hash_mix(key, text ? hash_bytes(text, strlen(text)) : 0);
}

/* Equal for tasks of one group. Interned strings are compared by address. */
static uint64_t key_of(const struct async_task *task)
{
    uint64_t key = hash_mix(task->n_frames, (uint64_t)task->state << 3 | (uint64_t)task->wait.is_queued << 2 |
                                                (uint64_t)task->is_cancelled << 1 | task->unsure);

    key = hash_mix(mix_text(key, task->wait.kind), (uint64_t)(uintptr_t)task->wait.what);
    if (task->wait.n_waiting > 1 ||
        task->wait.n_held_by) /* else tasks that each have a lock of their own would not be folded */
        key = hash_mix(key, task->wait.object);
    for (size_t i = 0; i < task->n_frames; i++) {
        const struct frame *frame = &task->frames[i];

        key = hash_mix(hash_mix(key, (uint64_t)(uintptr_t)frame->func), (uint64_t)frame->line);
        for (size_t k = 0; k < frame->n_locals; k++)
            key = mix_text(hash_mix(key, (uint64_t)(uintptr_t)frame->locals[k].name), frame->locals[k].value);
    }
    return key;
}

/* A run of sibling tasks with the same key. */
struct run {
    size_t first, n;
};

struct sibling {
    uint64_t key;
    uint32_t task;
};

static int compare_siblings(const void *a, const void *b)
{
    const struct sibling *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->task < y->task ? -1 : x->task > y->task;
}

struct siblings {
    struct sibling *items;
    struct run *runs;
    uint32_t *tasks;
    size_t n, n_runs;
};

static int compare_runs(const void *a, const void *b, void *arg)
{
    const struct run *x = a, *y = b;
    const struct siblings *s = arg;

    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    return s->items[x->first].task < s->items[y->first].task ? -1 : 1;
}

static void siblings_free(struct siblings *s)
{
    free(s->items);
    free(s->runs);
    free(s->tasks);
}

/* Partitions `n` tasks, which it marks as visited, into groups. */
static int siblings_make(struct walk *w, const uint32_t *tasks, size_t n, struct siblings *s)
{
    *s = (struct siblings){.items = calloc(n + 1, sizeof(*s->items)),
                           .runs = calloc(n + 1, sizeof(*s->runs)),
                           .tasks = calloc(n + 1, sizeof(*s->tasks))};
    if (!s->items || !s->runs || !s->tasks)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        if (w->visited[tasks[i]])
            continue;
        w->visited[tasks[i]] = true;
        s->items[s->n++] = (struct sibling){w->keys[tasks[i]], tasks[i]};
    }
    qsort(s->items, s->n, sizeof(*s->items), compare_siblings);
    for (size_t i = 0; i < s->n; i++) {
        if (!i || s->items[i].key != s->items[i - 1].key)
            s->runs[s->n_runs++] = (struct run){.first = i};
        s->runs[s->n_runs - 1].n++;
        s->tasks[i] = s->items[i].task;
    }
    qsort_r(s->runs, s->n_runs, sizeof(*s->runs), compare_runs, s);
    return 0;
}

static void walk_groups(struct walk *w, const uint32_t *tasks, size_t n, size_t depth);

/* Visits a group, then what its tasks await. */
static void walk_group(struct walk *w, const uint32_t *tasks, size_t n, size_t depth)
{
    struct task_group group = {.tasks = tasks, .n = n, .depth = depth, .loop = w->loop};
    size_t n_children = 0, total = 0;
    uint32_t *children;

    for (size_t i = 0; i < n; i++)
        total += w->set->tasks[tasks[i]].n_awaits;
    children = malloc((total + 1) * sizeof(*children));
    if (!children) {
        w->no_memory = true;
        return;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < w->set->tasks[tasks[i]].n_awaits; k++) {
            uint32_t to = w->set->tasks[tasks[i]].awaits[k];

            if (w->visited[to]) {
                group.n_above++;
                group.one_above = to;
            } else {
                children[n_children++] = to;
            }
        }
    w->visitor->group(&group, w->visitor->arg);
    if (n_children && depth + 1 < TASK_TREE_DEPTH)
        walk_groups(w, children, n_children, depth + 1);
    free(children);
}

static void walk_groups(struct walk *w, const uint32_t *tasks, size_t n, size_t depth)
{
    struct siblings s;

    if (siblings_make(w, tasks, n, &s) < 0)
        w->no_memory = true;
    for (size_t i = 0; i < s.n_runs && !w->no_memory; i++)
        walk_group(w, s.tasks + s.runs[i].first, s.runs[i].n, depth);
    siblings_free(&s);
}

/* Nothing awaits it, except perhaps other tasks of its cycle. */
static bool is_root(const struct walk *w, uint32_t at)
{
    const struct async_task *task = &w->set->tasks[at];

    for (size_t i = 0; i < task->n_awaited_by; i++)
        if (task->awaited_by[i] != at &&
            (w->cycle_of[at] == NOT_SEEN || w->cycle_of[task->awaited_by[i]] != w->cycle_of[at]))
            return false;
    return true;
}

/* The tasks of a loop that no task awaits. Of tasks that await each other in a cycle, one is enough; those that wait for locks in a cycle
 * need not await each other. */
static void walk_loop(struct walk *w, const struct task_loop *loop)
{
    uint32_t *roots = malloc((loop->n + 1) * sizeof(*roots));
    size_t n = 0;

    if (!roots) {
        w->no_memory = true;
        return;
    }
    for (uint32_t i = (uint32_t)loop->first; i < loop->first + loop->n; i++)
        if (w->cycle_of[i] == NOT_SEEN && is_root(w, i))
            roots[n++] = i;
    walk_groups(w, roots, n, 0);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = (uint32_t)loop->first; i < loop->first + loop->n; i++)
            if (w->cycle_of[i] != NOT_SEEN && !w->visited[i] && is_root(w, i) &&
                (pass || !w->set->tasks[i].n_awaited_by))
                walk_groups(w, &i, 1, 0);
    free(roots);
}

static void walk_free(struct walk *w)
{
    free(w->keys);
    free(w->order);
    free(w->low);
    free(w->stack);
    free(w->path);
    free(w->next);
    free(w->cycle_of);
    free(w->on_stack);
    free(w->visited);
}

long task_tree_walk(const struct task_set *set, const struct task_tree_visitor *visitor)
{
    struct walk w = {.set = set, .visitor = visitor};
    size_t n = set->n + 1;
    long left = 0;

    w.keys = calloc(n, sizeof(*w.keys));
    w.order = calloc(n, sizeof(*w.order));
    w.low = calloc(n, sizeof(*w.low));
    w.stack = calloc(n, sizeof(*w.stack));
    w.path = calloc(n, sizeof(*w.path));
    w.next = calloc(n, sizeof(*w.next));
    w.cycle_of = calloc(n, sizeof(*w.cycle_of));
    w.on_stack = calloc(n, sizeof(*w.on_stack));
    w.visited = calloc(n, sizeof(*w.visited));
    if (!w.keys || !w.order || !w.low || !w.stack || !w.path || !w.next || !w.cycle_of || !w.on_stack || !w.visited) {
        walk_free(&w);
        return ERR_NOMEM;
    }
    for (size_t i = 0; i < set->n; i++)
        w.keys[i] = key_of(&set->tasks[i]);
    w.claims = true;
    find_cycles(&w);
    w.claims = false;
    find_cycles(&w);
    for (w.loop = 0; w.loop < set->n_loops; w.loop++)
        walk_loop(&w, &set->loops[w.loop]);
    for (size_t i = 0; i < set->n; i++)
        left += !w.visited[i];
    walk_free(&w);
    return w.no_memory ? ERR_NOMEM : left;
}
