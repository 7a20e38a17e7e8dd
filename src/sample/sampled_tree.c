/*
 * Attaches to the processes of a tree, and samples all of them.
 */
#include "sample/sampled_tree.h"

#include "base/clock.h"
#include "base/deadline.h"
#include "base/log.h"
#include "sample/native_cpu.h"
#include "target/access.h"

#include <stdlib.h>

#define RETRY_NS (20 * NS_PER_MS)
#define POLL_NS  (2 * NS_PER_MS)
/* Of one process at a time: */
#define RETRY_REJECTED_NS (500 * NS_PER_MS)
#define HELPERS_NS        (200 * NS_PER_MS) /* for helpers of a process to end after it */
#define CPU_BUDGET_NS     (NS_PER_MS / 2)   /* how long one refresh may spend on measuring CPU time */

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
        if (e->was_attached)
            process_count_from_now(e->process);
        e->was_attached = true;
    }
    return r;
}

/* Attaches, and notes whether to retry after an error. Without a `note`, the caller only needs to handle ERR_NOMEM. */
static int try_attach(struct process_tree *t, struct tree_entry *e, uint64_t patience_ns, struct err_note *note)
{
    struct err_note own = {0};
    struct proc_stat st;
    int r;

    note = note ? note : &own;
    if (e->process || e->is_profiler)
        return 0;
    if (proc_stat_read(e->pid, 0, &st) == 0 && st.start_time == e->start_time)
        e->image = st.image; /* it may have called exec since it was added */
    r = attach(t, e, patience_ns, note);
    e->error = r;
    e->reason = r < 0 ? note->facts.reason : REASON_NONE;
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

/* True when it is worth waiting for the interpreter. A server may load Python and leave it to its children to
 * initialize it (Apache with mod_wsgi). */
static bool is_starting(const struct tree_entry *e, int r)
{
    return r == ERR_STARTING && (e->reason != REASON_NOT_INITIALIZED || access_is_starting(e->pid));
}

int sampled_tree_attach(struct process_tree *t, struct tree_entry *e, uint64_t patience_ns)
{
    uint64_t deadline = clock_now_ns() + deadline_cap(patience_ns);
    int r = try_attach(t, e, 0, NULL);

    while (is_starting(e, r) && clock_now_ns() < deadline) {
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
    if (r < 0 || t->one_at_a_time)
        return r;
    if (must_be_python)
        return try_attach(t, &t->items[0], patience_ns, note);
    r = try_attach(t, &t->items[0], 0, note);
    if (is_starting(&t->items[0], r))
        r = sampled_tree_attach(t, &t->items[0], patience_ns);
    return r == ERR_NOT_PYTHON || (r != ERR_NOMEM && !t->items[0].rejected) ? 0 : r;
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

/* ---- one process at a time ---- */

/* True when the process may be Python, but cannot be read. */
static bool is_refusal(int r)
{
    return r == ERR_VERSION || r == ERR_UNSUPPORTED || r == ERR_PERMISSION;
}

/* Keeps the error of the root; else the first error of a process that is known to be Python; else the first error. */
static void note_refusal(struct process_tree *t, const struct tree_entry *e, int r, const struct err_note *note)
{
    if (!is_refusal(r) || !t->refusal_note)
        return;
    if (e == &t->items[0] || !t->refused || (t->refused == ERR_PERMISSION && r != ERR_PERMISSION))
        t->refused = err_because(t->refusal_note, r, &note->facts);
}

/* True if the process descends from the followed one, which has just ended. Its helpers, such as the resource tracker of
 * multiprocessing, end soon after it. */
static bool may_end_soon(const struct process_tree *t, const struct tree_entry *e, uint64_t now)
{
    if (!t->followed.ended_ns || now - t->followed.ended_ns >= HELPERS_NS)
        return false;
    for (const struct process_node *node = e->node->up; node; node = node->up)
        if (node->info.pid == t->followed.pid)
            return true;
    return false;
}

/* While no process is followed, looks again at what was not Python: it may load Python later. */
static int attach_if_due(struct process_tree *t, struct tree_entry *e)
{
    bool again = e->error == ERR_NOT_PYTHON && !t->followed.pid;
    struct err_note note = {0};
    uint64_t now = clock_now_ns();
    int r;

    if (e->process || e->is_profiler || e->dead || now < e->retry_ns || (e->rejected && !again) ||
        may_end_soon(t, e, now))
        return 0;
    r = try_attach(t, e, 0, &note);
    if (e->rejected)
        e->retry_ns = clock_now_ns() + RETRY_REJECTED_NS;
    else if (!t->followed.pid && access_is_starting(e->pid))
        e->retry_ns = clock_now_ns() + POLL_NS;
    note_refusal(t, e, r, &note);
    if (e->process)
        t->followed = (struct followed_process){e->pid, e->start_time, e->image, 0};
    return r == ERR_NOMEM ? r : 0;
}

/* The root comes first, even while a descendant is followed: it may become Python by exec. */
static int attach_one(struct process_tree *t)
{
    struct tree_entry *e;
    bool root_alive;
    int r = attach_if_due(t, &t->items[0]);

    if (r < 0 || t->items[0].process)
        return r < 0 ? r : process_tree_keep_root(t);
    e = process_tree_followed(t);
    if (e && (e->process || !e->rejected))
        return attach_if_due(t, e); /* it may have called exec */
    if (!t->followed.ended_ns)
        t->followed.ended_ns = clock_now_ns();
    root_alive = process_tree_root_alive(t);
    for (size_t i = 1; i < t->n && r == 0 && !t->items[i - 1].process; i++)
        if (root_alive || !t->followed.pid || t->items[i].image == t->followed.image)
            r = attach_if_due(t, &t->items[i]);
    return r;
}

/* ---- CPU time ---- */

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
        r = t->one_at_a_time && t->subprocesses ? attach_one(t) : attach_new(t);
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

void sampled_tree_settle(struct process_tree *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->items[i].process && !t->items[i].dead)
            process_settle(t->items[i].process);
}

int sampled_tree_sample(struct process_tree *t, process_sink sink, void *arg)
{
    size_t left = 0;
    int r = 0;

    for (size_t i = 0; i < t->n && r == 0; i++) {
        struct tree_entry *e = &t->items[i];

        if (!e->process)
            continue;
        sampler_leave_core_if_long(t->sampler);
        r = entry_sample(t, e, sink, arg);
        left += r != ERR_GONE;
        if (r != ERR_NOMEM && r <= 0)
            r = 0;
    }
    /* A root that is not Python may still start a Python process, or become one by exec. */
    return r ? r : left || process_tree_root_alive(t) || process_tree_has_python(t) ? 0 : ERR_GONE;
}
