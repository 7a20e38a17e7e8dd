/*
 * Reads one stack. If the thread ran in the meantime, reads it again.
 */
#include "sample/stack.h"

#include "base/clock.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/log.h"
#include "target/core_file.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SWITCH_NS    (20 * NS_PER_US) /* the longest time between switching to us and our first reading of a clock */
#define MAX_TRIES    8
#define GENTLE_TRIES 3 /* then use ptrace, even if the thread looks asleep */
/* Do not check code objects again that were unchanged this short a time ago. At up to 2000 samples per second each is
 * checked at each sample. While new code objects appear, trust none: a new one may reuse the address of an old one. */
#define CODE_CHECK_NS          (NS_PER_MS / 2)
#define CODE_NEW_NS            (100 * NS_PER_MS)
#define GENERATOR_ROOT_NS      (50 * NS_PER_US)
#define GENERATOR_ROOT_SAMPLES 4 /* a loop may create its generators at the same address again and again */
#define STATE_CHECK_NS         (150 * NS_PER_US)
#define MAX_CYCLE              4096
#define GIL_LOOKS              4                /* at a thread that may be about to wait for the GIL */
#define GIL_LOOKS_MAX          256              /* at all threads together: less than 50 ms */
#define GIL_LOOK_NS            (50 * NS_PER_US) /* before the first; then twice as long each time */
/* How much of a native stack to copy during the pause: at each sample of a recording, or once for a dump. */
#define NATIVE_LIMIT      ((size_t)1024 * 1024)
#define NATIVE_LIMIT_ONCE ((size_t)64 * 1024 * 1024)

/* ERR_TORN when a code object cannot be read, ERR_TOO_MANY_CODES when the stack has too many; their entries are NULL. */
static int resolve_codes(struct stack *st, const struct stack_source *src, uint64_t now)
{
    size_t n = st->frames.n;
    int r;

    if (grow_array((void **)&st->addrs, &st->cap_addrs, n, sizeof(*st->addrs)) < 0 ||
        grow_array((void **)&st->codes, &st->cap_codes, n, sizeof(*st->codes)) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        st->addrs[i] = st->frames.items[i].code;
    if (now - st->checked_ns > CODE_CHECK_NS || now - st->new_code_ns < CODE_NEW_NS) {
        code_cache_round(src->codes, now - st->new_code_ns >= CODE_NEW_NS);
        st->checked_ns = now;
    }
    r = code_cache_get(src->codes, src->py, st->addrs, n, st->codes);
    if (r == ERR_TOO_MANY_CODES) { /* the cache may have been full of others: a new round empties it */
        code_cache_round(src->codes, false);
        r = code_cache_get(src->codes, src->py, st->addrs, n, st->codes);
    }
    if (code_cache_reads(src->codes) != st->code_reads) {
        st->code_reads = code_cache_reads(src->codes);
        st->new_code_ns = now;
    }
    for (size_t i = 0; r == 0 && i < n; i++)
        if (!st->codes[i])
            r = ERR_TORN;
    return r;
}

/* The key covers the thread and, for each frame, the code object (as of the last time it was read) and the
 * instruction. */
static void make_key(struct stack *st, const struct sampled_thread *th)
{
    uint64_t key = hash_mix(th->thread_id, (uint64_t)th->os.tid);

    for (size_t i = 0; i < st->frames.n; i++)
        key = hash_mix(hash_mix(key, st->codes[i]->serial), (uint64_t)st->frames.items[i].at);
    key = hash_mix(hash_mix(key, st->unsure), st->awaiters.kept);
    for (size_t i = 0; i < st->awaiters.n; i++)
        key = hash_mix(hash_mix(key, st->awaiters.codes[i]->serial), (uint64_t)st->awaiters.frames[i].at);
    st->key = key ? key : 1;
}

/* Nothing pauses the thread, so its frames are read twice. What both copies have in common, counted from the root, was
 * there between the two reads. */
static int read_frames_unpaused(struct stack *st, const struct stack_source *src, struct sampled_thread *th)
{
    size_t sure;
    bool cut;
    int r = frames_read_unpaused(&st->frames, src->py, src->snapshot, &th->plan, th->tstate, &th->frames, &sure, &cut);

    if (r == 0 && (cut || sure < st->frames.n)) {
        st->unsure = true;
        frames_keep_outermost(&st->frames, sure);
    }
    return r;
}

/* A code object that was read only now may have replaced the one that the frame ran. It is the right one only if the
 * frame still refers to it. */
static int recheck_unpaused(struct stack *st, const struct stack_source *src, struct sampled_thread *th)
{
    size_t n = st->frames.n, same = 0;
    int r = read_frames_unpaused(st, src, th);

    if (r < 0)
        return r;
    while (same < n && same < st->frames.n && st->addrs[n - 1 - same] == st->frames.items[st->frames.n - 1 - same].code)
        same++;
    st->unsure |= same < n;
    frames_keep_outermost(&st->frames, same);
    memmove(st->codes, st->codes + (n - same), same * sizeof(struct code *));
    return same ? 0 : ERR_TORN;
}

static int read_unpaused(struct stack *st, const struct stack_source *src, struct sampled_thread *th, uint64_t now)
{
    int r = read_frames_unpaused(st, src, th);

    if (r == 0)
        r = resolve_codes(st, src, now);
    return r == 0 && st->frames.n && st->new_code_ns == now ? recheck_unpaused(st, src, th) : r;
}

/* The number of frames before the first repetition: a cycle is shown once. */
static size_t count_before_cycle(const struct frames *f)
{
    size_t n = f->n < MAX_CYCLE ? f->n : MAX_CYCLE;

    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (f->items[i].addr == f->items[k].addr)
                return i;
    return n;
}

/* A retry does not help with a core file. Show what can be read of a damaged stack. */
static int read_dead(struct stack *st, const struct stack_source *src, struct sampled_thread *th, uint64_t now)
{
    int r = frames_read(&st->frames, src->py, src->snapshot, th->tstate, &th->frames);

    if (r < 0 && th->frames.generator) { /* the stack ends in a generator, and a retry will not change that */
        th->frames.accepted = th->frames.generator;
        r = frames_read(&st->frames, src->py, src->snapshot, th->tstate, &th->frames);
    }
    st->truncated = r < 0;
    if (r == ERR_CYCLE)
        st->frames.n = count_before_cycle(&st->frames);
    if (r == ERR_NOMEM || resolve_codes(st, src, now) == ERR_NOMEM)
        return ERR_NOMEM;
    st->unreadable.name = intern_str(src->py->names, "[unreadable]");
    st->unreadable.filename = intern_str(src->py->names, "not in the core file");
    if (!st->unreadable.name || !st->unreadable.filename)
        return ERR_NOMEM;
    for (size_t i = 0; i < st->frames.n; i++) {
        if (st->codes[i])
            continue;
        if (st->truncated) /* the chain is broken, so this may not be a frame */
            st->frames.n = i;
        else
            st->codes[i] = &st->unreadable;
    }
    return 0;
}

/* Unpaused, only the variables of frames that are still there afterwards are valid. */
static int read_locals(struct stack *st, const struct stack_source *src, const struct pause *p)
{
    const struct sampler_options *o = &src->sampler->options;
    struct locals_options options = {.level = o->locals, .show_secrets = o->show_secrets};
    int r = locals_read(&st->locals, src->py, st->frames.items, st->frames.n, &options);

    for (size_t i = 0; r == 0 && p->method == PAUSE_UNPAUSED && i < st->frames.n; i++) {
        const struct py_frame *frame = &st->frames.items[i];
        addr_t code;

        if (mem_read_addr(src->py->mem, frame->addr + (addr_t)src->py->layout.fr_code, &code) < 0 ||
            (code & ~3ull) != frame->code)
            locals_drop(&st->locals, i);
    }
    return r;
}

static int read_awaiters(struct stack *st, const struct stack_source *src, struct sampled_thread *th, uint64_t now)
{
    tasks_begin(src->tasks, src->py, src->codes);
    return awaiters_read(&st->awaiters, src->tasks, th->interp, th->tstate, &st->frames, st->codes, now);
}

/* Unpaused, two equal readings in a row count. */
static int add_awaiters(struct stack *st, const struct stack_source *src, struct sampled_thread *th,
                        const struct pause *p)
{
    uint64_t key;
    int r = read_awaiters(st, src, th, p->since_ns);

    if (r < 0 || p->method != PAUSE_UNPAUSED)
        return r;
    make_key(st, th);
    key = st->key;
    r = read_awaiters(st, src, th, p->since_ns);
    make_key(st, th);
    return r < 0 || st->key == key ? r : ERR_TORN;
}

/* The code of a frame that Python tracebacks hide. From 3.13 on, a specialized call of a class pushes one below __init__
 * (_Py_InitCleanup in Python/specialize.c). Its name and file name are the same string, and it has no line. 3.12 has one in each
 * entry frame, which a torn read may not recognize as such (Python/pylifecycle.c). */
static bool is_internal(const struct code *code)
{
    return (code->name_at && code->name_at == code->file_at && code->first_line == 0) ||
           (strcmp(code->name, "<interpreter trampoline>") == 0 && strcmp(code->filename, "<shim>") == 0);
}

static void drop_internal(struct stack *st)
{
    size_t kept = 0;

    for (size_t i = 0; i < st->frames.n; i++) {
        if (is_internal(st->codes[i]))
            continue;
        st->frames.items[kept] = st->frames.items[i];
        st->codes[kept++] = st->codes[i];
    }
    st->frames.n = kept;
}

/* Versions before 3.11 do not provide this. */
static addr_t innermost_entry(const struct stack *st, const struct python *py, const struct sampled_thread *th)
{
    if (!st->frames.n)
        return ENTRY_NONE;
    if (py->layout.cf_frame != NO)
        return th->frames.cframe;
    for (size_t i = 0; i < st->frames.n; i++)
        if (st->frames.items[i].entry)
            return st->frames.items[i].entry;
    return ENTRY_UNKNOWN;
}

/* As gil_is_awaited(). Finds the locks of the GIL at the first call. */
static int waits_for_gil(const struct stack_source *src, struct sampled_thread *th)
{
    if (!th->os.tid || th->os.dead)
        return 0;
    if (!th->gil_found)
        th->gil_found = gil_find(src->py, th->interp, &th->gil);
    return th->gil_found ? gil_is_awaited(src->py, &th->gil, &th->os.task) : 0;
}

static void read_gil_state(struct stack *st, const struct stack_source *src, struct sampled_thread *th,
                           const struct pause *p)
{
    int waits;

    st->owns_gil = threads_gil_holder(src->py, th->interp) == th->tstate;
    waits = !st->owns_gil && p->look.state == 'S' ? waits_for_gil(src, th) : 0;
    st->waits_for_gil = waits > 0;
    st->active |= waits == ERR_TORN; /* it has woken up, but need not have run since */
}

static int read_once(struct stack *st, const struct stack_source *src, struct sampled_thread *th, const struct pause *p)
{
    int r;

    st->unsure = st->truncated = false;
    st->awaiters.kept = st->awaiters.n = 0;
    if (p->method == PAUSE_DEAD) {
        r = read_dead(st, src, th, p->since_ns);
    } else if (p->method == PAUSE_UNPAUSED) {
        r = read_unpaused(st, src, th, p->since_ns);
    } else {
        r = frames_read(&st->frames, src->py, src->snapshot, th->tstate, &th->frames);
        if (r == 0)
            r = resolve_codes(st, src, p->since_ns);
    }
    if (r < 0)
        return r;
    th->entry = innermost_entry(st, src->py, th);
    drop_internal(st);
    if (src->tasks && (r = add_awaiters(st, src, th, p)) < 0)
        return r;
    if (src->heads) {
        st->heads_same = threads_heads_same(src->py, src->heads);
        st->heads_checked = true;
    }
    if (src->sampler->options.locals && (r = read_locals(st, src, p)) < 0)
        return r;
    if (src->sampler->options.find_gil_holder)
        read_gil_state(st, src, th, p);
    make_key(st, th);
    return 0;
}

/* These errors can go away: the interpreter was in the middle of an update, or memory has moved. */
static bool is_transient(int r)
{
    return r == ERR_TORN || r == ERR_READ || r == ERR_CYCLE || r == ERR_BOUNDS;
}

static void save_last_stack(struct sampled_thread *th, const struct stack *st, const struct pause *p)
{
    th->last.off_cpu = p->method == PAUSE_ASLEEP || p->method == PAUSE_SAME_CORE;
    th->last.active = st->active;
    th->os.stats = p->stats;
    th->last.has_stack = true;
    th->last.key = st->key;
    th->last.n_frames = stack_frames(st);
    th->last.owns_gil = st->owns_gil;
    th->last.waits_for_gil = st->waits_for_gil;
}

/* A thread that was blocked in a system call resumes that call after the detach: see is_blocked_again in
 * emit_trace.c. */
static void save_blocked_syscall(struct sampled_thread *th, const struct native *n, const struct pause *p)
{
    th->last.blocked = n && n->captured && p->method == PAUSE_PTRACE && p->look.state == 'S';
    if (!th->last.blocked)
        return;
    th->last.blocked_sp = n->regs.r[REGS_SP];
    th->last.blocked_pc = n->regs.r[REGS_PC];
}

/* A stack whose outermost frame is a generator is usually torn. But C code can resume a generator with no Python frame
 * below it. Accept it if it is still there after the thread has run for a while. */
static void update_generator_root(struct sampled_thread *th, const struct pause *p, int r, int end)
{
    if (r == 0 && !th->frames.generator) {
        th->generator_root.generator = th->frames.accepted = 0;
        return;
    }
    if (end < 0 || p->method == PAUSE_UNPAUSED || !th->frames.generator)
        return;
    if (th->generator_root.generator != th->frames.generator) {
        th->generator_root.generator = th->frames.generator;
        th->generator_root.run_ns = p->stats.run_ns;
        th->generator_root.n_samples = 0;
    }
    th->generator_root.n_samples++;
    /* State S: the thread sleeps in a system call, so the interpreter is not in the middle of an update. State D may
     * be a page fault anywhere. */
    if ((p->method == PAUSE_ASLEEP && p->look.state == 'S') ||
        (th->generator_root.n_samples >= GENERATOR_ROOT_SAMPLES &&
         (p->method == PAUSE_ASLEEP || p->stats.run_ns - th->generator_root.run_ns > GENERATOR_ROOT_NS)))
        th->frames.accepted = th->generator_root.generator;
}

/* In a recording, the register set of the last context switch replaces ptrace, if perf_event_open(2) is allowed. */
static bool may_use_perf_regs(const struct stack_source *src, const struct sampled_thread *th)
{
    return src->sampler->options.recording && pause_uses_same_core(&src->sampler->pauser) && th->tstate && th->os.tid &&
           (th->os.perf_regs.ring || !th->os.perf_regs.tried);
}

static void capture_native(const struct stack_source *src, struct sampled_thread *th, const struct pause *p)
{
    struct native *n = src->native;
    const struct core_thread *dead = p->method == PAUSE_DEAD ? core_file_thread(n->core, th->os.tid) : NULL;
    size_t limit = src->sampler->options.recording ? NATIVE_LIMIT : NATIVE_LIMIT_ONCE;
    struct regs regs;
    uint64_t fs_base;

    n->captured = false;
    if (may_use_perf_regs(src, th) && p->look.state == 'R')
        perf_regs_open(&th->os.perf_regs, th->os.tid);
    if (dead)
        native_capture(n, &dead->regs, dead->fs_base, th->os.tid == n->pid, limit);
    else if (pause_regs(&src->sampler->pauser, &th->os, p, th->thread_id, &regs, &fs_base))
        native_capture(n, &regs, fs_base, th->os.tid == n->pid, limit);
}

/*
 * True if the thread was on a CPU when the sampler arrived, and not waiting for one. A waiting thread is not at a
 * random point of its program: it was just woken, or it was preempted at the end of its time slice, which started when
 * it was woken.
 *
 * A thread on our own core is not running now. If it ran until we arrived, the kernel last charged it for CPU time when
 * it switched to us. Since then a timer tick may have charged us. On another core, a thread is running if it was
 * scheduled once more than it was descheduled. A thread must run to enter a ptrace stop, so after one we cannot tell.
 */
static bool was_on_cpu(const struct stack_source *src, struct sampled_thread *th, const struct pause *p)
{
    struct sampler *s = src->sampler;
    struct task_run run, own;
    struct sched_stats stats;
    struct task_look look;

    if (!s->contended || s->options.mode != SAMPLER_CPU ||
        (p->method != PAUSE_SAME_CORE && p->method != PAUSE_UNPAUSED) || task_last_run(&th->os.task, &run) < 0)
        return true;
    if (p->method == PAUSE_UNPAUSED && (task_look(&th->os.task, &look) < 0 || look.cpu != cpu_affinity_current()))
        return task_sched_stats(&th->os.task, &stats) < 0 || stats.run_count > run.switches;
    return task_last_run(&s->self, &own) < 0 ||
           run.charged_ns + (clock_now_ns() - s->pauser.affinity.since_ns) + SWITCH_NS >= own.charged_ns;
}

/* Reads the stack of a paused thread, ends the pause, and returns ERR_TORN if the thread may have run in between. */
static int read_and_end_pause(struct stack *st, const struct stack_source *src, struct sampled_thread *th,
                              struct pause *p)
{
    struct pauser *pauser = &src->sampler->pauser;
    bool on_our_cpu;
    uint32_t cpu;
    int r, end;

    if (p->method != PAUSE_UNPAUSED) {
        snapshot_begin(src->snapshot, &th->plan, SNAPSHOT_ONCE, p->cpu_word);
        if (src->heads) {
            snapshot_expect(src->snapshot, src->py->interp_head, sizeof(addr_t));
            snapshot_expect(src->snapshot, th->interp + (addr_t)src->py->layout.in_threads, sizeof(addr_t));
        }
    }
    if (src->native)
        capture_native(src, th, p);
    if (src->native && src->native->captured) /* from 3.11 on, it holds the entry frames between Python frames */
        snapshot_offer(src->snapshot, src->native->copy.addr, src->native->copy.bytes, src->native->copy.len);
    th->frames.generator = 0;
    r = read_once(st, src, th, p);
    snapshot_end(src->snapshot, r == 0);
    /* With a cpu_word, pause_begin assumed that the thread is on our CPU instead of reading its state. */
    on_our_cpu = !p->cpu_word || (snapshot_read_last(src->snapshot, &cpu) == 0 && (int)cpu == pauser->affinity.cpu);
    end = pause_end(pauser, &th->os, p);
    th->last.on_cpu = end < 0 || was_on_cpu(src, th, p);
    if (!on_our_cpu) {
        th->os.left_ns = 0;
        end = ERR_TORN;
    }
    update_generator_root(th, p, r, end);
    st->retry_at_once = p->check_after && end < 0;
    return end < 0 ? end : r;
}

static int skip_idle(struct sampled_thread *th, const struct stack_source *src, struct pause *p)
{
    th->last.off_cpu = pause_end(&src->sampler->pauser, &th->os, p) == 0 && p->method == PAUSE_ASLEEP;
    th->last.active = false;
    th->os.stats = p->stats;
    return STACK_IDLE;
}

/* True if the thread was read without its registers, and ptrace was not tried. */
static bool misses_regs(const struct stack_source *src, const struct pause *p, enum pause_need need)
{
    const struct pauser *ps = &src->sampler->pauser;

    if (p->method == PAUSE_DEAD || ps->ptrace_refused || ps->nonblocking)
        return false;
    return need == PAUSE_ANY || (need == PAUSE_REGS && ps->sleeper_regs && p->method == PAUSE_ASLEEP);
}

/* One try. 0: the stack is consistent, or st->unsure is set. */
static int try_read(struct stack *st, const struct stack_source *src, struct sampled_thread *th, bool include_idle,
                    enum pause_need need)
{
    struct pauser *pauser = &src->sampler->pauser;
    /* rseq(2), glibc 2.35 and later: the kernel stores the CPU number there before it resumes the thread. */
    addr_t cpu_word = src->py->cpu_word != NO ? th->thread_id + (addr_t)(int64_t)src->py->cpu_word : 0;
    struct pause pause;
    int r = pause_begin(pauser, &th->os, need, cpu_word, &pause);

    th->last.has_stack = th->last.off_cpu = th->last.blocked = false;
    if (r < 0)
        return r;
    st->active = pause.look.state == 'R';
    st->kernel_state = pause.look.state;
    if (!st->active && !include_idle)
        return skip_idle(th, src, &pause);
    r = read_and_end_pause(st, src, th, &pause);
    if (r == 0 && src->native && !src->native->captured && misses_regs(src, &pause, need)) {
        /* There is no perf context-switch record. If the thread is running, there will be one in a moment. */
        r = ERR_TORN;
        st->need = pause.method == PAUSE_ASLEEP || !th->os.perf_regs.ring ? PAUSE_STOP : PAUSE_ANY;
    }
    pauser->reads[pause.method] += r == 0;
    if (r == 0)
        save_blocked_syscall(th, src->native, &pause);
    if (r == 0 && pause.method != PAUSE_UNPAUSED)
        save_last_stack(th, st, &pause);
    /* Unpaused: a stack that changes means that the thread is running. If it did not change, check the thread's state
     * soon. */
    else if (r == 0 && st->key == th->last.key && th->os.running_until_ns > pause.since_ns + STATE_CHECK_NS)
        th->os.running_until_ns = pause.since_ns + STATE_CHECK_NS;
    if (r == 0)
        log_changed(LOG_LEVEL_DEBUG, "pause", th->os.tid, pause.method, "tid %d: state %c, CPU %d: read %s",
                    (int)th->os.tid, pause.look.state, pause.look.cpu, pause_method_name(pause.method));
    th->last.key = st->key;
    return r;
}

static int read_with_retries(struct stack *st, const struct stack_source *src, struct sampled_thread *th,
                             bool include_idle)
{
    /* Reading variables takes longer than a thread can be kept off its core. */
    int r = ERR_TORN, gentle = src->sampler->options.locals ? 1 : GENTLE_TRIES;

    st->owns_gil = st->waits_for_gil = st->unsure = st->heads_checked = false;
    st->need = PAUSE_ANY;
    if (src->native && !src->sampler->pauser.ptrace_refused && !may_use_perf_regs(src, th))
        st->need = src->stop ? PAUSE_STOP : PAUSE_REGS;
    for (int i = 0; i < MAX_TRIES && is_transient(r); i++) {
        /* Let the thread run past the inconsistent state. On our own core it only runs while we sleep. */
        if (i && src->sampler->pauser.affinity.cpu >= 0)
            clock_sleep_ns((5 * NS_PER_US) << i);
        else if (i)
            sched_yield();
        st->retry_at_once = false;
        r = try_read(st, src, th, include_idle, i < gentle ? st->need : PAUSE_STOP);
        if (r == ERR_TORN && st->retry_at_once) {
            /* Check the code objects again, so that the read plan for the next sample includes them. */
            st->checked_ns = 0;
            r = try_read(st, src, th, include_idle, i < gentle ? st->need : PAUSE_STOP);
        }
        if (r < 0)
            log_often(LOG_LEVEL_DEBUG, "sample", -r, "tid %d: attempt %d: %s", (int)th->os.tid, i + 1, err_name(r));
    }
    if (r < 0)
        log_often(LOG_LEVEL_INFO, "sample", -r, "tid %d: no stack: %s", (int)th->os.tid, err_name(r));
    return r;
}

/* A thread that waits for the GIL wakes up every few milliseconds to request it, and goes back to sleep within
 * microseconds. True if this thread, which was awake but did not hold the GIL, was doing that. */
static bool goes_back_to_wait(const struct stack *st, const struct stack_source *src, struct sampled_thread *th)
{
    struct sampler *s = src->sampler;

    if (!s->options.find_gil_holder || s->options.recording || !st->active || st->owns_gil ||
        !threads_gil_holder(src->py, th->interp))
        return false;
    for (int i = 0; i < GIL_LOOKS && s->gil_looks < GIL_LOOKS_MAX; i++) {
        s->gil_looks++;
        clock_sleep_ns(GIL_LOOK_NS << i);
        if (waits_for_gil(src, th) > 0)
            return true;
    }
    return false;
}

int stack_read(struct stack *st, const struct stack_source *src, struct sampled_thread *th, bool include_idle)
{
    int r = read_with_retries(st, src, th, include_idle);

    if (r < 0 || !goes_back_to_wait(st, src, th))
        return r;
    th->os.running_until_ns = 0; /* unpaused: read its state again */
    return read_with_retries(st, src, th, include_idle);
}

static int try_read_native(struct stack *st, const struct stack_source *src, struct sampled_thread *th,
                           bool include_idle, enum pause_need need)
{
    struct pause pause;
    int r = pause_begin(&src->sampler->pauser, &th->os, need, 0, &pause), end;

    th->last.has_stack = th->last.off_cpu = th->last.blocked = false;
    if (r < 0)
        return r;
    st->active = pause.look.state == 'R';
    st->kernel_state = pause.look.state;
    if (!st->active && !include_idle)
        return skip_idle(th, src, &pause);
    capture_native(src, th, &pause);
    end = pause_end(&src->sampler->pauser, &th->os, &pause);
    th->last.on_cpu = end < 0 || was_on_cpu(src, th, &pause);
    if (src->native->captured ? end < 0 : misses_regs(src, &pause, need)) {
        src->native->captured = false;
        return ERR_TORN;
    }
    save_last_stack(th, st, &pause);
    save_blocked_syscall(th, src->native, &pause);
    return 0;
}

int stack_read_native(struct stack *st, const struct stack_source *src, struct sampled_thread *th, bool include_idle)
{
    int r = ERR_TORN;

    st->frames.n = st->awaiters.kept = st->awaiters.n = 0;
    st->owns_gil = st->waits_for_gil = st->unsure = st->truncated = false;
    st->key = hash_mix(1, (uint64_t)th->os.tid);
    for (int i = 0; i < MAX_TRIES && r == ERR_TORN; i++) {
        if (i)
            sched_yield();
        r = try_read_native(st, src, th, include_idle, src->stop || i >= GENTLE_TRIES ? PAUSE_STOP : PAUSE_REGS);
    }
    return r == ERR_TORN ? 0 : r; /* it wakes up too often: without its stack */
}

bool stack_is_same(struct stack *st, const struct stack_source *src, struct sampled_thread *th)
{
    struct pause p = {.method = PAUSE_ASLEEP, .since_ns = clock_now_ns()};
    int r;

    snapshot_begin(src->snapshot, &th->plan, SNAPSHOT_ONCE, 0);
    th->frames.generator = 0;
    r = read_once(st, src, th, &p);
    snapshot_end(src->snapshot, r == 0);
    return r == 0 && st->key == th->last.key;
}

size_t stack_frames(const struct stack *st)
{
    return st->awaiters.kept ? st->awaiters.kept + st->awaiters.n : st->frames.n;
}

void stack_free(struct stack *st)
{
    awaiters_free(&st->awaiters);
    frames_free(&st->frames);
    locals_free(&st->locals);
    free(st->addrs);
    free(st->codes);
    *st = (struct stack){0};
}
