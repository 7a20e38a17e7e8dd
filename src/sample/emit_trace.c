/*
 * Builds a trace from a stack and passes it to the sink.
 */
#include "base/clock.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/log.h"
#include "sample/library_waits.h"
#include "sample/process_private.h"
#include "sample/wait_reason.h"
#include "sample/wait_state.h"

#include <time.h>

#define CONTENDED_TICKS 64
#define YOUNG_NS        (100 * NS_PER_MS) /* of CPU time */
#define RETURN_TRIES    20
#define RETURN_NS       (100 * NS_PER_US)
#define UNSEEN_TICKS    4 /* add at most this many intervals to one stack */

const struct func *process_func(struct process *p, const struct code *code)
{
    const struct func *func = code->func;
    struct func key = {.name = code->name, .filename = code->filename, .first_line = code->first_line};
    struct short_names_from from = {
        .names = p->sampler->names, .files = p->files, .py = &p->py, .threads = &p->threads};

    if (func)
        return func;
    key.short_filename = short_names_get(&p->short_names, &from, code->filename);
    func = sampler_func(p->sampler, &key);
    if (func)
        code_set_func(code, func);
    return func;
}

static bool is_known(const struct process *p, uint64_t key)
{
    const struct sampler_options *o = &p->sampler->options;

    return o->known_keys && known_keys_have(o->known_keys, key);
}

static struct trace trace_of(const struct process *p, const struct sampled_thread *th)
{
    return (struct trace){.process = p->info,
                          .thread_id = th->thread_id,
                          .os_thread_id = th->os.tid,
                          .thread_name = th->name ? th->name : th->kernel_name,
                          .is_kernel_name = !th->name};
}

/*
 * The CPU time of threads that started and ended without being sampled. A server with a thread per request has many
 * threads that live for less than an interval, and spyglass reads only some of them. The stacks of young threads get
 * this time: all stacks, not only the first of each thread, or the beginning of the threads' work would get too much
 * weight.
 */
static uint64_t unseen_ns(struct process *p, const struct time_parts *parts)
{
    uint64_t used_ns = native_cpu_python_ns(p), known_ns = p->accounted_ns + parts->run_ns + parts->lost_ns;
    uint64_t unseen = used_ns > known_ns ? used_ns - known_ns : 0;
    uint64_t limit_ns = UNSEEN_TICKS * p->sampler->limit_ns;
    uint64_t room = limit_ns > parts->run_ns ? limit_ns - parts->run_ns : 0;

    return unseen < room ? unseen : room;
}

/* The time since the last stack of the thread. */
static struct time_parts take_time(struct process *p, struct sampled_thread *th)
{
    struct sampler *s = p->sampler;
    struct sched_stats stats = th->os.stats;
    struct time_parts parts;
    uint64_t now = clock_now_ns();
    bool is_young, competes;

    /* A thread that was asleep or kept off its core has not run since th->os.stats. */
    if (!th->os.tid || !th->time.is_known || (!th->last.off_cpu && task_sched_stats(&th->os.task, &stats) < 0))
        return (struct time_parts){.elapsed_ns = s->tick_ns, .run_ns = s->tick_ns};
    is_young = th->time.is_new || (th->time.is_recorded && stats.run_ns < YOUNG_NS);
    competes = thread_time_competes(&th->time, &stats);
    if (competes)
        s->contended = CONTENDED_TICKS;
    if (s->options.mode == SAMPLER_CPU && (competes || is_young) && !th->last.on_cpu)
        return (struct time_parts){0}; /* attribute its time to the next stack that is read while it runs */
    parts = thread_time_take(&th->time, &stats, th->last.has_stack, now, s->limit_ns);
    if (is_young && s->options.mode == SAMPLER_CPU && p->stack.frames.n)
        parts.run_ns += unseen_ns(p, &parts);
    p->accounted_ns += parts.run_ns + parts.lost_ns;
    s->lost_ns += parts.lost_ns;
    s->core_wait_ns += parts.core_wait_ns;
    return parts;
}

void emit_lost(struct process *p, struct sampled_thread *th)
{
    struct sched_stats stats;
    uint64_t lost_ns;

    if (!th->os.tid || !th->time.is_known || task_sched_stats(&th->os.task, &stats) < 0)
        return;
    lost_ns = thread_time_take(&th->time, &stats, true, clock_now_ns(), UINT64_MAX).run_ns;
    p->sampler->lost_ns += lost_ns;
    p->accounted_ns += lost_ns;
}

static bool was_shown(const struct process *p, const struct sampled_thread *th)
{
    return th->shown && th->shown + 1 >= p->looks;
}

void emit_unknown(const struct process *p, struct sampled_thread *th)
{
    if (was_shown(p, th))
        th->shown = p->looks;
}

static int emit_part(struct process *p, struct sampled_thread *th, struct trace *trace, enum trace_state state,
                     uint64_t ns, process_sink sink, void *arg)
{
    enum sampler_mode mode = p->sampler->options.mode;

    if (!ns && mode != SAMPLER_COUNT) {
        p->sampler->unweighted++;
        if (mode == SAMPLER_CPU && th->last.on_cpu) /* too short to measure */
            emit_unknown(p, th);
        return 0;
    }
    trace->order = was_shown(p, th) ? TRACE_FOLLOWS : TRACE_AFTER_GAP;
    th->shown = p->looks;
    trace->state = state;
    trace->weight_ns = ns;
    p->sampler->stacks++;
    p->sampler->unsure += trace->unsure;
    return sink(trace, arg);
}

/* --mode wall does not distinguish the reasons. */
static enum trace_state coarse_state(enum trace_state state)
{
    return state == TRACE_WAITING_FOR_GIL || state == TRACE_WAITING_FOR_DISK ? state : TRACE_SLEEPING;
}

static enum trace_state wait_state(const struct process *p, struct sampled_thread *th)
{
    enum sampler_mode mode = p->sampler->options.mode;

    if (p->stack.waits_for_gil)
        return TRACE_WAITING_FOR_GIL;
    return th->os.tid && (mode == SAMPLER_WALL || mode == SAMPLER_WAIT || p->sampler->options.waits)
               ? wait_state_read(&th->os.task, p->stack.kernel_state)
               : TRACE_SLEEPING;
}

/* Emits the stack, weighted by the time since the last one. */
static int emit(struct process *p, struct sampled_thread *th, struct trace *trace, const struct time_parts *parts,
                process_sink sink, void *arg)
{
    struct sampler *s = p->sampler;
    uint64_t busy = parts->run_ns + parts->core_wait_ns;
    /* Assume that a runnable thread has run or waited for a core all that time. */
    uint64_t core =
        busy ? (uint64_t)((double)parts->elapsed_ns * (double)parts->core_wait_ns / (double)busy) : parts->elapsed_ns;
    int r;

    switch (s->options.mode) {
    case SAMPLER_CPU:
        *(trace->n_frames ? &s->attributed_ns : &s->lost_ns) += parts->run_ns;
        return emit_part(p, th, trace, TRACE_RUNNING, parts->run_ns, sink, arg);
    case SAMPLER_WALL:
        if (!trace->active)
            return emit_part(p, th, trace, coarse_state(th->last.state), parts->elapsed_ns, sink, arg);
        r = emit_part(p, th, trace, TRACE_RUNNING, parts->elapsed_ns - core, sink, arg);
        return r == 0 ? emit_part(p, th, trace, TRACE_WAITING_FOR_CORE, core, sink, arg) : r;
    case SAMPLER_WAIT:
        if (!trace->active)
            return emit_part(p, th, trace, th->last.state, parts->elapsed_ns, sink, arg);
        return emit_part(p, th, trace, TRACE_WAITING_FOR_CORE, core, sink, arg);
    case SAMPLER_COUNT:
    case SAMPLER_GIL:
        break;
    }
    return emit_part(p, th, trace, TRACE_RUNNING, s->tick_ns, sink, arg);
}

/* Replaces the innermost frames of an unpaused stack, which differed between the two reads. */
static const struct func unsure_func = {
    .name = "[unverified]", .filename = "changed while being read", .short_filename = "changed while being read"};

/* Replaces the outermost frames that are not in the core file. */
static const struct func truncated_func = {
    .name = "[truncated]", .filename = "not in the core file", .short_filename = "not in the core file"};

/* Stands for the whole stack. */
static const struct func unread_func = {
    .name = "[not read in time]", .filename = "deadline passed", .short_filename = "deadline passed"};

int emit_unread(struct process *p, struct sampled_thread *th, process_sink sink, void *arg)
{
    struct trace trace = trace_of(p, th);
    struct frame frame = {.func = sampler_func(p->sampler, &unread_func)};
    struct task_look look;

    if (!frame.func)
        return ERR_NOMEM;
    trace.active = th->os.tid && task_look(&th->os.task, &look) == 0 && look.state == 'R';
    trace.key = 1;
    trace.frames = &frame;
    trace.n_frames = 1;
    p->sampler->unread++;
    return sink(&trace, arg);
}

/* Attaches the variables to their frames. */
static int add_locals(struct process *p, struct frame *frames)
{
    const struct locals *l = &p->stack.locals;

    if (grow_array((void **)&p->locals, &p->cap_locals, l->n + 1, sizeof(*p->locals)) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < l->n; i++)
        p->locals[i] = (struct local){.name = l->items[i].name,
                                      .value = locals_text(l, &l->items[i]),
                                      .addr = l->items[i].addr,
                                      .is_arg = l->items[i].is_arg};
    for (size_t i = 0; i < l->n_frames && i < p->stack.frames.n; i++) {
        frames[i].locals = p->locals + l->first[i];
        frames[i].n_locals = l->first[i + 1] - l->first[i];
    }
    p->sampler->cut_locals += l->cut;
    return 0;
}

/* Attaches the positions to their frames. */
static int add_positions(struct process *p, struct frame *frames)
{
    size_t n = p->stack.frames.n;

    if (grow_array((void **)&p->sources, &p->cap_sources, n + 1, sizeof(*p->sources)) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        struct position at;

        p->sources[i] = (struct frame_source){.column = -1, .end_column = -1};
        if (code_position(p->stack.codes[i], p->stack.frames.items[i].at, &at) && at.end_line)
            p->sources[i] =
                (struct frame_source){.end_line = at.end_line, .column = at.column, .end_column = at.end_column};
        frames[i].source = &p->sources[i];
    }
    return 0;
}

static bool is_blocked(struct sampled_thread *th)
{
    uint64_t sp, pc;

    return th->last.blocked && task_waits_at(&th->os.task, &sp, &pc) == 0 && sp == th->last.blocked_sp &&
           pc == th->last.blocked_pc;
}

/* A thread that ptrace has stopped goes back to its call as soon as it gets a core. */
static void await_blocked(struct sampled_thread *th)
{
    for (int i = 0; i < RETURN_TRIES && th->last.blocked && !is_blocked(th); i++)
        nanosleep(&(struct timespec){.tv_nsec = RETURN_NS}, NULL);
}

/* The reason why it waits, if it has not run since its stack was read. */
static void add_wait(struct process *p, struct sampled_thread *th, struct trace *trace)
{
    struct sched_stats stats, before;

    if (!th->last.off_cpu)
        await_blocked(th);
    if (task_sched_stats(&th->os.task, &before) < 0)
        before = (struct sched_stats){0};
    if (!wait_reason_read(p, th, p->stack.kernel_state, &p->wait))
        return;
    lock_waits_read(p, th, &before, &p->wait);
    if (!th->last.off_cpu && !is_blocked(th))
        return;
    if (th->last.off_cpu && (task_sched_stats(&th->os.task, &stats) < 0 || !sched_stats_equal(&stats, &th->os.stats)))
        return;
    trace->wait = &p->wait;
}

/* A thread that waits for a GPU may spin instead of sleeping. */
static void add_library_wait(struct process *p, struct trace *trace)
{
    struct awaited_object object;

    if (trace->waits_for_gil || !library_wait_find(trace->frames, trace->n_frames, &object))
        return;
    if (!trace->wait)
        p->wait = (struct wait_reason){.state = TRACE_RUNNING};
    if (library_wait_is_weaker(&p->wait.object))
        return;
    p->wait.object = object;
    trace->wait = &p->wait;
}

/* Adds the native stack to the key. A receiver that knows the key gets no frames, only their number, so
 * count the native ones here. */
static void add_native_key(struct process *p, struct sampled_thread *th, struct trace *trace)
{
    th->last.native_key = p->native.key;
    th->last.n_native = p->native.stack.n;
    p->sampler->native_none += !p->native.captured;
    p->sampler->native_cut += p->native.captured && !p->native.stack.complete;
    trace->key = hash_mix(trace->key, p->native.key);
    trace->n_frames += p->native.stack.n;
}

/* Inserts the native frames between the Python frames. */
static int merge_native(struct process *p, const struct sampled_thread *th, struct trace *trace)
{
    struct merged_frames *m = &p->merged;

    if (merge_frames(m, &p->native, &p->py, &p->stack.frames, p->frames + trace->unsure, th->frames.cframe) < 0)
        return ERR_NOMEM;
    p->sampler->native_failed += m->failed;
    if (p->stack.truncated) {
        if (grow_array((void **)&m->items, &m->cap, m->n + 1, sizeof(*m->items)) < 0)
            return ERR_NOMEM;
        m->items[m->n++] = p->frames[trace->n_frames - 1];
    }
    trace->frames = m->items;
    trace->n_frames = m->n;
    return 0;
}

/* The number of frames up to the outermost one of the running task, of those between which native frames were inserted. */
static size_t frames_of_task(const struct process *p, const struct frame *frames, size_t n, size_t unsure)
{
    size_t python = 0, kept = unsure + p->stack.awaiters.kept;

    for (size_t i = 0; i < n; i++)
        if (python < kept && frames[i].func == p->frames[python].func && ++python == kept)
            return i + 1;
    return n;
}

/* Replaces the frames of the event loop by those of the tasks that wait for the running task. */
static int add_awaiters(struct process *p, struct trace *trace)
{
    const struct awaiters *a = &p->stack.awaiters;
    bool merged = trace->frames != p->frames;
    struct frame **items = merged ? &p->merged.items : &p->frames;
    size_t *cap = merged ? &p->merged.cap : &p->cap_frames;
    size_t n = frames_of_task(p, trace->frames, trace->n_frames, trace->unsure);

    if (grow_array((void **)items, cap, n + a->n, sizeof(**items)) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < a->n; i++) {
        const struct func *func = process_func(p, a->codes[i]);

        if (!func)
            return ERR_NOMEM;
        (*items)[n++] = (struct frame){.func = func, .line = code_line(a->codes[i], a->frames[i].at)};
    }
    trace->frames = *items;
    trace->n_frames = n;
    return 0;
}

int emit_stack(struct process *p, struct sampled_thread *th, bool active, process_sink sink, void *arg)
{
    const struct frames *frames = &p->stack.frames;
    struct time_parts parts = take_time(p, th);
    struct trace trace = trace_of(p, th);
    bool is_marked = !frames->n && !th->tstate && !p->sampler->options.recording; /* its stack is the marker alone */

    if (!active)
        th->last.state = wait_state(p, th);
    trace.active = active;
    trace.owns_gil = p->stack.owns_gil;
    trace.waits_for_gil = p->stack.waits_for_gil;
    trace.unsure = p->stack.unsure;
    if (p->sampler->options.waits && !p->core && lock_waits_note(p, th) < 0)
        return ERR_NOMEM;
    if (p->sampler->options.waits && !active && !trace.waits_for_gil && !p->core)
        add_wait(p, th, &trace);
    trace.key = hash_mix(p->stack.key, (uint64_t)(uintptr_t)p->info);
    trace.n_frames = stack_frames(&p->stack);
    if (p->sampler->options.native)
        add_native_key(p, th, &trace);
    if (is_known(p, trace.key))
        return emit(p, th, &trace, &parts, sink, arg);
    if (grow_array((void **)&p->frames, &p->cap_frames, frames->n + 2, sizeof(*p->frames)) < 0)
        return ERR_NOMEM;
    trace.n_frames = frames->n + trace.unsure;
    if (trace.unsure) {
        p->frames[0] = (struct frame){.func = sampler_func(p->sampler, &unsure_func)};
        if (!p->frames[0].func)
            return ERR_NOMEM;
    }
    for (size_t i = 0; i < frames->n; i++) {
        const struct func *func = process_func(p, p->stack.codes[i]);

        if (!func)
            return ERR_NOMEM;
        p->frames[trace.unsure + i] = (struct frame){.func = func,
                                                     .line = code_line(p->stack.codes[i], frames->items[i].at),
                                                     .is_entry = frames->items[i].is_entry,
                                                     .is_shim_entry = frames->items[i].is_shim_entry};
    }
    if (p->sampler->options.locals && frames->n && add_locals(p, p->frames + trace.unsure) < 0)
        return ERR_NOMEM;
    if (p->sampler->options.positions && add_positions(p, p->frames + trace.unsure) < 0)
        return ERR_NOMEM;
    if (p->stack.truncated) {
        p->frames[trace.n_frames] = (struct frame){.func = sampler_func(p->sampler, &truncated_func)};
        if (!p->frames[trace.n_frames++].func)
            return ERR_NOMEM;
    }
    trace.frames = p->frames;
    if (p->sampler->options.native && (p->native.captured || is_marked) && merge_native(p, th, &trace) < 0)
        return ERR_NOMEM;
    if (p->stack.awaiters.kept && add_awaiters(p, &trace) < 0)
        return ERR_NOMEM;
    if (p->sampler->options.waits && !p->core)
        add_library_wait(p, &trace);
    return emit(p, th, &trace, &parts, sink, arg);
}

/*
 * ptrace has interrupted a blocked thread. If the thread was scheduled twice since (once to stop, once to return to its
 * system call, which the kernel restarts) and blocks with the same SP and PC again, its stack is most likely unchanged.
 *
 * But if the wait ended while the thread was stopped, the thread may now block in another call with the same SP and PC:
 * different Python functions can block at the same depth of the C stack. The run time does not tell the two cases
 * apart, because restarting the call takes as long as running a few bytecodes. So compare the Python stack, too. For a
 * thread without Python, SP and PC must do.
 */
static bool is_blocked_again(struct process *p, struct sampled_thread *th)
{
    struct stack_source src = {
        .sampler = p->sampler, .py = &p->py, .codes = p->codes, .snapshot = p->snapshot, .tasks = p->tasks};
    struct sched_stats stats, after;
    uint64_t sp, pc;

    if (!th->last.blocked || task_sched_stats(&th->os.task, &stats) < 0 ||
        stats.run_count != th->os.stats.run_count + 2)
        return false;
    if (task_waits_at(&th->os.task, &sp, &pc) < 0 || sp != th->last.blocked_sp || pc != th->last.blocked_pc)
        return false;
    if (th->tstate && !stack_is_same(&p->stack, &src, th))
        return false;
    if (task_sched_stats(&th->os.task, &after) < 0 || !sched_stats_equal(&after, &stats))
        return false;
    th->os.stats = stats;
    th->last.blocked = false;
    return true;
}

bool emit_unchanged(struct process *p, struct sampled_thread *th, process_sink sink, void *arg, int *ret)
{
    struct trace trace = trace_of(p, th);
    struct time_parts parts;
    struct sched_stats stats;

    th->os.stats_fresh = false;
    if (pause_checks_after(&p->sampler->pauser, &th->os, p->now_ns))
        return false;
    th->last.off_cpu |= is_blocked_again(p, th);
    if (!th->last.off_cpu || task_sched_stats(&th->os.task, &stats) < 0)
        return false;
    if (!sched_stats_equal(&stats, &th->os.stats)) {
        th->os.stats = stats;
        th->os.stats_fresh = true;
        return false;
    }
    if (!th->last.active && !p->sampler->options.include_idle) {
        p->sampler->idle++;
        *ret = 0;
        return true;
    }
    if (p->sampler->options.mode == SAMPLER_CPU && th->time.is_known) {
        p->sampler->unweighted++;
        *ret = 0;
        return true;
    }
    trace.key = hash_mix(th->last.key, (uint64_t)(uintptr_t)p->info);
    trace.n_frames = th->last.n_frames;
    if (p->sampler->options.native) {
        trace.key = hash_mix(trace.key, th->last.native_key);
        trace.n_frames += th->last.n_native;
    }
    trace.owns_gil = th->last.owns_gil;
    trace.waits_for_gil = th->last.waits_for_gil;
    trace.active = th->last.active;
    if (!th->last.has_stack || p->sampler->options.gil_only || !is_known(p, trace.key))
        return false;
    log_often(LOG_LEVEL_DEBUG, "sample", th->os.tid, "tid %d: has not run, counts its last stack again",
              (int)th->os.tid);
    parts = take_time(p, th);
    *ret = emit(p, th, &trace, &parts, sink, arg);
    return true;
}
