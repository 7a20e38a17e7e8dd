/*
 * A stack that was read -> a trace, handed to the sink. Called for each thread and sample.
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

static struct trace trace_of(const struct process *p, const struct known_thread *k)
{
    return (struct trace){
        .process = p->info, .thread_id = k->thread_id, .os_thread_id = k->os.tid, .thread_name = k->name};
}

static int hand_over(struct process *p, const struct trace *trace, process_sink sink, void *arg)
{
    p->sampler->stacks++;
    p->sampler->unsure += trace->unsure;
    return sink(trace, arg);
}

/* Stands for the frames on top that could not be vouched for. */
static const struct func not_sure = {
    .name = "[unverified]", .filename = "changed while being read", .short_filename = "changed while being read"};

/* Stands for the frames at the root that are not in a core file. */
static const struct func cut_off = {
    .name = "[truncated]", .filename = "not in the core file", .short_filename = "not in the core file"};
/* Gives the frames the variables that were read with them. */
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

/* Stacks that read the same have the same key. How many frames that gives is told to who has seen it before. */
static void add_native_key(struct process *p, struct known_thread *k, struct trace *trace)
{
    k->last.native_key = p->native.key;
    k->last.n_native = p->native.stack.n;
    p->sampler->native_none += !p->native.captured;
    p->sampler->native_cut += p->native.captured && !p->native.stack.complete;
    trace->key = hash_mix(trace->key, p->native.key);
    trace->n_frames += p->native.stack.n;
}

/* Puts the native frames between the Python ones. */
static int weave(struct process *p, const struct known_thread *k, struct trace *trace)
{
    struct merged_frames *w = &p->weave;

    if (merge_frames(w, &p->native, &p->py, &p->stack.frames, p->frames + trace->unsure, k->frames.cframe) < 0)
        return ERR_NOMEM;
    p->sampler->native_failed += w->failed;
    if (p->stack.cut) {
        if (grow_array((void **)&w->items, &w->cap, w->n + 1, sizeof(*w->items)) < 0)
            return ERR_NOMEM;
        w->items[w->n++] = p->frames[trace->n_frames - 1];
    }
    trace->frames = w->items;
    trace->n_frames = w->n;
    return 0;
}

int emit_stack(struct process *p, struct known_thread *k, bool active, process_sink sink, void *arg)
{
    const struct frames *frames = &p->stack.frames;
    struct trace trace = trace_of(p, k);

    trace.active = active;
    trace.owns_gil = p->stack.owns_gil;
    trace.unsure = p->stack.unsure;
    trace.key = hash_mix(p->stack.key, (uint64_t)(uintptr_t)p->info);
    trace.n_frames = frames->n;
    if (p->sampler->options.native)
        add_native_key(p, k, &trace);
    if (is_known(p, trace.key))
        return hand_over(p, &trace, sink, arg);
    if (grow_array((void **)&p->frames, &p->cap_frames, frames->n + 2, sizeof(*p->frames)) < 0)
        return ERR_NOMEM;
    trace.n_frames = frames->n + trace.unsure;
    if (trace.unsure) {
        p->frames[0] = (struct frame){.func = sampler_func(p->sampler, &not_sure)};
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
    if (p->stack.cut) {
        p->frames[trace.n_frames] = (struct frame){.func = sampler_func(p->sampler, &cut_off)};
        if (!p->frames[trace.n_frames++].func)
            return ERR_NOMEM;
    }
    trace.frames = p->frames;
    if (p->sampler->options.native && p->native.captured && weave(p, k, &trace) < 0)
        return ERR_NOMEM;
    return hand_over(p, &trace, sink, arg);
}

/*
 * A thread that slept when it was held has had two turns since: one to its stop, and one back into the call that it was
 * in, which the kernel starts again. If it waits at the same place now, it has the stack that it had.
 */
static bool is_back_at_rest(struct known_thread *k)
{
    struct sched_stats stats, after;
    uint64_t sp, pc;

    if (!k->last.blocked || task_sched_stats(&k->os.task, &stats) < 0 || stats.run_count != k->os.stats.run_count + 2)
        return false;
    if (task_waits_at(&k->os.task, &sp, &pc) < 0 || sp != k->last.blocked_sp || pc != k->last.blocked_pc ||
        task_sched_stats(&k->os.task, &after) < 0 || after.run_count != stats.run_count)
        return false;
    k->os.stats = stats;
    k->last.blocked = false;
    return true;
}

bool emit_unchanged(struct process *p, struct known_thread *k, process_sink sink, void *arg, int *ret)
{
    struct trace trace = trace_of(p, k);
    struct sched_stats stats;

    k->os.stats_fresh = false;
    if (pause_checks_after(&p->sampler->pauser, &k->os, p->now_ns))
        return false;
    k->last.still |= is_back_at_rest(k);
    if (!k->last.still || task_sched_stats(&k->os.task, &stats) < 0)
        return false;
    if (stats.run_count != k->os.stats.run_count) {
        k->os.stats = stats;
        k->os.stats_fresh = true;
        return false;
    }
    if (!k->last.active && !p->sampler->options.idle) {
        p->sampler->idle++;
        *ret = 0;
        return true;
    }
    trace.key = hash_mix(k->last.key, (uint64_t)(uintptr_t)p->info);
    trace.n_frames = k->last.n_frames;
    if (p->sampler->options.native) {
        trace.key = hash_mix(trace.key, k->last.native_key);
        trace.n_frames += k->last.n_native;
    }
    trace.owns_gil = k->last.owns_gil;
    trace.active = k->last.active;
    if (!k->last.has_stack || p->sampler->options.gil_only || !is_known(p, trace.key))
        return false;
    *ret = hand_over(p, &trace, sink, arg);
    return true;
}
