/*
 * Builds a trace from a stack and passes it to the sink.
 */
#include "base/grow.h"
#include "base/hash.h"
#include "sample/process_private.h"
#include "sample/shorten.h"

static const struct func *func_of(struct process *p, const struct code *code)
{
    const struct func *func = code->func;
    struct func key = {.name = code->name, .filename = code->filename, .first_line = code->first_line};

    if (func)
        return func;
    key.short_filename = shorten_filename(p->sampler->names, p->files, code->filename);
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

static int emit(struct process *p, const struct trace *trace, process_sink sink, void *arg)
{
    p->sampler->stacks++;
    p->sampler->unsure += trace->unsure;
    return sink(trace, arg);
}

/* Replaces the innermost frames of an unpaused stack, which differed between the two reads. */
static const struct func unsure_func = {
    .name = "[unverified]", .filename = "changed while being read", .short_filename = "changed while being read"};

/* Replaces the outermost frames that are not in the core file. */
static const struct func truncated_func = {
    .name = "[truncated]", .filename = "not in the core file", .short_filename = "not in the core file"};

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

int emit_stack(struct process *p, struct sampled_thread *th, bool active, process_sink sink, void *arg)
{
    const struct frames *frames = &p->stack.frames;
    struct trace trace = trace_of(p, th);

    trace.active = active;
    trace.owns_gil = p->stack.owns_gil;
    trace.unsure = p->stack.unsure;
    trace.key = hash_mix(p->stack.key, (uint64_t)(uintptr_t)p->info);
    trace.n_frames = frames->n;
    if (p->sampler->options.native)
        add_native_key(p, th, &trace);
    if (is_known(p, trace.key))
        return emit(p, &trace, sink, arg);
    if (grow_array((void **)&p->frames, &p->cap_frames, frames->n + 2, sizeof(*p->frames)) < 0)
        return ERR_NOMEM;
    trace.n_frames = frames->n + trace.unsure;
    if (trace.unsure) {
        p->frames[0] = (struct frame){.func = sampler_func(p->sampler, &unsure_func)};
        if (!p->frames[0].func)
            return ERR_NOMEM;
    }
    for (size_t i = 0; i < frames->n; i++) {
        const struct func *func = func_of(p, p->stack.codes[i]);

        if (!func)
            return ERR_NOMEM;
        p->frames[trace.unsure + i] = (struct frame){.func = func,
                                                     .line = code_line(p->stack.codes[i], frames->items[i].at),
                                                     .is_entry = frames->items[i].is_entry,
                                                     .is_shim_entry = frames->items[i].is_shim_entry};
    }
    if (p->sampler->options.locals && frames->n && add_locals(p, p->frames + trace.unsure) < 0)
        return ERR_NOMEM;
    if (p->stack.truncated) {
        p->frames[trace.n_frames] = (struct frame){.func = sampler_func(p->sampler, &truncated_func)};
        if (!p->frames[trace.n_frames++].func)
            return ERR_NOMEM;
    }
    trace.frames = p->frames;
    if (p->sampler->options.native && p->native.captured && merge_native(p, th, &trace) < 0)
        return ERR_NOMEM;
    return emit(p, &trace, sink, arg);
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
    struct stack_source src = {.sampler = p->sampler, .py = &p->py, .codes = p->codes, .snapshot = p->snapshot};
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
    trace.key = hash_mix(th->last.key, (uint64_t)(uintptr_t)p->info);
    trace.n_frames = th->last.n_frames;
    if (p->sampler->options.native) {
        trace.key = hash_mix(trace.key, th->last.native_key);
        trace.n_frames += th->last.n_native;
    }
    trace.owns_gil = th->last.owns_gil;
    trace.active = th->last.active;
    if (!th->last.has_stack || p->sampler->options.gil_only || !is_known(p, trace.key))
        return false;
    *ret = emit(p, &trace, sink, arg);
    return true;
}
