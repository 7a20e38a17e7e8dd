/*
 * Measures the CPU time of threads without Python.
 */
#include "sample/native_cpu.h"

#include "base/clock.h"
#include "base/err.h"
#include "sample/process_private.h"
#include "target/proc.h"

#include <stdlib.h>

/* At most this much of a recording is lost if the process exits between two measurements. */
#define LOST_SHARE  16
#define MIN_WAIT_NS (20 * NS_PER_MS)
#define MAX_WAIT_NS NS_PER_S
#define MAX_OTHERS  1000 /* threads without Python that are measured; the rest do not count */
#define COST_SHARE  500  /* spend at most one part in this many on a process with many threads */

static int compare_threads(const void *a, const void *b)
{
    const struct native_cpu_thread *x = a, *y = b;

    return (x->tid > y->tid) - (x->tid < y->tid);
}

static const struct native_cpu_thread *find_thread(const struct native_cpu *c, const struct native_cpu_thread *like)
{
    return c->n ? bsearch(like, c->items, c->n, sizeof(*like), compare_threads) : NULL;
}

/* Reads the run times of the threads that are not in `python`. `ret` has room for `n`. Returns how many it filled. */
static size_t read_run_times(pid_t pid, const pid_t *tids, size_t n, const struct tid_list *python,
                             struct native_cpu_thread *ret, size_t *ret_others)
{
    size_t kept = 0;

    *ret_others = 0;
    for (size_t i = 0; i < n; i++) {
        struct task task = {.pid = pid, .tid = tids[i], TASK_NO_FILES};
        struct sched_stats stats = {0};
        bool has_python = tid_list_has(python, tids[i]);

        if (has_python || ((*ret_others)++ < MAX_OTHERS && task_sched_stats(&task, &stats) == 0))
            ret[kept++] = (struct native_cpu_thread){tids[i], has_python, stats.run_ns, 0};
    }
    return kept;
}

/* Adds what the threads ran since the last measurement. Takes over `items`. */
static void replace_items(struct native_cpu *c, struct native_cpu_thread *items, size_t n)
{
    uint64_t before = 0, kept = 0;

    for (size_t i = 0; i < c->n; i++)
        before += c->items[i].has_python ? 0 : c->items[i].sum_ns;
    for (size_t i = 0; i < n; i++) {
        const struct native_cpu_thread *old = find_thread(c, &items[i]);

        if (!old)
            continue;
        kept += old->has_python ? 0 : old->sum_ns;
        items[i].has_python |= old->has_python;
        items[i].sum_ns = old->sum_ns;
        if (!c->gap && items[i].run_ns > old->run_ns) /* less: another thread has this ID now */
            items[i].sum_ns += items[i].run_ns - old->run_ns;
    }
    c->ended_ns += before - kept;
    free(c->items);
    c->items = items;
    c->n = n;
    c->gap = false;
}

/* A thread has no Python only if it is not in a list of the Python threads that is newer than its run time. */
static int list_again(struct process *p, uint64_t now, struct tid_list *python)
{
    int r = process_list_threads(p, now);

    if (r == 0)
        r = thread_table_tids(&p->table, python);
    return r == 0 && !python->complete ? ERR_BOUNDS : r;
}

static int measure_threads(struct process *p, uint64_t now)
{
    struct native_cpu_thread *items = NULL;
    struct tid_list python = {0};
    pid_t *tids = NULL;
    size_t n = 0, kept = 0, others = 0;
    int r = proc_tasks_read(p->pid, &tids, &n);

    if (r == 0)
        r = thread_table_tids(&p->table, &python);
    if (r == 0 && !(items = calloc(n + 1, sizeof(*items))))
        r = ERR_NOMEM;
    if (r == 0)
        kept = read_run_times(p->pid, tids, n, &python, items, &others);
    if (r == 0 && others)
        r = list_again(p, now, &python);
    for (size_t i = 0; r == 0 && i < kept; i++)
        items[i].has_python |= tid_list_has(&python, items[i].tid);
    if (r == 0) {
        qsort(items, kept, sizeof(*items), compare_threads);
        replace_items(&p->native_cpu, items, kept);
    } else {
        free(items);
    }
    free(python.items);
    free(tids);
    return r;
}

static void measure(struct process *p, uint64_t now)
{
    struct native_cpu *c = &p->native_cpu;
    uint64_t before = proc_cpu_ns(p->pid), after;

    if (!before || p->core || p->has_execed || !process_alive(p))
        return;
    if (!c->first_ns) {
        c->first_ns = now;
        c->begin_ns = before;
    }
    run_as_user_begin(p->user);
    c->gap |= measure_threads(p, now) < 0;
    run_as_user_end(p->user);
    after = proc_cpu_ns(p->pid);
    if (after > c->begin_ns)
        c->total_ns = after - c->begin_ns;
}

void native_cpu_update(struct process *p, uint64_t now_ns)
{
    struct native_cpu *c = &p->native_cpu;
    uint64_t wait_ns, cost_ns;

    if (now_ns < c->due_ns)
        return;
    cost_ns = clock_cpu_ns();
    measure(p, now_ns);
    cost_ns = clock_cpu_ns() - cost_ns;
    wait_ns = c->first_ns ? (now_ns - c->first_ns) / LOST_SHARE : 0;
    if (wait_ns < MIN_WAIT_NS)
        wait_ns = MIN_WAIT_NS;
    if (wait_ns > MAX_WAIT_NS)
        wait_ns = MAX_WAIT_NS;
    if (wait_ns < COST_SHARE * cost_ns)
        wait_ns = COST_SHARE * cost_ns;
    c->due_ns = now_ns + wait_ns;
}

static void add_use(const struct native_cpu *c, struct cpu_use *use)
{
    use->total_ns += c->total_ns;
    use->native_ns += c->ended_ns;
    for (size_t i = 0; i < c->n; i++)
        use->native_ns += c->items[i].has_python ? 0 : c->items[i].sum_ns;
}

uint64_t native_cpu_python_ns(struct process *p)
{
    struct native_cpu *c = &p->native_cpu;
    struct cpu_use use = {0};

    /* Once per tick: the kernel adds up the clocks of all threads, and there can be thousands of young ones. */
    if (c->clock_at_ns != p->now_ns) {
        c->clock_at_ns = p->now_ns;
        c->clock_ns = c->begin_ns ? proc_cpu_ns(p->pid) : 0;
    }
    add_use(c, &use);
    use.total_ns = c->clock_ns > c->begin_ns ? c->clock_ns - c->begin_ns : 0;
    return use.total_ns > use.native_ns ? use.total_ns - use.native_ns : 0;
}

void native_cpu_finish(struct process *p, struct cpu_use *use)
{
    measure(p, clock_now_ns());
    add_use(&p->native_cpu, use);
}

void native_cpu_free(struct native_cpu *c, struct cpu_use *use)
{
    add_use(c, use);
    free(c->items);
    *c = (struct native_cpu){0};
}
