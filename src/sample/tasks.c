/*
 * Reads tasks in slices of a few milliseconds. A slice counts only if the loop's thread did not run meanwhile; if it ran between two
 * slices, the tasks that have changed are read again.
 */
#include "sample/tasks.h"

#include "base/clock.h"
#include "base/deadline.h"
#include "base/grow.h"
#include "base/log.h"
#include "python/tasks.h"
#include "sample/process_private.h"
#include "sample/task_frames.h"
#include "sample/tasks_private.h"

#include <stdlib.h>
#include <string.h>

#define SLICE_NS       (2500 * NS_PER_US) /* of reading; a pause takes a bit longer */
#define SLICE_OFTEN_NS (800 * NS_PER_US)  /* in a recording */
#define BREAK_NS       (500 * NS_PER_US)  /* between two slices, so that the loop gets on */
#define AT_ONCE_MAX    100                /* tasks: in a recording, a loop with fewer is read in one slice */
#define RELIST_MAX     2000               /* in a recording, a loop with fewer is listed again while it is paused */
#define LIST_TRIES     3
#define LIST_THREADS   16 /* pause at most this many, one after the other, to read a list that keeps changing */
#define GENTLE_TRIES   3
#define MAX_TRIES      10
#define READ_AT_ONCE   256 /* tasks, before the cache of the target's memory is emptied */
#define CHECKS         3   /* of what has changed between slices */
#define NS_PER_SECOND  1e9

struct task_reading {
    struct process *p;
    struct tasks *tasks;
    struct read_task *items;
    size_t n, cap;
    addr_t *tstates; /* of all threads */
    uint64_t *thread_ids;
    size_t n_threads;
    size_t locals_bytes;
    double now; /* CLOCK_MONOTONIC; negative: a core file, whose clock is unknown */
    bool torn;
    uint64_t slices, longest_ns;
};

static void item_clear(struct read_task *item)
{
    free((void *)(uintptr_t)item->task.frames);
    free(item->awaits);
    item->task = (struct async_task){0};
    item->awaits = NULL;
    item->n_awaits = item->n_holds = 0;
    item->known = false;
}

/* ---- one task ---- */

/* Negative: unknown. */
static double seconds_until(const struct task_reading *r, double when)
{
    if (when < 0 || r->now < 0)
        return -1;
    return when > r->now ? when - r->now : 0;
}

static struct task_wait wait_of(const struct task_reading *r, const struct py_wait *w)
{
    struct task_wait wait = {.kind = w->kind,
                             .what = w->what,
                             .object = w->object,
                             .has_fd = w->has_fd,
                             .number = w->number,
                             .seconds = w->seconds,
                             .is_queued = w->is_queued};

    if (w->when >= 0 && r->now >= 0) {
        wait.is_left = true;
        wait.seconds = seconds_until(r, w->when);
    }
    return wait;
}

/* Reads one task again. A task that is done, or that makes no sense, is not known afterwards. */
static int read_item(struct task_reading *r, struct read_task *item)
{
    static const enum task_state states[] = {[PY_TASK_NEW] = TASK_NEW,
                                             [PY_TASK_READY] = TASK_READY,
                                             [PY_TASK_RUNNING] = TASK_RUNNING,
                                             [PY_TASK_WAITING] = TASK_WAITING};
    struct tasks *t = r->tasks;
    int error = tasks_read(t, item->addr);

    item_clear(item);
    if (error < 0 || t->state == PY_TASK_DONE || t->loop != item->loop)
        return error == ERR_NOMEM ? error : 0;
    item->task = (struct async_task){.addr = item->addr,
                                     .name = t->name,
                                     .state = states[t->state],
                                     .wait = wait_of(r, &t->wait),
                                     .has_deadline = t->wait.deadline >= 0 && r->now >= 0,
                                     .seconds_to_cancel = seconds_until(r, t->wait.deadline),
                                     .is_cancelled = t->wait.is_cancelled};
    item->owner = t->wait.owner;
    item->mark = t->mark;
    item->task.n_frames = t->coro.n;
    item->task.frames = task_frames_copy(r->p, t, &r->locals_bytes);
    if (!item->task.frames)
        return ERR_NOMEM;
    item->n_awaits = t->n_awaits;
    item->n_in_groups = t->n_in_groups;
    item->n_holds = t->n_holds;
    item->awaits = malloc((t->n_awaits + t->n_holds + 1) * sizeof(*item->awaits));
    if (!item->awaits)
        return ERR_NOMEM;
    if (t->n_awaits)
        memcpy(item->awaits, t->awaits, t->n_awaits * sizeof(*item->awaits));
    if (t->n_holds)
        memcpy(item->awaits + t->n_awaits, t->holds, t->n_holds * sizeof(*item->awaits));
    item->known = true;
    return 0;
}

/* ---- slices ---- */

/* The tasks of one loop, and the thread that runs it. */
struct loop_reading {
    struct sampled_thread *th; /* NULL: none */
    addr_t addr;
    bool relist, listed; /* begin with a new list, because tasks may have started since they were listed */
    size_t first, end;
    bool need_ptrace;
    bool is_paused; /* the last slice paused the thread, which has hardly run since */
    bool has_run;   /* since the first slice */
    bool has_stats;
    struct sched_stats stats; /* at the end of the last slice */
    size_t changed;           /* tasks that were read again */
};

static int list_once(struct task_reading *r)
{
    struct process *p = r->p;
    int error = 0;

    r->tasks->n_found = 0;
    tasks_begin(r->tasks, &p->py, p->codes);
    for (size_t i = 0; error == 0 && i < p->threads.n_heads; i++) {
        addr_t interp = p->threads.heads[i].interp;
        size_t first = 0, n = 0;

        while (first < p->threads.n && p->threads.items[first].interp != interp)
            first++;
        while (first + n < p->threads.n && p->threads.items[first + n].interp == interp)
            n++;
        error = tasks_list(r->tasks, interp, r->tstates + first, n);
    }
    r->tasks->incomplete |= mem_cached_spent(r->tasks->repr->mem);
    return error;
}

static int compare_items(const void *a, const void *b)
{
    const struct read_task *x = a, *y = b;

    if (x->loop != y->loop)
        return x->loop < y->loop ? -1 : 1;
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* A task is in two lists if it is an eager one. Returns how many are left. */
static size_t drop_duplicates(struct read_task *items, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++)
        if (!kept || items[kept - 1].addr != items[i].addr)
            items[kept++] = items[i];
    return kept;
}

/* Replaces the tasks of a loop, which are the last items, by those that it has now. */
static int list_again(struct task_reading *r, struct loop_reading *loop)
{
    int error = list_once(r);

    for (size_t i = loop->first; i < loop->end; i++)
        item_clear(&r->items[i]);
    r->n = loop->end = loop->first;
    if (error < 0)
        return error;
    if (grow_array((void **)&r->items, &r->cap, r->n + r->tasks->n_found + 1, sizeof(*r->items)) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < r->tasks->n_found; i++)
        if (tasks_loop_of(r->tasks, r->tasks->found[i].addr) == loop->addr)
            r->items[r->n++] = (struct read_task){
                .addr = r->tasks->found[i].addr, .tstate = r->tasks->found[i].tstate, .loop = loop->addr};
    qsort(r->items + loop->first, r->n - loop->first, sizeof(*r->items), compare_items);
    r->n = loop->first + drop_duplicates(r->items + loop->first, r->n - loop->first);
    loop->end = r->n;
    return 0;
}

/* A lock may pass from one task to another while a third one keeps waiting for it. */
static bool has_changed(struct task_reading *r, const struct read_task *item)
{
    return !tasks_is_same(r->tasks, item->addr, &item->mark) ||
           (item->owner && tasks_lock_owner(r->tasks, item->task.wait.object) != item->owner);
}

/* Reads tasks from `*at` on, or with `check` those that have changed, until the time is up. */
static int read_some(struct task_reading *r, const struct loop_reading *loop, bool check, bool may_take_long,
                     size_t *at, size_t *changed)
{
    uint64_t end = clock_now_ns() + (r->p->sampler->options.recording ? SLICE_OFTEN_NS : SLICE_NS);
    size_t from = *at;
    int error = 0;

    tasks_begin(r->tasks, &r->p->py, r->p->codes);
    code_cache_round(r->p->codes, false);
    for (; error == 0 && *at < loop->end; ++*at) {
        struct read_task *item = &r->items[*at];

        if ((*at - from) % READ_AT_ONCE == READ_AT_ONCE - 1) { /* the cache of memory is bounded */
            r->tasks->incomplete |= mem_cached_spent(r->tasks->repr->mem);
            tasks_begin(r->tasks, &r->p->py, r->p->codes);
        }
        if (!check || item->is_torn || (item->known && has_changed(r, item))) {
            *changed += check;
            error = read_item(r, item);
            item->slice = r->slices;
            item->is_torn = false;
            item->task.unsure = check; /* until the next check finds it unchanged */
        }
        if (!may_take_long && clock_now_ns() >= end) {
            ++*at;
            break;
        }
    }
    r->tasks->incomplete |= mem_cached_spent(r->tasks->repr->mem);
    return error;
}

static void note_run(struct loop_reading *loop, const struct pause *p)
{
    bool has_stats = p->method == PAUSE_ASLEEP || p->method == PAUSE_SAME_CORE;

    if (p->method == PAUSE_DEAD)
        return;
    if (loop->has_stats && (!has_stats || !sched_stats_equal(&p->stats, &loop->stats)))
        loop->has_run = true;
    loop->has_run |= !has_stats;
    loop->has_stats |= has_stats;
    loop->stats = p->stats;
}

/* One slice, paused. ERR_TORN if the thread ran. */
static int read_slice(struct task_reading *r, struct loop_reading *loop, bool check, size_t *at)
{
    struct pauser *pauser = &r->p->sampler->pauser;
    uint64_t begin, took;
    size_t from = *at, changed = 0;
    struct pause pause = {.method = PAUSE_UNPAUSED};
    bool at_once;
    int error =
            loop->th ? pause_begin(pauser, &loop->th->os, loop->need_ptrace ? PAUSE_STOP : PAUSE_ANY, 0, &pause) : 0,
        end = 0;

    if (error < 0)
        return error == ERR_GONE ? ERR_GONE : ERR_TORN;
    begin = clock_now_ns();
    if (pause.method == PAUSE_ASLEEP) /* stats as of now, before they are replaced at the end */
        note_run(loop, &pause);
    if (loop->relist && !check && *at == loop->first)
        error = list_again(r, loop);
    at_once = pause.method == PAUSE_DEAD || (loop->relist && loop->end - loop->first <= AT_ONCE_MAX);
    if (error == 0)
        error = read_some(r, loop, check, at_once, at, &changed);
    if (loop->th)
        end = pause_end(pauser, &loop->th->os, &pause);
    took = clock_now_ns() - begin;
    loop->is_paused = pause.method == PAUSE_SAME_CORE || pause.method == PAUSE_PTRACE;
    if (took > r->longest_ns && pause.method != PAUSE_ASLEEP && pause.method != PAUSE_DEAD)
        r->longest_ns = took;
    if (error == 0 && end < 0) {
        for (size_t i = from; i < *at; i++) /* one whose mark is right by chance must not pass the next check */
            r->items[i].is_torn |= r->items[i].slice == r->slices;
        *at = from;
    }
    r->slices++;
    if (error == 0 && end < 0)
        return ERR_TORN;
    if (loop->th)
        note_run(loop, &pause);
    loop->listed = true;
    loop->changed += changed;
    for (size_t i = from; error == 0 && loop->th && pause.method == PAUSE_UNPAUSED && i < *at; i++)
        r->items[i].task.unsure = true;
    return error;
}

/* Reads all tasks of a loop once, or checks them. */
static int read_pass(struct task_reading *r, struct loop_reading *loop, bool check)
{
    size_t at = loop->first;
    int tries = 0, error = 0;

    while (error == 0 && (at < loop->end || (loop->relist && !loop->listed))) {
        if (deadline_passed())
            return ERR_TORN;
        sampler_leave_core(r->p->sampler);
        if (loop->is_paused)
            clock_sleep_ns(BREAK_NS);
        error = read_slice(r, loop, check, &at);
        if (error != ERR_TORN) {
            tries = 0;
            continue;
        }
        loop->need_ptrace |= ++tries >= GENTLE_TRIES;
        error = tries < MAX_TRIES ? 0 : ERR_TORN;
    }
    return error;
}

static int read_loop(struct task_reading *r, struct loop_reading *loop)
{
    int error = read_pass(r, loop, false);

    for (int i = 0; error == 0 && loop->has_run && loop->th && i < CHECKS; i++) {
        loop->changed = 0;
        loop->has_run = loop->has_stats = false;
        for (size_t k = loop->first; k < loop->end; k++)
            r->items[k].task.unsure = false;
        error = read_pass(r, loop, true);
        if (!loop->changed)
            break;
    }
    for (size_t k = loop->first; error < 0 && k < loop->end; k++) /* some were not reached */
        r->items[k].task.unsure = true;
    sampler_leave_core(r->p->sampler);
    return error;
}

/* ---- finding tasks ---- */

static struct sampled_thread *thread_at(struct task_reading *r, size_t i)
{
    struct sampled_thread *th = i < r->n_threads ? thread_table_find(&r->p->table, r->tstates[i]) : NULL;

    return th && (th->os.tid || th->os.dead) ? th : NULL;
}

/* Lists the tasks. If the lists keep changing, pauses one thread after the other. */
static int list_tasks(struct task_reading *r)
{
    int error = ERR_TORN;

    for (int i = 0; i < LIST_TRIES && error == ERR_TORN; i++)
        error = list_once(r);
    for (size_t i = r->n_threads; i > 0 && r->n_threads - i < LIST_THREADS && error == ERR_TORN; i--) {
        struct sampled_thread *th = thread_at(r, i - 1);
        struct pause pause;

        if (!th || pause_begin(&r->p->sampler->pauser, &th->os, PAUSE_STOP, 0, &pause) < 0)
            continue;
        error = list_once(r);
        pause_end(&r->p->sampler->pauser, &th->os, &pause);
    }
    r->torn = error < 0;
    return error == ERR_NOMEM ? error : 0;
}

/* Sorted by address, tasks that were created together are read together. */
static int find_items(struct task_reading *r)
{
    struct tasks *t = r->tasks;

    if (grow_array((void **)&r->items, &r->cap, t->n_found + 1, sizeof(*r->items)) < 0)
        return ERR_NOMEM;
    tasks_begin(t, &r->p->py, r->p->codes);
    for (size_t i = 0; i < t->n_found; i++) {
        struct read_task item = {.addr = t->found[i].addr, .tstate = t->found[i].tstate};

        item.loop = tasks_loop_of(t, item.addr);
        if (item.loop)
            r->items[r->n++] = item;
    }
    qsort(r->items, r->n, sizeof(*r->items), compare_items);
    r->n = drop_duplicates(r->items, r->n);
    t->incomplete |= mem_cached_spent(t->repr->mem);
    return 0;
}

/* ---- the result ---- */

/* Orders "Task-2" before "Task-10". */
static int compare_names(const char *a, const char *b)
{
    while (*a && *a == *b && (*a < '0' || *a > '9'))
        a++, b++;
    if (*a >= '0' && *a <= '9' && *b >= '0' && *b <= '9') {
        size_t n = strspn(a, "0123456789"), k = strspn(b, "0123456789");
        int r = n != k ? (n < k ? -1 : 1) : strncmp(a, b, n);

        return r ? r : compare_names(a + n, b + k);
    }
    return (unsigned char)*a - (unsigned char)*b;
}

static int compare_for_display(const void *a, const void *b)
{
    const struct read_task *x = a, *y = b;
    int r = x->task.name && y->task.name ? compare_names(x->task.name, y->task.name)
                                         : (x->task.name != NULL) - (y->task.name != NULL);

    return r ? r : compare_items(a, b);
}

static int add_loop(struct task_reading *r, struct task_set *set, const struct loop_reading *loop)
{
    struct task_loop *to;

    if (grow_array((void **)&set->loops, &set->cap_loops, set->n_loops + 1, sizeof(*set->loops)) < 0)
        return ERR_NOMEM;
    to = &set->loops[set->n_loops++];
    *to = (struct task_loop){.addr = loop->addr, .first = set->n};
    tasks_begin(r->tasks, &r->p->py, r->p->codes);
    to->type = tasks_type_name(r->tasks, to->addr);
    to->is_trio = tasks_loop_is_trio(r->tasks, to->addr);
    if (loop->th) {
        to->running = true;
        to->thread_id = loop->th->thread_id;
        to->os_thread_id = loop->th->os.tid;
        to->thread_name = loop->th->name ? loop->th->name : loop->th->kernel_name;
        to->run_count = loop->stats.run_count;
        to->run_ns = loop->stats.run_ns;
    }
    return 0;
}

/* Moves the tasks of a loop to the set. */
static int take_loop(struct task_reading *r, struct task_set *set, const struct loop_reading *loop)
{
    if (add_loop(r, set, loop) < 0 ||
        grow_array((void **)&set->tasks, &set->cap, set->n + (loop->end - loop->first), sizeof(*set->tasks)) < 0)
        return ERR_NOMEM;
    qsort(r->items + loop->first, loop->end - loop->first, sizeof(*r->items), compare_for_display);
    for (size_t i = loop->first; i < loop->end; i++) {
        struct read_task *item = &r->items[i];

        if (!item->known)
            continue;
        set->n_unsure += item->task.unsure;
        set->tasks[set->n++] = item->task;
        item->task.frames = NULL; /* the set owns them now */
        set->loops[set->n_loops - 1].n++;
    }
    if (!set->loops[set->n_loops - 1].n)
        set->n_loops--;
    return 0;
}

/* ---- all of it ---- */

static int list_threads(struct task_reading *r)
{
    const struct py_threads *threads = &r->p->threads;

    r->n_threads = threads->n;
    r->tstates = calloc(threads->n + 1, sizeof(*r->tstates));
    r->thread_ids = calloc(threads->n + 1, sizeof(*r->thread_ids));
    if (!r->tstates || !r->thread_ids)
        return ERR_NOMEM;
    for (size_t i = 0; i < threads->n; i++) {
        r->tstates[i] = threads->items[i].tstate;
        r->thread_ids[i] = threads->items[i].thread_id;
    }
    return 0;
}

static int read_loops(struct task_reading *r, struct task_set *set)
{
    size_t n = r->n;
    int error = 0;

    for (size_t i = 0, end; error == 0 && i < n; i = end) {
        struct loop_reading loop = {.first = i, .addr = r->items[i].loop};

        for (end = i; end < n && r->items[end].loop == r->items[i].loop; end++)
            ;
        loop.end = end;
        tasks_begin(r->tasks, &r->p->py, r->p->codes);
        loop.th = thread_at(r, tasks_loop_thread(r->tasks, r->items[i].loop, r->tstates, r->thread_ids, r->n_threads));
        loop.relist = r->p->sampler->options.recording && loop.th && end - i <= RELIST_MAX;
        if (loop.relist)
            loop.first = loop.end = r->n;
        error = read_loop(r, &loop);
        if (error < 0 && error != ERR_NOMEM) {
            log_often(LOG_LEVEL_INFO, "tasks", -error, "loop %#llx: %s", (unsigned long long)r->items[i].loop,
                      err_name(error));
            set->incomplete = true;
            error = 0;
        }
        if (error == 0)
            error = take_loop(r, set, &loop);
    }
    return error;
}

static int read_tasks(struct task_reading *r, struct task_set *set)
{
    int error = list_threads(r);

    r->tasks->incomplete = false;
    r->tasks->awaits_left = TASKS_AWAITS_MAX;
    if (error == 0)
        error = list_tasks(r);
    if (error == 0)
        error = find_items(r);
    if (error == 0)
        error = read_loops(r, set);
    if (error == 0)
        error = task_links_make(r->items, r->n, set);
    if (error == 0)
        task_sockets_describe(r->p, set);
    set->incomplete |= r->torn || (r->tasks && r->tasks->incomplete);
    return error;
}

int process_tasks(struct process *p, struct task_set *ret)
{
    struct task_reading r = {.p = p, .now = p->core ? -1 : (double)clock_now_ns() / NS_PER_SECOND};
    uint64_t begin = clock_now_ns();
    int error;

    task_set_free(ret);
    ret->process = p->info;
    if (!tasks_are_listed(&p->py))
        return 0;
    r.tasks = p->tasks ? p->tasks : tasks_new();
    sampler_leave_core(p->sampler);
    run_as_user_begin(p->user);
    error = r.tasks ? read_tasks(&r, ret) : ERR_NOMEM;
    run_as_user_end(p->user);
    log_often(LOG_LEVEL_INFO, "tasks", (int64_t)p->pid,
              "pid %d: %zu tasks of %zu loops in %llu us: %llu slices, longest pause %llu us", (int)p->pid, ret->n,
              ret->n_loops, (unsigned long long)(clock_now_ns() - begin) / 1000, (unsigned long long)r.slices,
              (unsigned long long)r.longest_ns / 1000);
    for (size_t i = 0; i < r.n; i++)
        item_clear(&r.items[i]);
    free(r.items);
    free(r.tstates);
    free(r.thread_ids);
    if (r.tasks != p->tasks)
        tasks_free(r.tasks);
    if (error < 0)
        task_set_free(ret);
    return error;
}

void task_set_free(struct task_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        free((void *)(uintptr_t)set->tasks[i].frames);
    free(set->tasks);
    free(set->loops);
    free(set->links);
    free(set->holders);
    *set = (struct task_set){0};
}
