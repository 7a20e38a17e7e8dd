/*
 * Samples the threads of one process: which threads to read, in which order, and when to list them again.
 */
#include "base/clock.h"
#include "base/deadline.h"
#include "sample/process_private.h"
#include "sample/wait_reason.h"
#include "target/proc.h"

#define LIST_TRIES           8
#define MAX_FAILED           3                 /* then detect the interpreter again */
#define HEADS_AGE_NS         (500 * NS_PER_US) /* look for new threads this often, together with a stack */
#define HEADS_MAX_NS         (50 * NS_PER_MS)  /* at the latest, with a read of its own */
#define LIST_AGE_NS          NS_PER_S          /* list all threads at least this often */
#define FEW_THREADS          8
#define FEW_THREADS_UNPAUSED 64 /* reading them does not disturb the target */
#define NATIVE_TRIES         4

static bool has_subinterpreters(const struct process *p)
{
    return p->threads.n && p->threads.items[0].interp != p->threads.items[p->threads.n - 1].interp;
}

/* With few threads, poll each one's run count. With more, compare the process CPU clock. While a thread runs on
 * another CPU, that clock only advances at the kernel's next tick, so a thread that wakes up there briefly, without
 * the GIL, can be missed. */
static bool has_few_threads(const struct process *p)
{
    return p->threads.n < (p->sampler->options.nonblocking ? FEW_THREADS_UNPAUSED : FEW_THREADS);
}

/* Uses the result of a check for new threads that was read together with a stack. */
static void apply_heads_check(struct process *p)
{
    if (!p->stack.heads_checked)
        return;
    p->check_heads = false;
    p->heads_checked_ns = clock_now_ns();
    if (!p->stack.heads_same)
        p->listed_ns = 0;
}

/* Finds the loaded libraries, at the first stack and again after an exec. */
static int ensure_native(struct process *p)
{
    if (!p->sampler->options.native || p->native.sampler)
        return 0;
    return native_open(&p->native, p->sampler, p->pid, p->files, p->mem, p->core, &p->py);
}

int process_warm_up(struct process *p)
{
    int r;

    run_as_user_begin(p->user);
    r = ensure_native(p);
    if (r == 0 && p->native.sampler)
        native_warm_up(&p->native);
    run_as_user_end(p->user);
    return r == ERR_NOMEM ? r : 0;
}

/* A library that is loaded or unloaded between the capture and the symbol lookup makes the names wrong. Repeat both. */
static int read_stack(struct process *p, const struct stack_source *src, struct sampled_thread *th)
{
    bool include_idle = p->sampler->options.include_idle, was_active = true;
    int r = 0, names = NATIVE_CHANGED;

    for (int i = 0; i < NATIVE_TRIES && r == 0 && names > 0; i++) {
        r = th->tstate ? stack_read(&p->stack, src, th, include_idle)
                       : stack_read_native(&p->stack, src, th, include_idle);
        p->stack.active &= was_active || p->sampler->options.recording; /* ptrace may have woken it up */
        was_active = p->stack.active;
        names = r == 0 && src->native ? native_unwind(src->native) : 0;
    }
    if (names == NATIVE_CHANGED)
        native_clear(src->native);
    return names < 0 ? names : r;
}

/* True if a stopped thread may show more than the two registers of a sleeping one did. */
static bool misses_frames(const struct process *p)
{
    const struct native *n = &p->native;
    const struct pauser *ps = &p->sampler->pauser;

    if (!n->captured || !n->regs.unknown || ps->nonblocking || ps->ptrace_refused)
        return false;
    return !n->stack.complete || (p->py.layout.fr_owner == NO && eval_frames_lack_registers(n));
}

/* A thread that ptrace cannot stop is shown as it was read first. */
int process_read_stack(struct process *p, const struct stack_source *src, struct sampled_thread *th)
{
    struct stack_source stopped = *src;
    bool was_active;
    int r = read_stack(p, src, th);

    if (r != 0 || !src->native || !misses_frames(p))
        return r;
    was_active = p->stack.active;
    stopped.stop = true;
    r = read_stack(p, &stopped, th);
    if (r < 0 && r != ERR_NOMEM && r != ERR_GONE)
        r = read_stack(p, src, th);
    p->stack.active &= was_active;
    return r;
}

/* The thread state at position `i` of the list, if it is the same thread in another interpreter; else NULL. */
static struct sampled_thread *other_state(struct process *p, const struct sampled_thread *th, size_t i)
{
    const struct py_thread *t = &p->threads.items[i];

    return t->interp != th->interp && t->thread_id == th->thread_id ? thread_table_find(&p->table, t->tstate) : NULL;
}

/*
 * A thread that uses several interpreters has a thread state in each, and all but one wait for another to return. The one
 * that runs has entered Python last, at the lowest address of the C stack. Where that is unknown, it holds the GIL. Without
 * the GIL, it is the one in the newest interpreter, which is listed first.
 */
static bool is_innermost_state(struct process *p, const struct sampled_thread *th)
{
    bool listed = false;

    for (size_t i = 0; i < p->threads.n; i++) {
        const struct sampled_thread *other = other_state(p, th, i);

        listed |= p->threads.items[i].tstate == th->tstate;
        if (!other || !other->entry)
            continue;
        if (other->entry < th->entry)
            return false;
        if (other->entry == th->entry && (threads_gil_holder(&p->py, other->interp) == other->tstate ||
                                          (!listed && threads_gil_holder(&p->py, th->interp) != th->tstate)))
            return false;
    }
    return true;
}

/* Reads the other states of the thread that were never read, for is_innermost_state(). */
static int read_other_states(struct process *p, const struct stack_source *src, const struct sampled_thread *th)
{
    int r = 0;

    for (size_t i = 0; i < p->threads.n && r != ERR_NOMEM; i++) {
        struct sampled_thread *other = other_state(p, th, i);

        if (other && !other->entry)
            r = stack_read(&p->stack, src, other, true);
    }
    return r == ERR_NOMEM ? r : 0;
}

/* The kernel knows one thread, so its CPU time must not be attributed to each of its states. */
static void share_time(struct process *p, const struct sampled_thread *th)
{
    for (size_t i = 0; i < p->threads.n; i++) {
        struct sampled_thread *other = other_state(p, th, i);

        if (other)
            other->time = th->time;
    }
}

/* True if the stack that was read belongs to this process. An open file of a thread in /proc refers to that thread even
 * if its ID is reused, so a stack read between two equal readings of an open schedstat belongs to that thread. For
 * other stacks, check the process. */
static bool is_stack_of(const struct process *p, const struct sampled_thread *th)
{
    return (th->last.off_cpu && th->os.task.schedstat_fd >= 0) || process_has_pid(p);
}

static int sample_thread(struct process *p, struct sampled_thread *th, process_sink sink, void *arg)
{
    struct sampler *s = p->sampler;
    struct stack_source src = {.sampler = s,
                               .py = &p->py,
                               .codes = p->codes,
                               .snapshot = p->snapshot,
                               .heads = p->check_heads ? &p->threads : NULL,
                               .native = s->options.native ? &p->native : NULL,
                               .tasks = p->tasks};
    bool active;
    int r = 0;

    th->was_sampled = true;
    if (deadline_passed())
        return emit_unread(p, th, sink, arg);
    if (th->os.tid && emit_unchanged(p, th, sink, arg, &r))
        return r;
    if (s->options.gil_only && threads_gil_holder(&p->py, th->interp) != th->tstate) {
        s->no_gil++;
        return 0;
    }
    r = ensure_native(p);
    if (r == 0 && !th->entry && has_subinterpreters(p)) /* once per thread: the target controls how many there are */
        r = read_other_states(p, &src, th);
    p->call.row = NULL;
    if (s->options.waits && s->options.native && th->os.tid && !p->core)
        wait_reason_prepare(p, th);
    if (r == 0)
        r = process_read_stack(p, &src, th);
    if (r == 0 && !is_stack_of(p, th)) /* another process has its pid by now */
        r = ERR_GONE;
    apply_heads_check(p);
    if (r == ERR_NOMEM)
        return r;
    if (r < 0 && r != ERR_GONE && deadline_passed())
        return emit_unread(p, th, sink, arg);
    if (r < 0) {
        p->has_execed |= th->os.task.execed;
        p->listed_ns = 0; /* the thread may have ended: list the threads again */
        th->ended = r == ERR_GONE;
        if (r != ERR_GONE) {
            sampler_count_error(s, r);
            emit_lost(p, th);
            emit_unknown(p, th);
        }
        return 0;
    }
    active = th->os.tid ? r != STACK_IDLE && p->stack.active : threads_gil_holder(&p->py, th->interp) == th->tstate;
    if (p->core && p->stack.owns_gil)
        active = true;
    if ((active || p->stack.waits_for_gil) && has_subinterpreters(p) && !is_innermost_state(p, th)) {
        active = th->last.active = false;
        p->stack.waits_for_gil = th->last.waits_for_gil = false;
    }
    if (r == STACK_IDLE || (!active && !s->options.include_idle)) {
        s->idle++;
        return 0;
    }
    if (s->options.gil_only && !p->stack.owns_gil) {
        s->no_gil++;
        return 0;
    }
    r = emit_stack(p, th, active, sink, arg);
    if (has_subinterpreters(p))
        share_time(p, th);
    return r;
}

/* The list is read while the target runs. Retry when it changed in the meantime. */
int process_list_threads(struct process *p, uint64_t now)
{
    int r = mem_answers(p->mem) ? ERR_TORN : ERR_READ;

    if (!has_few_threads(p))
        sampler_leave_core(p->sampler);
    for (int i = 0; i < LIST_TRIES && (r == ERR_TORN || r == ERR_CYCLE); i++)
        r = threads_read(&p->py, &p->threads);
    if (r == 0)
        r = thread_table_update(&p->table, &p->py, p->pid, &p->threads);
    if (r == 0 && !process_has_pid(p)) /* the threads, and their open files, may be another process's */
        r = ERR_GONE;
    if (r == 0)
        p->listed_ns = now;
    running_threads_forget(&p->running);
    return r;
}

/* CPython inserts new threads at the head of the list. Threads that have ended are noticed when their stack is read. */
static int update_threads(struct process *p)
{
    uint64_t now = clock_now_ns();

    p->now_ns = now;
    if (thread_table_needs_update(&p->table, now))
        p->listed_ns = 0;
    p->check_heads = p->listed_ns && now - p->heads_checked_ns >= HEADS_AGE_NS && now - p->listed_ns < LIST_AGE_NS;
    if (p->listed_ns && (p->check_heads || now - p->heads_checked_ns < HEADS_AGE_NS) &&
        now - p->heads_checked_ns < HEADS_MAX_NS)
        return 0;
    p->check_heads = false;
    p->heads_checked_ns = now;
    if (!process_alive(p))
        return ERR_GONE;
    if (p->listed_ns && now - p->listed_ns < LIST_AGE_NS && threads_heads_same(&p->py, &p->threads))
        return 0;
    return process_list_threads(p, now);
}

/* First the thread that received the fatal signal, then the main thread, then the others. */
static int sample_order(const struct process *p, const struct sampled_thread *th)
{
    return th->os.tid && th->os.tid == p->info->signal.tid ? 0 : th->os.tid == p->pid ? 1 : 2;
}

static bool others_are_idle(struct process *p)
{
    return running_threads_is_complete(&p->running, p->pid, &p->table, &p->threads, &p->py, has_few_threads(p));
}

/* Reads only the threads that can have run, or else all. CPython lists the newest thread first; sample the oldest
 * first. */
static int sample_all(struct process *p, process_sink sink, void *arg)
{
    int r = 0;

    if (!p->sampler->options.include_idle && others_are_idle(p)) {
        for (size_t i = 0; r == 0 && i < p->running.n; i++)
            r = sample_thread(p, p->running.items[i], sink, arg);
        p->sampler->idle += p->threads.n - p->running.n;
        return r;
    }
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = p->threads.n; r == 0 && i > 0; i--) {
            struct sampled_thread *th = thread_table_find(&p->table, p->threads.items[i - 1].tstate);

            if (!th || sample_order(p, th) != pass)
                continue;
            sampler_leave_core_if_long(p->sampler);
            r = sample_thread(p, th, sink, arg);
        }
    return r == 0 && !p->core && !has_few_threads(p) ? running_threads_note(&p->running, p->pid, &p->table, &p->threads)
                                                     : r;
}

/* True when threads have started since the last listing. They are sampled in the same tick, because threads that live
 * shorter than a tick would otherwise never be seen. */
static bool threads_changed(struct process *p)
{
    if (p->core || p->has_execed)
        return false;
    if (p->check_heads) { /* no stack was read that would have included the check */
        p->check_heads = false;
        p->heads_checked_ns = p->now_ns;
        if (!threads_heads_same(&p->py, &p->threads))
            p->listed_ns = 0;
    }
    return !p->listed_ns;
}

static int sample_new_threads(struct process *p, process_sink sink, void *arg)
{
    int r = process_list_threads(p, p->now_ns);

    if (r < 0) { /* the next sample finds out why */
        p->listed_ns = 0;
        return r == ERR_NOMEM ? r : 0;
    }
    for (size_t i = p->threads.n; r == 0 && i > 0; i--) {
        struct sampled_thread *th = thread_table_find(&p->table, p->threads.items[i - 1].tstate);

        if (th && !th->was_sampled)
            r = sample_thread(p, th, sink, arg);
    }
    return r;
}

/* Every listed thread is off-CPU, but `holder` has the GIL. True when `holder` is not in the list, or when its thread
 * state now belongs to another thread. */
static bool is_unlisted(const struct process *p, addr_t holder)
{
    for (size_t i = 0; i < p->threads.n; i++)
        if (p->threads.items[i].tstate == holder)
            return !threads_is_same(&p->py, &p->threads.items[i]);
    return true;
}

/* Read the clock before the threads, so that the next comparison notices anything that runs from now on. */
static int sample_and_note_idle(struct process *p, process_sink sink, void *arg)
{
    const struct sampler *s = p->sampler;
    uint64_t idle = s->idle, no_gil = s->no_gil, process_ns = running_threads_clock(&p->running, p->pid);
    int r = sample_all(p, sink, arg);
    bool is_idle = r == 0 && !p->core && p->threads.n && s->idle - idle + s->no_gil - no_gil == p->threads.n, changed;
    addr_t holder = is_idle ? threads_gil_holder(&p->py, p->threads.items[0].interp) : 0;

    if (holder && is_unlisted(p, holder))
        p->listed_ns = 0;
    changed = r == 0 && threads_changed(p);
    p->listed_after = changed;
    if (changed)
        r = sample_new_threads(p, sink, arg);
    if (is_idle && !changed && !s->options.native_all && s->no_gil == no_gil)
        running_threads_note_idle(&p->running, process_ns, holder);
    else
        p->running.all_idle = false;
    return r;
}

static int sample_process(struct process *p, process_sink sink, void *arg)
{
    int r;

    tracer_sweep(&p->sampler->pauser.tracer);
    r = p->n_failed >= MAX_FAILED ? process_detect_again(p) : 0;
    if (r == 0)
        r = p->has_execed ? ERR_STARTING : update_threads(p);
    if (r < 0) {
        p->listed_ns = 0;
        p->n_failed++;
        return process_alive(p) ? r : ERR_GONE;
    }
    p->n_failed = 0;
    p->looks++;
    r = sample_and_note_idle(p, sink, arg);
    if (r == 0 && p->has_execed)
        return ERR_STARTING; /* sampled_tree.c reads the new command line and attaches again */
    /* Without a list we cannot tell which threads have no Python. */
    return r == 0 && p->sampler->options.native_all && p->listed_ns ? native_threads_sample(p, sink, arg) : r;
}

void process_settle(struct process *p)
{
    run_as_user_begin(p->user);
    for (size_t i = 0; i < p->threads.n; i++) {
        struct sampled_thread *th = thread_table_find(&p->table, p->threads.items[i].tstate);

        if (!th)
            continue;
        emit_lost(p, th);
        share_time(p, th);
    }
    run_as_user_end(p->user);
}

/* `r` is the result for the threads. */
static int sample_tasks(struct process *p, int r, process_sink sink, void *arg)
{
    int error = task_samples_emit(p, r == ERR_GONE, sink, arg);

    return error ? error : r;
}

int process_sample(struct process *p, process_sink sink, void *arg)
{
    int r = 0;

    run_as_user_begin(p->user);
    if (!mem_answers(p->mem)) {
        r = ERR_READ;
    } else if (p->running.n == 0 && others_are_idle(p)) {
        p->sampler->idle += p->threads.n;
        p->looks++;
    } else
        r = sample_process(p, sink, arg);
    run_as_user_end(p->user);
    return p->sampler->options.all_tasks && (r == 0 || r == ERR_GONE) ? sample_tasks(p, r, sink, arg) : r;
}
