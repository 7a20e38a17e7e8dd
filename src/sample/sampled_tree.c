/*
 * Attaches to the processes of a tree, and samples all of them.
 */
#include "sample/sampled_tree.h"

#include "base/clock.h"
#include "base/log.h"
#include "sample/native_cpu.h"
#include "target/access.h"

#include <stdlib.h>

#define RETRY_NS      (20 * NS_PER_MS)
#define POLL_NS       (2 * NS_PER_MS)
#define CPU_BUDGET_NS (NS_PER_MS / 2) /* how long one refresh may spend on measuring CPU time */

/* ---- attaching ---- */

/* True when the process may still become a Python process that can be read. */
static bool may_change(const struct tree_entry *e, int r)
{
    if (r == ERR_STARTING || r == ERR_READ || r == ERR_TORN)
        return true;
    return r == ERR_NOT_PYTHON && access_is_starting(e->pid);
}

/* The attached process that `e` was forked from, if neither has called exec since. */
static const struct process *forked_from(const struct process_tree *t, const struct tree_entry *e)
{
    const struct tree_entry *parent = e->node->up ? process_tree_find(t, e->node->up->info.pid) : NULL;

    return parent && parent->process && e->image && parent->image == e->image ? parent->process : NULL;
}

static int attach(struct process_tree *t, struct tree_entry *e, uint64_t patience_ns, struct err_note *note)
{
    const struct process *like = forked_from(t, e);
    int r = like ? process_attach_fork(t->sampler, e->pid, like, &e->process) : ERR_STARTING;

    if (r < 0 && r != ERR_NOMEM)
        r = process_attach(t->sampler, e->pid, patience_ns, &e->process, note);
    if (r == 0) {
        process_move_info(e->process, &e->node->info);
        t->has_python = true;
    }
    return r;
}

/* Attaches, and notes whether to retry after an error. Without a `note`, the caller only needs to handle ERR_NOMEM. */
static int try_attach(struct process_tree *t, struct tree_entry *e, uint64_t patience_ns, struct err_note *note)
{
    struct proc_stat st;
    int r;

    if (e->process || e->is_profiler)
        return 0;
    if (proc_stat_read(e->pid, 0, &st) == 0 && st.start_time == e->start_time)
        e->image = st.image; /* it may have called exec since it was added */
    r = attach(t, e, patience_ns, note);
    e->error = r;
    if (r == 0 || r == ERR_NOMEM)
        return r;
    if (r == ERR_NO_PROCESS || r == ERR_GONE)
        e->dead = true;
    e->rejected = !may_change(e, r);
    if (e->rejected)
        log_changed(LOG_LEVEL_DEBUG, "tree", e->pid, e->start_time, "pid %d: not tried again: %s", (int)e->pid,
                    err_name(r));
    e->retry_ns = clock_now_ns() + RETRY_NS;
    return process_node_read_command(e->node) < 0 ? ERR_NOMEM : r;
}

int sampled_tree_attach(struct process_tree *t, struct tree_entry *e, uint64_t patience_ns)
{
    uint64_t deadline = clock_now_ns() + patience_ns;
    int r = try_attach(t, e, 0, NULL);

    while (r == ERR_STARTING && clock_now_ns() < deadline) {
        clock_sleep_ns(POLL_NS);
        r = try_attach(t, e, 0, NULL);
    }
    return r;
}

void sampled_tree_detach(struct tree_entry *e)
{
    e->process = process_free(e->process);
}

int sampled_tree_add_root(struct process_tree *t, pid_t pid, uint64_t patience_ns, bool must_be_python,
                          struct err_note *note)
{
    struct proc_stat st;
    int r = proc_stat_read(pid, 0, &st);

    if (r < 0)
        return r == ERR_NO_PROCESS ? err_because(note, r, &(struct err_facts){.reason = REASON_NO_PID, .pid = pid}) : r;
    t->free_process = process_free;
    r = process_tree_insert(t, pid, &st, NULL);
    if (r < 0)
        return r;
    if (must_be_python)
        return try_attach(t, &t->items[0], patience_ns, note);
    r = try_attach(t, &t->items[0], 0, note);
    if (r == ERR_STARTING)
        r = sampled_tree_attach(t, &t->items[0], patience_ns);
    return r == ERR_NOT_PYTHON || r == ERR_STARTING ? 0 : r;
}

/* Starts where the last refresh stopped: processes that are tried again and again without success must not use up the
 * time for all others. */
static int attach_new(struct process_tree *t)
{
    uint64_t begin = clock_now_ns(), now = begin;
    size_t from = t->next_attach % t->n;
    int r = 0;

    for (size_t i = 0; i < t->n && r != ERR_NOMEM; i++) {
        struct tree_entry *e = &t->items[(from + i) % t->n];

        if (e->process || e->rejected || e->is_profiler || e->dead || now < e->retry_ns)
            continue;
        r = try_attach(t, e, 0, NULL);
        t->next_attach = from + i + 1;
        now = clock_now_ns();
        if (t->attach_budget_ns && now - begin >= t->attach_budget_ns)
            break;
    }
    return r == ERR_NOMEM ? r : 0;
}

/* Starts where the last refresh stopped, like attach_new. */
static void update_cpu_use(struct process_tree *t)
{
    uint64_t begin = clock_now_ns(), now = begin;
    size_t from = t->next_cpu % t->n;

    for (size_t i = 0; i < t->n && now - begin < CPU_BUDGET_NS; i++) {
        struct tree_entry *e = &t->items[(from + i) % t->n];

        t->next_cpu = from + i + 1;
        if (!e->process || e->dead)
            continue;
        native_cpu_update(e->process, now);
        now = clock_now_ns();
    }
}

struct cpu_use sampled_tree_cpu_use(struct process_tree *t)
{
    struct cpu_use use = t->sampler->cpu_of_ended;

    for (size_t i = 0; i < t->n; i++)
        if (t->items[i].process)
            native_cpu_finish(t->items[i].process, &use);
    return use;
}

int sampled_tree_refresh(struct process_tree *t)
{
    int r = process_tree_refresh(t);

    if (r == 0 && !t->manual_attach)
        r = attach_new(t);
    if (r == 0 && t->sampler->options.recording)
        update_cpu_use(t);
    return r;
}

/* ---- sampling ---- */

/* Samples one process. ERR_GONE when it has ended. */
static int entry_sample(struct process_tree *t, struct tree_entry *e, process_sink sink, void *arg)
{
    uint64_t before = t->sampler->stacks;
    int r = process_sample(e->process, sink, arg);

    if (t->sampler->stacks != before)
        process_node_pin(e->node, &t->pinned);
    if (r == ERR_GONE)
        e->dead = true;
    else if (r < 0 && r != ERR_NOMEM) {
        if (r != ERR_STARTING) /* no stack was missed */
            sampler_count_error(t->sampler, r);
        e->recheck = true;
    }
    return r;
}

int sampled_tree_sample(struct process_tree *t, process_sink sink, void *arg)
{
    size_t left = 0;
    int r = 0;

    for (size_t i = 0; i < t->n && r == 0; i++) {
        struct tree_entry *e = &t->items[i];

        if (!e->process) {
            left += !e->rejected && !e->is_profiler && !e->dead;
            continue;
        }
        r = entry_sample(t, e, sink, arg);
        left += r != ERR_GONE;
        if (r != ERR_NOMEM && r <= 0)
            r = 0;
    }
    /* A root that is not Python may still start a Python process, or become one by exec. */
    return r ? r : left || process_tree_root_alive(t) ? 0 : ERR_GONE;
}
