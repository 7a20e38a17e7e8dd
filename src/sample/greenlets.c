/*
 * Reads the greenlets of a process. Nothing is paused: a suspended greenlet changes only when it is resumed. If no thread has run since its
 * stack was read, the greenlets belong to these stacks. Else they are read twice, and those that differ are marked.
 */
#include "sample/greenlets.h"

#include "base/clock.h"
#include "base/deadline.h"
#include "base/grow.h"
#include "base/log.h"
#include "python/greenlets.h"
#include "sample/process_private.h"
#include "target/core_file.h"

#include <stdlib.h>
#include <string.h>

#define WAITS_AT_ONCE 64             /* a struct repr has a budget of reads */
#define FRAMES_MAX    (4u << 20)     /* of all greenlets of a process */
#define READ_NS       (2 * NS_PER_S) /* of CPU time */

struct item {
    struct greenlet g;
    size_t first, n; /* frames */
    bool unsure;
    const struct sampled_thread *th; /* NULL: not listed */
};

struct reading {
    struct process *p;
    struct greenlet_types types;
    struct greenlets_found found;
    struct greenlet_reader *reader;
    struct item *items;
    size_t n, cap;
    struct py_frame *frames; /* of all items */
    size_t n_frames, cap_frames;
    struct frames current;
    addr_t *codes;
    const struct code **code;
    size_t cap_codes, cap_code;
    struct repr *repr; /* for what they wait for */
    size_t n_waits;
    uint64_t end_ns; /* of CPU time */
    bool cut;        /* the time was not enough */
};

static int find_types(struct reading *r)
{
    const struct process *p = r->p;
    int e = 0;

    for (size_t i = 0; i < p->threads.n && e == 0 && !r->types.n; i++)
        if (i == 0 || p->threads.items[i].interp != p->threads.items[i - 1].interp)
            e = greenlets_find_types(&p->py, p->threads.items[i].interp, &r->types);
    return e;
}

static int search(struct reading *r)
{
    struct process *p = r->p;
    struct addr_ranges ranges = {0};
    struct proc_maps maps = {0};
    uint64_t begin = clock_cpu_ns();
    int e = p->core ? core_file_maps(p->core, &maps) : proc_maps_read(p->pid, &maps);

    if (e == 0)
        e = resident_read(p->core ? 0 : p->pid, &maps, &ranges);
    if (e == 0)
        e = greenlets_search(&p->py, &r->types, &ranges, &r->found);
    log_debug("greenlets", "pid %d: %zu types, %zu candidates in %llu of %llu bytes, CPU time %llu us", (int)p->pid,
              r->types.n, r->found.n, (unsigned long long)r->found.searched, (unsigned long long)r->found.total,
              (unsigned long long)((clock_cpu_ns() - begin) / NS_PER_US));
    proc_maps_free(&maps);
    resident_free(&ranges);
    return e == ERR_NOMEM ? e : 0;
}

/* Reads a greenlet, and its frames into `r->current`. */
static int read_greenlet(struct reading *r, addr_t addr, struct greenlet *ret)
{
    const struct python *py = greenlet_reader_python(r->reader);
    int e = greenlet_read(py, &r->types, addr, ret);

    r->current.n = 0;
    if (e < 0)
        return e;
    greenlet_find_parent(py, &r->found, ret);
    return ret->state == GREENLET_SUSPENDED ? greenlet_frames(r->reader, ret, &r->current) : 0;
}

static int add_item(struct reading *r, const struct greenlet *g)
{
    size_t n = r->current.n;

    if (r->n_frames + n > FRAMES_MAX)
        n = FRAMES_MAX - r->n_frames;
    if (grow_array((void **)&r->items, &r->cap, r->n + 1, sizeof(*r->items)) < 0 ||
        grow_array((void **)&r->frames, &r->cap_frames, r->n_frames + n, sizeof(*r->frames)) < 0)
        return ERR_NOMEM;
    r->items[r->n++] = (struct item){.g = *g, .first = r->n_frames, .n = n};
    if (n)
        memcpy(r->frames + r->n_frames, r->current.items, n * sizeof(*r->frames));
    r->n_frames += n;
    return 0;
}

static bool is_late(struct reading *r)
{
    r->cut |= deadline_passed() || clock_cpu_ns() > r->end_ns;
    return r->cut;
}

static int read_all(struct reading *r)
{
    int e = 0;

    greenlets_find_layout(greenlet_reader_python(r->reader), &r->found, &r->types);
    for (size_t i = 0; i < r->found.n && e != ERR_NOMEM && !is_late(r); i++) {
        struct greenlet g;

        e = read_greenlet(r, r->found.items[i], &g);
        if (e == ERR_READ || e == ERR_BOUNDS) /* not a greenlet */
            continue;
        if (e != ERR_NOMEM)
            e = add_item(r, &g) < 0 ? ERR_NOMEM : e;
        if (e < 0 && e != ERR_NOMEM)
            r->items[r->n - 1].unsure = true;
    }
    return e == ERR_NOMEM ? e : 0;
}

/* True if no thread has run since its stack was read. */
static bool nothing_ran(struct process *p)
{
    for (size_t i = 0; i < p->threads.n; i++) {
        struct sampled_thread *th = thread_table_find(&p->table, p->threads.items[i].tstate);
        struct sched_stats stats;

        if (!th || !th->last.off_cpu || task_sched_stats(&th->os.task, &stats) < 0 ||
            !sched_stats_equal(&stats, &th->os.stats))
            return false;
    }
    return true;
}

static bool is_same(const struct reading *r, const struct item *item, const struct greenlet *g)
{
    const struct greenlet *a = &item->g;

    if (a->type != g->type || a->state != g->state || a->parent != g->parent || a->frame != g->frame ||
        r->current.n < item->n)
        return false;
    for (size_t i = 0; i < item->n; i++) {
        const struct py_frame *x = &r->frames[item->first + i], *y = &r->current.items[i];

        if (x->addr != y->addr || x->code != y->code || x->at != y->at)
            return false;
    }
    return true;
}

/* What is the same in two readings was there in between. */
static int read_again(struct reading *r)
{
    greenlet_reader_forget(r->reader);
    for (size_t i = 0; i < r->n; i++) {
        struct greenlet g;
        int e = is_late(r) ? ERR_READ : read_greenlet(r, r->items[i].g.addr, &g);

        if (e == ERR_NOMEM)
            return e;
        r->items[i].unsure |= e < 0 || !is_same(r, &r->items[i], &g);
    }
    return 0;
}

/* The greenlets of a thread use its stack, and the C library keeps its data about a thread above the stack. The stack of the main thread is
 * above all others. */
static const struct sampled_thread *thread_of(struct process *p, const struct greenlet *g)
{
    addr_t at = g->is_main ? g->stack_start : g->stack_stop;
    const struct sampled_thread *best = NULL, *main_thread = NULL;

    if (at <= 1) /* a main greenlet that was never suspended */
        return NULL;
    for (size_t i = 0; i < p->threads.n; i++) {
        const struct sampled_thread *th = thread_table_find(&p->table, p->threads.items[i].tstate);

        if (!th)
            continue;
        if (th->os.tid == p->pid)
            main_thread = th;
        else if (th->thread_id >= at && (!best || th->thread_id < best->thread_id))
            best = th;
    }
    return best ? best : main_thread;
}

/* An unreadable frame ends the stack: the greenlet has changed meanwhile. */
static int add_frames(struct reading *r, const struct item *item, struct async_task *to)
{
    struct process *p = r->p;
    size_t n_sources = p->sampler->options.positions ? item->n : 0;
    struct frame *frames = calloc(1, (item->n + 1) * sizeof(*frames) + n_sources * sizeof(struct frame_source));
    struct frame_source *sources = (struct frame_source *)(frames + item->n + 1);

    to->frames = frames;
    if (!frames || grow_array((void **)&r->codes, &r->cap_codes, item->n, sizeof(*r->codes)) < 0 ||
        grow_array((void **)&r->code, &r->cap_code, item->n, sizeof(*r->code)) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < item->n; i++)
        r->codes[i] = r->frames[item->first + i].code;
    if (code_cache_get(p->codes, &p->py, r->codes, item->n, r->code) == ERR_NOMEM)
        return ERR_NOMEM;
    for (size_t i = 0; i < item->n; i++) {
        const struct py_frame *raw = &r->frames[item->first + i];

        if (!r->code[i]) {
            to->unsure = true;
            break;
        }
        frames[i] = (struct frame){.func = process_func(p, r->code[i]),
                                   .line = code_line(r->code[i], raw->at),
                                   .is_entry = raw->is_entry,
                                   .is_shim_entry = raw->is_shim_entry};
        if (!frames[i].func)
            return ERR_NOMEM;
        if (n_sources) {
            process_position(r->code[i], raw->at, &sources[i]);
            frames[i].source = &sources[i];
        }
        to->n_frames++;
    }
    return 0;
}

/* After add_frames(). */
static int add_wait(struct reading *r, const struct item *item, struct async_task *to)
{
    const struct repr_limits limits = {0};
    struct py_wait wait;

    if (!r->repr && !(r->repr = repr_new()))
        return ERR_NOMEM;
    if (r->n_waits++ % WAITS_AT_ONCE == 0)
        repr_begin(r->repr, &r->p->py, &limits);
    if (greenlet_wait(r->repr, &r->frames[item->first], r->code, to->n_frames, &wait) < 0)
        return ERR_NOMEM;
    to->wait = (struct task_wait){.kind = wait.kind,
                                  .what = wait.what,
                                  .object = wait.object,
                                  .has_fd = wait.has_fd,
                                  .number = wait.number,
                                  .seconds = wait.seconds};
    return 0;
}

static int add_greenlet(struct reading *r, struct task_set *set, const struct item *item)
{
    struct async_task to = {.addr = item->g.addr,
                            .state = item->g.state == GREENLET_RUNNING ? TASK_RUNNING : TASK_WAITING,
                            .unsure = item->unsure,
                            .type = greenlet_type_name(&r->types, &item->g),
                            .parent = item->g.parent,
                            .is_main = item->g.is_main};

    if (grow_array((void **)&set->tasks, &set->cap, set->n + 1, sizeof(to)) < 0)
        return ERR_NOMEM;
    if (greenlet_name(greenlet_reader_python(r->reader), &item->g, &to.name) < 0 || add_frames(r, item, &to) < 0 ||
        (to.n_frames && add_wait(r, item, &to) < 0)) {
        free((void *)(uintptr_t)to.frames);
        return ERR_NOMEM;
    }
    set->n_unsure += to.unsure;
    set->tasks[set->n++] = to;
    return 0;
}

static int compare_items(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    uint64_t m = x->th ? x->th->thread_id : 0, n = y->th ? y->th->thread_id : 0;

    if (m != n)
        return m < n ? -1 : 1;
    return x->g.addr < y->g.addr ? -1 : x->g.addr > y->g.addr;
}

static int add_thread(struct task_set *set, const struct sampled_thread *th)
{
    if (grow_array((void **)&set->loops, &set->cap_loops, set->n_loops + 1, sizeof(*set->loops)) < 0)
        return ERR_NOMEM;
    set->loops[set->n_loops++] = (struct task_loop){.is_greenlets = true,
                                                    .running = true,
                                                    .thread_id = th->thread_id,
                                                    .os_thread_id = th->os.tid,
                                                    .thread_name = th->name ? th->name : th->kernel_name,
                                                    .first = set->n};
    return 0;
}

/* A main greenlet that was never suspended is in no thread. */
static int add_greenlets(struct reading *r, struct task_set *set)
{
    const struct sampled_thread *last = NULL;
    int e = 0;

    for (size_t i = 0; i < r->n; i++) {
        struct item *item = &r->items[i];
        bool has_stack = item->g.state == GREENLET_SUSPENDED || item->g.state == GREENLET_RUNNING;

        item->th = has_stack ? thread_of(r->p, &item->g) : NULL;
        set->n_new_greenlets += item->g.state == GREENLET_NEW;
        set->n_dead_greenlets += item->g.state == GREENLET_DEAD;
    }
    if (r->n)
        qsort(r->items, r->n, sizeof(*r->items), compare_items);
    code_cache_round(r->p->codes, false);
    for (size_t i = 0; i < r->n && e == 0; i++) {
        const struct item *item = &r->items[i];

        if (!item->th)
            continue;
        if (item->th != last)
            e = add_thread(set, item->th);
        last = item->th;
        if (e == 0)
            e = add_greenlet(r, set, item);
        if (e == 0)
            set->loops[set->n_loops - 1].n++;
    }
    return e;
}

static int read_found(struct reading *r, struct task_set *set)
{
    uint64_t begin = clock_cpu_ns();
    int e;

    r->end_ns = begin + READ_NS;
    r->reader = greenlet_reader_new(&r->p->py);
    if (!r->reader)
        return ERR_NOMEM;
    e = read_all(r);
    if (e == 0 && !r->p->core && !nothing_ran(r->p))
        e = read_again(r);
    if (e == 0)
        e = add_greenlets(r, set);
    log_debug("greenlets", "pid %d: read %zu, CPU time %llu us", (int)r->p->pid, r->n,
              (unsigned long long)((clock_cpu_ns() - begin) / NS_PER_US));
    set->searched = r->found.searched;
    set->total = r->found.total;
    set->incomplete |= r->cut;
    return e;
}

static void reading_free(struct reading *r)
{
    greenlet_reader_free(r->reader);
    greenlets_found_free(&r->found);
    frames_free(&r->current);
    free(r->items);
    free(r->frames);
    free(r->codes);
    free(r->code);
    repr_free(r->repr);
}

int process_greenlets(struct process *p, struct task_set *set)
{
    struct reading r = {.p = p};
    int e;

    run_as_user_begin(p->user);
    e = find_types(&r);
    if (e == 0 && r.types.n && !deadline_passed())
        e = search(&r);
    if (e == 0 && r.found.n)
        e = read_found(&r, set);
    run_as_user_end(p->user);
    reading_free(&r);
    return e;
}
