/*
 * Waiting tasks -> traces.
 */
#include "sample/task_samples.h"

#include "base/clock.h"
#include "base/grow.h"
#include "base/hash.h"
#include "python/awaiters.h"
#include "sample/process_private.h"
#include "sample/tasks.h"

#include <stdlib.h>
#include <string.h>

#define PACE        200      /* an interval is this many times the CPU time of a reading */
#define MEAN        8        /* readings, of the CPU time */
#define COLD        4        /* the first reading takes about this many times as long as the next ones */
#define UNCHANGED   NS_PER_S /* read again after this time, even if no loop has run: there may be a new one */
#define RANDOM_HALF 1024

/* ADD A KIND OF WAIT HERE. See task_set.h. */
static const struct {
    const char *kind;
    enum trace_state state;
} states[] = {
    {"sleep", TRACE_SLEEPING},
    {"task", TRACE_TASK_AWAITS_TASK},
    {"tasks", TRACE_TASK_AWAITS_TASK},
    {"lock", TRACE_WAITING_FOR_LOCK},
    {"event", TRACE_TASK_AWAITS_EVENT},
    {"queue", TRACE_TASK_AWAITS_QUEUE},
    {"socket", TRACE_WAITING_FOR_IO},
    {"connections", TRACE_WAITING_FOR_IO},
    {"process", TRACE_WAITING_FOR_CHILD},
    {"executor", TRACE_TASK_AWAITS_THREAD},
    {"thread", TRACE_TASK_AWAITS_THREAD},
    {"future", TRACE_TASK_AWAITS_FUTURE},
};

/* Stands for a task whose coroutine has no Python frames. */
static const struct func no_frames = {
    .name = "[coroutine without Python frames]", .filename = "", .short_filename = ""};

static enum trace_state state_of(const struct async_task *task)
{
    if (task->state != TASK_WAITING)
        return TRACE_TASK_READY;
    for (size_t i = 0; task->wait.kind && i < sizeof(states) / sizeof(states[0]); i++)
        if (strcmp(task->wait.kind, states[i].kind) == 0)
            return states[i].state;
    return TRACE_TASK_WAITS;
}

/* ---- a forest ---- */

/* The first task that awaits it is its parent. In a cycle, one has none. */
static int find_parents(struct task_samples *s)
{
    const struct task_set *set = &s->set;

    if (grow_array((void **)&s->parents, &s->cap_parents, set->n + 1, sizeof(*s->parents)) < 0 ||
        grow_array((void **)&s->path, &s->cap_path, set->n + 1, sizeof(*s->path)) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < set->n; i++) {
        s->parents[i] = set->tasks[i].n_awaited_by ? set->tasks[i].awaited_by[0] : TASK_NO_PARENT;
        s->path[i] = TASK_NO_PARENT; /* the walk that has passed it */
    }
    for (uint32_t i = 0; i < set->n; i++) {
        uint32_t at = i, last = i;

        while (at != TASK_NO_PARENT && s->path[at] == TASK_NO_PARENT) {
            s->path[at] = i;
            last = at;
            at = s->parents[at];
        }
        if (at != TASK_NO_PARENT && s->path[at] == i)
            s->parents[last] = TASK_NO_PARENT;
    }
    return 0;
}

static uint64_t key_of(const struct async_task *task, uint64_t key)
{
    for (size_t i = 0; i < task->n_frames; i++)
        key = hash_mix(hash_mix(key, (uint64_t)(uintptr_t)task->frames[i].func), (uint64_t)task->frames[i].line);
    return hash_mix(key, task->n_frames);
}

/* From the root to each task, so that a stack that many share is hashed once. */
static int find_keys(struct task_samples *s)
{
    if (grow_array((void **)&s->keys, &s->cap_keys, s->set.n + 1, sizeof(*s->keys)) < 0)
        return ERR_NOMEM;
    memset(s->keys, 0, s->set.n * sizeof(*s->keys));
    for (uint32_t i = 0; i < s->set.n; i++) {
        size_t n = 0;
        uint64_t key = 0;

        for (uint32_t at = i; at != TASK_NO_PARENT && !s->keys[at]; at = s->parents[at])
            s->path[n++] = at;
        if (n && s->parents[s->path[n - 1]] != TASK_NO_PARENT)
            key = s->keys[s->parents[s->path[n - 1]]];
        for (; n > 0; n--) {
            key = key_of(&s->set.tasks[s->path[n - 1]], key);
            s->keys[s->path[n - 1]] = key ? key : 1;
        }
    }
    return 0;
}

/* ---- groups ---- */

static int add_to_group(struct task_samples *s, uint32_t task, uint32_t loop)
{
    struct task_group group = {.task = task, .loop = loop, .state = state_of(&s->set.tasks[task]), .n = 1};
    size_t step = 0;
    uint32_t at;

    group.key = hash_mix(s->keys[task], s->set.loops[loop].thread_id);
    group.key = hash_mix(group.key, (uint64_t)s->set.loops[loop].os_thread_id);
    while ((at = hash_table_next(&s->by_key, group.key, &step)) != HASH_TABLE_NONE)
        if (s->groups[at].key == group.key && s->groups[at].state == group.state) {
            s->groups[at].n++;
            return 0;
        }
    if (grow_array((void **)&s->groups, &s->cap_groups, s->n_groups + 1, sizeof(group)) < 0 ||
        hash_table_reserve(&s->by_key, 1) < 0)
        return ERR_NOMEM;
    hash_table_add(&s->by_key, group.key, (uint32_t)s->n_groups);
    s->groups[s->n_groups++] = group;
    return 0;
}

/* A task that others are shown below is not counted itself: its time is theirs. A running task is the stack of its thread. A loop that
 * no thread runs does not go on. */
static int find_groups(struct task_samples *s)
{
    const struct task_set *set = &s->set;
    int r = 0;

    s->n_groups = 0;
    hash_table_clear(&s->by_key);
    memset(s->path, 0, set->n * sizeof(*s->path)); /* how many are below it */
    for (size_t i = 0; i < set->n; i++)
        if (s->parents[i] != TASK_NO_PARENT)
            s->path[s->parents[i]]++;
    for (uint32_t k = 0; k < set->n_loops; k++) {
        const struct task_loop *loop = &set->loops[k];

        for (size_t i = loop->first; loop->running && r == 0 && i < loop->first + loop->n; i++)
            if (!s->path[i] && set->tasks[i].state != TASK_RUNNING)
                r = add_to_group(s, (uint32_t)i, k);
    }
    return r;
}

/* ---- reading ---- */

static struct sampled_thread *thread_of(struct process *p, const struct task_loop *loop)
{
    for (size_t i = 0; i < p->threads.n; i++) {
        struct sampled_thread *th = thread_table_find(&p->table, p->threads.items[i].tstate);

        if (th && th->os.tid && th->os.tid == loop->os_thread_id)
            return th;
    }
    return NULL;
}

/* True if no loop has run since its tasks were read. */
static bool is_unchanged(struct process *p, const struct task_samples *s, uint64_t now)
{
    if (!s->read_ns || !s->set.n_loops || now - s->read_ns > UNCHANGED)
        return false;
    for (size_t i = 0; i < s->set.n_loops; i++) {
        const struct task_loop *loop = &s->set.loops[i];
        struct sampled_thread *th = loop->running ? thread_of(p, loop) : NULL;
        struct sched_stats stats;

        if (!loop->running)
            continue;
        if (!th || !loop->run_count || task_sched_stats(&th->os.task, &stats) < 0 ||
            stats.run_count != loop->run_count || stats.run_ns != loop->run_ns)
            return false;
    }
    return true;
}

static int read_tasks(struct process *p, struct task_samples *s)
{
    int r = process_tasks(p, &s->set);

    s->read_ns = clock_now_ns();
    if (r == 0)
        r = find_parents(s);
    if (r == 0)
        r = find_keys(s);
    if (r == 0)
        r = find_groups(s);
    if (s->set.n > p->sampler->tasks_most)
        p->sampler->tasks_most = s->set.n;
    return r;
}

/* ---- traces ---- */

/* Innermost first. As many as the stack of a running task has. */
static int find_frames(struct process *p, struct task_samples *s, uint32_t task, size_t *ret_n)
{
    size_t n = 0;

    for (int i = 0; task != TASK_NO_PARENT && i <= AWAITERS_MAX && (i == 0 || n < AWAITERS_MAX_FRAMES); i++) {
        const struct async_task *t = &s->set.tasks[task];

        if (grow_array((void **)&s->frames, &s->cap_frames, n + t->n_frames + 1, sizeof(*s->frames)) < 0)
            return ERR_NOMEM;
        for (size_t k = t->n_frames; k > 0; k--)
            s->frames[n++] = t->frames[k - 1];
        if (!t->n_frames && !(s->frames[n++] = (struct frame){.func = sampler_func(p->sampler, &no_frames)}).func)
            return ERR_NOMEM;
        task = s->parents[task];
    }
    *ret_n = n;
    return 0;
}

static int emit_group(struct process *p, struct task_samples *s, const struct task_group *g,
                      const struct sampled_thread *th, uint64_t ns, process_sink sink, void *arg)
{
    const struct sampler_options *o = &p->sampler->options;
    const struct task_loop *loop = &s->set.loops[g->loop];
    struct trace trace = {.process = p->info,
                          .thread_id = loop->thread_id,
                          .os_thread_id = loop->os_thread_id,
                          .thread_name = loop->thread_name,
                          .is_kernel_name = !th || !th->name,
                          .state = g->state,
                          .weight_ns = ns * g->n,
                          .n_frames = 1};

    trace.key = hash_mix(g->key, (uint64_t)(uintptr_t)p->info);
    trace.key = trace.key ? trace.key : 1;
    if (!o->known_keys || !known_keys_have(o->known_keys, trace.key)) {
        if (find_frames(p, s, g->task, &trace.n_frames) < 0)
            return ERR_NOMEM;
        trace.frames = s->frames;
    }
    return sink(&trace, arg);
}

static int emit_groups(struct process *p, struct task_samples *s, uint64_t ns, process_sink sink, void *arg)
{
    const struct sampled_thread *th = NULL;
    int r = 0;

    for (size_t i = 0; r == 0 && i < s->n_groups; i++) {
        if (i == 0 || s->groups[i].loop != s->groups[i - 1].loop)
            th = thread_of(p, &s->set.loops[s->groups[i].loop]);
        r = emit_group(p, s, &s->groups[i], th, ns, sink, arg);
    }
    return r;
}

static uint64_t next_random(struct task_samples *s)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->random;
}

/* The times of readings must not depend on what the tasks do, or the profile would be biased: so the interval follows from the mean cost
 * and from a random number, between half and one and a half times the mean. */
static void plan_next(struct task_samples *s, uint64_t now, uint64_t cost_ns)
{
    uint64_t interval;

    if (!s->cost_ns)
        s->cost_ns = cost_ns / COLD + 1;
    else
        s->cost_ns = (s->cost_ns * (MEAN - 1) + cost_ns) / MEAN + 1;
    interval = s->cost_ns * PACE;
    s->next_ns = now + interval / 2 + interval / RANDOM_HALF * (next_random(s) % RANDOM_HALF);
}

int task_samples_emit(struct process *p, bool gone, process_sink sink, void *arg)
{
    struct task_samples *s = &p->task_samples;
    uint64_t now = clock_now_ns(), cpu_ns = clock_cpu_ns(), ns;
    int r = 0;

    if (!s->counted_ns) {
        s->counted_ns = p->now_ns ? p->now_ns - p->sampler->tick_ns : now;
        s->random = now | 1;
    }
    if (!gone && now < s->next_ns && !p->sampler->is_last)
        return 0;
    if (!gone && !is_unchanged(p, s, now)) {
        r = read_tasks(p, s);
        now = clock_now_ns();
    }
    ns = now - s->counted_ns;
    s->counted_ns = now;
    p->sampler->task_readings++;
    if (r == 0)
        r = emit_groups(p, s, ns, sink, arg);
    plan_next(s, now, clock_cpu_ns() - cpu_ns);
    return r;
}

void task_samples_free(struct task_samples *s)
{
    task_set_free(&s->set);
    free(s->parents);
    free(s->keys);
    free(s->path);
    free(s->groups);
    free(s->frames);
    hash_table_free(&s->by_key);
    *s = (struct task_samples){0};
}
