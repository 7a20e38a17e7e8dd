/*
 * Reads one stack, again when it turns out that the thread ran meanwhile. Called for each thread and sample.
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

#define TRIES        8
#define GENTLE_TRIES 3 /* then it is held, even if it looks asleep */
/* Code objects that were found unchanged so short a time ago are not looked at again: at up to two thousand samples
 * a second each one is, at each sample. While new ones come, none is trusted: an old one may have made room for it. */
#define CHECK_NS     (NS_PER_MS / 2)
#define NEW_NS       (100 * NS_PER_MS)
#define ODD_NS       (50 * NS_PER_US)
#define ODD_LOOKS    4 /* a loop may make its generators in the same place again and again */
#define LOOK_SOON_NS (150 * NS_PER_US)
#define MAX_RING     4096
/* Of a native stack, while the thread is held: what a recording copies each time, and a dump once. */
#define NATIVE_LIMIT      ((size_t)1024 * 1024)
#define NATIVE_LIMIT_ONCE ((size_t)64 * 1024 * 1024)

/* ERR_TORN when there is one that cannot be read: its entry is NULL. */
static int resolve_codes(struct stack *st, const struct stack_source *src, uint64_t now)
{
    size_t n = st->frames.n;
    int r;

    if (grow_array((void **)&st->addrs, &st->cap_addrs, n, sizeof(*st->addrs)) < 0 ||
        grow_array((void **)&st->codes, &st->cap_codes, n, sizeof(*st->codes)) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        st->addrs[i] = st->frames.items[i].code;
    if (now - st->checked_ns > CHECK_NS || now - st->new_ns < NEW_NS) {
        code_cache_round(src->codes, now - st->new_ns >= NEW_NS);
        st->checked_ns = now;
    }
    r = code_cache_get(src->codes, src->py, st->addrs, n, st->codes);
    if (code_cache_reads(src->codes) != st->reads) {
        st->reads = code_cache_reads(src->codes);
        st->new_ns = now;
    }
    for (size_t i = 0; r == 0 && i < n; i++)
        if (!st->codes[i])
            r = ERR_TORN;
    return r;
}

/* Names the stack: by its code objects as they were read, their instructions, and the thread. */
static void make_key(struct stack *st, const struct known_thread *k)
{
    uint64_t key = hash_mix(k->thread_id, (uint64_t)k->os.tid);

    for (size_t i = 0; i < st->frames.n; i++)
        key = hash_mix(hash_mix(key, st->codes[i]->serial), (uint64_t)st->frames.items[i].at);
    key = hash_mix(key, st->unsure);
    st->key = key ? key : 1;
}

/* A thread that nothing keeps still: its frames are read twice, and what both readings have in common, from the root
 * on, was there between them. */
static int read_frames_moving(struct stack *st, const struct stack_source *src, struct known_thread *k)
{
    size_t sure;
    bool cut;
    int r = frames_read_unpaused(&st->frames, src->py, src->snapshot, &k->plan, k->tstate, &k->frames, &sure, &cut);

    if (r == 0 && (cut || sure < st->frames.n)) {
        st->unsure = true;
        frames_keep_outermost(&st->frames, sure);
    }
    return r;
}

/* A code object that was read just now may have taken the place of the one that the frame had: only if the frame is
 * still there with it, it is the right one. */
static int recheck_moving(struct stack *st, const struct stack_source *src, struct known_thread *k)
{
    size_t n = st->frames.n, same = 0;
    int r = read_frames_moving(st, src, k);

    if (r < 0)
        return r;
    while (same < n && same < st->frames.n && st->addrs[n - 1 - same] == st->frames.items[st->frames.n - 1 - same].code)
        same++;
    st->unsure |= same < n;
    frames_keep_outermost(&st->frames, same);
    memmove(st->codes, st->codes + (n - same), same * sizeof(struct code *));
    return same ? 0 : ERR_TORN;
}

static int read_moving(struct stack *st, const struct stack_source *src, struct known_thread *k, uint64_t now)
{
    int r = read_frames_moving(st, src, k);

    if (r == 0)
        r = resolve_codes(st, src, now);
    return r == 0 && st->frames.n && st->new_ns == now ? recheck_moving(st, src, k) : r;
}

static int read_still(struct stack *st, const struct stack_source *src, struct known_thread *k, uint64_t now)
{
    int r = frames_read(&st->frames, src->py, src->snapshot, k->tstate, &k->frames);

    return r < 0 ? r : resolve_codes(st, src, now);
}

/* A ring of frames is shown once around. */
static size_t before_ring(const struct frames *f)
{
    size_t n = f->n < MAX_RING ? f->n : MAX_RING;

    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (f->items[i].addr == f->items[k].addr)
                return i;
    return n;
}

/* A thread of a core file will not get past the moment: of a damaged stack, what can be read is better than nothing. */
static int read_dead(struct stack *st, const struct stack_source *src, struct known_thread *k, uint64_t now)
{
    int r = frames_read(&st->frames, src->py, src->snapshot, k->tstate, &k->frames);

    if (r < 0 && k->frames.generator) { /* it ends in a generator, and always will */
        k->frames.accepted = k->frames.generator;
        r = frames_read(&st->frames, src->py, src->snapshot, k->tstate, &k->frames);
    }
    st->cut = r < 0;
    if (r == ERR_CYCLE)
        st->frames.n = before_ring(&st->frames);
    if (r == ERR_NOMEM || resolve_codes(st, src, now) == ERR_NOMEM)
        return ERR_NOMEM;
    st->unreadable.name = intern_str(src->py->names, "[unreadable]");
    st->unreadable.filename = intern_str(src->py->names, "not in the core file");
    if (!st->unreadable.name || !st->unreadable.filename)
        return ERR_NOMEM;
    for (size_t i = 0; i < st->frames.n; i++) {
        if (st->codes[i])
            continue;
        if (st->cut) /* where the chain broke, this may be no frame at all */
            st->frames.n = i;
        else
            st->codes[i] = &st->unreadable;
    }
    return 0;
}

/* The variables of each frame. Without a hold only those of frames that are still there afterwards count. */
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

/* From 3.13 on a class that is called often gets a frame of the interpreter's own below its __init__ (_Py_InitCleanup in
 * Python/specialize.c). It has one name for all and no line, and Python itself never shows it. */
static bool is_internal(const struct code *code)
{
    return code->name_at && code->name_at == code->file_at && code->first_line == 0;
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

static int read_once(struct stack *st, const struct stack_source *src, struct known_thread *k, const struct pause *p)
{
    int r;

    st->unsure = st->cut = false;
    if (p->method == PAUSE_DEAD)
        r = read_dead(st, src, k, p->since_ns);
    else
        r = p->method == PAUSE_UNPAUSED ? read_moving(st, src, k, p->since_ns) : read_still(st, src, k, p->since_ns);
    if (r < 0)
        return r;
    drop_internal(st);
    if (src->heads) {
        st->heads_same = threads_heads_same(src->py, src->heads);
        st->heads_read = true;
    }
    if (src->sampler->options.locals && (r = read_locals(st, src, p)) < 0)
        return r;
    if (src->sampler->options.gil)
        st->owns_gil = threads_gil_holder(src->py, k->interp) == k->tstate;
    make_key(st, k);
    return 0;
}

/* Some failures are a moment's: the interpreter between two states, memory that has just moved. */
static bool is_passing(int r)
{
    return r == ERR_TORN || r == ERR_READ || r == ERR_CYCLE || r == ERR_BOUNDS;
}

static void remember(struct known_thread *k, const struct stack *st, const struct pause *p)
{
    k->last.still = p->method == PAUSE_ASLEEP || p->method == PAUSE_SAME_CORE;
    k->last.active = st->active;
    k->os.stats = p->stats;
    k->last.has_stack = true;
    k->last.key = st->key;
    k->last.n_frames = st->frames.n;
    k->last.owns_gil = st->owns_gil;
}

/* One that slept when it was held goes back to its call when it is let go: see emit_unchanged. */
static void remember_rest(struct known_thread *k, const struct native *n, const struct pause *p)
{
    k->last.blocked = n && n->captured && p->method == PAUSE_PTRACE && p->look.state == 'S';
    if (!k->last.blocked)
        return;
    k->last.blocked_sp = n->regs.r[REGS_SP];
    k->last.blocked_pc = n->regs.r[REGS_PC];
}

/* A stack that ends in a generator is most often one that was caught between two states; but C code can resume a
 * generator with no Python below. Then it is still so after the thread has run on for a while. */
static void judge_root(struct known_thread *k, const struct pause *p, int r, int end)
{
    if (r == 0 && !k->frames.generator) {
        k->root.generator = k->frames.accepted = 0;
        return;
    }
    if (end < 0 || p->method == PAUSE_UNPAUSED || !k->frames.generator)
        return;
    if (k->root.generator != k->frames.generator) {
        k->root.generator = k->frames.generator;
        k->root.run_ns = p->stats.run_ns;
        k->root.seen = 0;
    }
    k->root.seen++;
    /* One that sleeps does so in a call, and is not between two states; one in state D may wait for a page anywhere. */
    if ((p->method == PAUSE_ASLEEP && p->look.state == 'S') ||
        (k->root.seen >= ODD_LOOKS && (p->method == PAUSE_ASLEEP || p->stats.run_ns - k->root.run_ns > ODD_NS)))
        k->frames.accepted = k->root.generator;
}

/* glibc 2.35 and later: the kernel writes there on which CPU the thread runs, before it lets it run (rseq(2)). */
static addr_t cpu_word(const struct python *py, const struct known_thread *k)
{
    return py->cpu_word != NO ? k->thread_id + (addr_t)(int64_t)py->cpu_word : 0;
}

/* It was not asked on which core the thread is: is it ours? */
static bool was_on_core(const struct stack_source *src, const struct pause *p)
{
    uint32_t cpu;

    return !p->cpu_word ||
           (snapshot_read_last(src->snapshot, &cpu) == 0 && (int)cpu == src->sampler->pauser.affinity.cpu);
}

/* In a recording, the register set of the last context switch replaces ptrace, if perf_event_open(2) is allowed. */
static bool may_use_perf_regs(const struct stack_source *src, const struct known_thread *k)
{
    return src->sampler->options.recording && pause_uses_same_core(&src->sampler->pauser) && k->tstate && k->os.tid &&
           (k->os.perf_regs.ring || !k->os.perf_regs.tried);
}

static void capture_native(const struct stack_source *src, struct known_thread *k, const struct pause *p)
{
    struct native *n = src->native;
    const struct core_thread *dead = p->method == PAUSE_DEAD ? core_file_thread(n->core, k->os.tid) : NULL;
    size_t limit = src->sampler->options.recording ? NATIVE_LIMIT : NATIVE_LIMIT_ONCE;
    struct regs regs;
    uint64_t fs_base;

    n->captured = false;
    if (may_use_perf_regs(src, k) && p->look.state == 'R')
        perf_regs_open(&k->os.perf_regs, k->os.tid);
    if (dead)
        native_capture(n, &dead->regs, dead->fs_base, k->os.tid == n->pid, limit);
    else if (pause_regs(&src->sampler->pauser, &k->os, p, k->thread_id, &regs, &fs_base))
        native_capture(n, &regs, fs_base, k->os.tid == n->pid, limit);
    if (n->captured) /* from 3.11 on the entry frames between Python's frames are there */
        snapshot_offer(src->snapshot, n->copy.addr, n->copy.bytes, n->copy.len);
}

static void begin_snapshot(const struct stack_source *src, struct known_thread *k, const struct pause *p)
{
    snapshot_begin(src->snapshot, &k->plan, SNAPSHOT_ONCE, p->cpu_word);
    if (!src->heads)
        return;
    snapshot_expect(src->snapshot, src->py->interp_head, sizeof(addr_t));
    snapshot_expect(src->snapshot, k->interp + (addr_t)src->py->layout.in_threads, sizeof(addr_t));
}

static int read_frozen(struct stack *st, const struct stack_source *src, struct known_thread *k, struct pause *p)
{
    int r, end;
    bool on_core;

    if (p->method != PAUSE_UNPAUSED)
        begin_snapshot(src, k, p);
    if (src->native)
        capture_native(src, k, p);
    k->frames.generator = 0;
    r = read_once(st, src, k, p);
    snapshot_end(src->snapshot, r == 0);
    on_core = was_on_core(src, p);
    end = pause_end(&src->sampler->pauser, &k->os, p);
    if (!on_core) {
        k->os.left_ns = 0;
        end = ERR_TORN;
    }
    judge_root(k, p, r, end);
    st->asked_after = p->check_after && end < 0;
    return end < 0 ? end : r;
}

static int leave_idle(struct known_thread *k, const struct stack_source *src, struct pause *p)
{
    k->last.still = pause_end(&src->sampler->pauser, &k->os, p) == 0 && p->method == PAUSE_ASLEEP;
    k->last.active = false;
    k->os.stats = p->stats;
    return STACK_IDLE;
}

/* No note was there after all. */
static bool lacks_native(const struct stack_source *src, const struct pause *p)
{
    return src->native && !src->native->captured && p->method != PAUSE_DEAD && !src->sampler->pauser.ptrace_refused &&
           !src->sampler->options.nonblocking;
}

/* One try: 0 when what was read is true (or marked as unsure). */
static int try_read(struct stack *st, const struct stack_source *src, struct known_thread *k, bool idle, bool firm)
{
    struct pause pause;
    int r = pause_begin(&src->sampler->pauser, &k->os, firm, cpu_word(src->py, k), &pause);

    k->last.has_stack = k->last.still = k->last.blocked = false;
    if (r < 0)
        return r;
    st->active = pause.look.state == 'R';
    if (!st->active && !idle)
        return leave_idle(k, src, &pause);
    r = read_frozen(st, src, k, &pause);
    if (r == 0 && !firm && lacks_native(src, &pause)) {
        r = ERR_TORN; /* of one that runs there will be a note in a moment */
        st->must_hold = pause.method == PAUSE_ASLEEP || !k->os.perf_regs.ring;
    }
    src->sampler->pauser.reads[pause.method] += r == 0;
    if (r == 0)
        remember_rest(k, src->native, &pause);
    if (r == 0 && pause.method != PAUSE_UNPAUSED)
        remember(k, st, &pause);
    /* One that moves runs; one that does not may have gone to sleep. */
    else if (r == 0 && st->key == k->last.key && k->os.running_until_ns > pause.since_ns + LOOK_SOON_NS)
        k->os.running_until_ns = pause.since_ns + LOOK_SOON_NS;
    if (r == 0)
        log_changed(LOG_LEVEL_DEBUG, "pause", k->os.tid, pause.method, "tid %d: state %c, CPU %d: read %s",
                    (int)k->os.tid, pause.look.state, pause.look.cpu, pause_method_name(pause.method));
    k->last.key = st->key;
    return r;
}

/* Lets the thread get past the moment, longer each time. On its own core it goes on only while we sleep. */
static void give_way(const struct sampler *s, int tries)
{
    if (s->pauser.affinity.cpu >= 0)
        clock_sleep_ns((5 * NS_PER_US) << tries);
    else
        sched_yield();
}

int stack_read(struct stack *st, const struct stack_source *src, struct known_thread *k, bool idle)
{
    /* Variables take longer to read than a thread can be kept off its core. */
    int r = ERR_TORN, gentle = src->sampler->options.locals ? 1 : GENTLE_TRIES;

    st->owns_gil = st->unsure = st->heads_read = false;
    st->must_hold = src->native && !src->sampler->pauser.ptrace_refused && !may_use_perf_regs(src, k);
    for (int i = 0; i < TRIES && is_passing(r); i++) {
        if (i)
            give_way(src->sampler, i);
        st->asked_after = false;
        r = try_read(st, src, k, idle, st->must_hold || i >= gentle);
        if (r == ERR_TORN && st->asked_after) {
            st->checked_ns = 0; /* it asks for the same again, so that the next sample finds all of it read ahead */
            r = try_read(st, src, k, idle, st->must_hold || i >= gentle);
        }
        if (r < 0)
            log_often(LOG_LEVEL_DEBUG, "sample", -r, "tid %d: attempt %d: %s", (int)k->os.tid, i + 1, err_name(r));
    }
    if (r < 0)
        log_often(LOG_LEVEL_INFO, "sample", -r, "tid %d: no stack: %s", (int)k->os.tid, err_name(r));
    return r;
}

int stack_read_native(struct stack *st, const struct stack_source *src, struct known_thread *k, bool idle)
{
    struct pause pause;
    int r = pause_begin(&src->sampler->pauser, &k->os, true, 0, &pause);

    st->frames.n = 0;
    st->owns_gil = st->unsure = st->cut = false;
    st->key = hash_mix(1, (uint64_t)k->os.tid);
    k->last.has_stack = k->last.still = k->last.blocked = false;
    if (r < 0)
        return r;
    st->active = pause.look.state == 'R';
    if (!st->active && !idle)
        return leave_idle(k, src, &pause);
    capture_native(src, k, &pause);
    pause_end(&src->sampler->pauser, &k->os, &pause);
    remember(k, st, &pause);
    remember_rest(k, src->native, &pause);
    return 0;
}

void stack_free(struct stack *st)
{
    frames_free(&st->frames);
    locals_free(&st->locals);
    free(st->addrs);
    free(st->codes);
    *st = (struct stack){0};
}
