/*
 * A Python process -> traces. Called by cmd/dump once and by the recording loop at each tick.
 */
#include "sample/process.h"

#include "base/clock.h"
#include "base/grow.h"
#include "base/hash.h"
#include "python/detect.h"
#include "sample/hot.h"
#include "sample/shorten.h"
#include "sample/stack.h"
#include "sample/thread_table.h"
#include "target/access.h"
#include "target/ahead.h"
#include "target/core_file.h"
#include "target/proc.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIST_TRIES   8
#define POLL_NS      (2 * NS_PER_MS)
#define REDETECT_NS  (50 * NS_PER_MS)
#define MAX_FAILED   3
#define HEADS_AGE_NS (5 * NS_PER_MS)
#define HEADS_MAX_NS (50 * NS_PER_MS)
#define LIST_AGE_NS  NS_PER_S
#define FEW_THREADS  8

struct process {
    struct sampler *sampler;
    pid_t pid;
    uint64_t start_time; /* with the pid it names the process for good */
    int pidfd;           /* -1 on kernels before 5.3 */
    struct proc_info *info;
    struct ahead *ahead; /* NULL: a core file */
    struct mem *mem;     /* through `ahead` */
    const struct files *files;
    struct files own_files;       /* of a live process */
    const struct core_file *core; /* all that is left of it; NULL: it is alive */
    struct python py;
    struct code_cache *codes;
    struct py_threads threads;
    struct thread_table table;
    struct stack stack;
    struct frame *frames; /* of the trace that is delivered */
    size_t cap_frames;
    struct local *locals; /* of these */
    size_t cap_locals;
    size_t failed; /* samples in a row that got nothing */
    uint64_t detected_ns;
    uint64_t listed_ns; /* when the list of threads was read; 0: it must be */
    struct hot hot;
    uint64_t heads_ns; /* when it was last looked whether new ones have come */
    bool heads_due;    /* look with the next stack: then it costs nothing */
};

struct process *process_free(struct process *p)
{
    if (!p)
        return NULL;
    if (p->pidfd >= 0)
        close(p->pidfd);
    thread_table_free(&p->table);
    threads_free(&p->threads);
    stack_free(&p->stack);
    code_cache_free(p->codes);
    ahead_free(p->ahead);
    free(p->frames);
    free(p->locals);
    hot_free(&p->hot);
    free(p);
    return NULL;
}

const struct proc_info *process_info(const struct process *p)
{
    return p->info;
}

void process_set_parent(struct process *p, const struct proc_info *parent)
{
    p->info->parent_info = parent;
    p->info->parent = parent ? parent->pid : 0;
}

bool process_alive(const struct process *p)
{
    struct pollfd fd = {.fd = p->pidfd, .events = POLLIN};
    struct proc_stat st;

    if (p->core)
        return true; /* it will not change any more */
    if (p->pidfd >= 0)
        return poll(&fd, 1, 0) == 0;
    return proc_stat_read(p->pid, 0, &st) == 0 && st.start_time == p->start_time && st.state != 'Z' && st.state != 'X';
}

static const char *intern_owned(struct intern *names, char *text)
{
    const char *s = text ? intern_str(names, text) : NULL;

    free(text);
    return s ? s : "";
}

static int fill_info(struct process *p)
{
    struct intern *names = p->sampler->names;
    char *command = NULL, *exe = NULL;
    const char *suffix = intern_str(names, p->py.suffix);

    if (p->core)
        core_file_command(p->core, p->mem, &command);
    else
        proc_command_read(p->pid, &command);
    files_exe_read(p->files, &exe);
    p->info->pid = p->pid;
    p->info->command = intern_owned(names, command);
    p->info->executable = intern_owned(names, exe);
    p->info->major = p->py.major;
    p->info->minor = p->py.minor;
    p->info->patch = p->py.patch;
    p->info->version_suffix = suffix ? suffix : "";
    return 0;
}

static int detect_once(struct process *p, struct err_note *note)
{
    struct proc_maps maps;
    int r = proc_maps_read(p->pid, &maps);

    if (r == ERR_PERMISSION)
        return access_explain(p->pid, note);
    if (r < 0)
        return r;
    /* A process that has just exec'd, or is a zombie, has no maps. */
    if (maps.n == 0)
        r = ERR_STARTING;
    else
        r = detect_python(p->files, p->mem, &maps, p->sampler->names, &p->py, note);
    /* In the middle of an exec nothing can be read, whatever our rights. */
    if (r == ERR_NOT_PYTHON && !access_can_read(p->mem, &maps))
        r = access_is_starting(p->pid) ? ERR_STARTING : access_explain(p->pid, note);
    proc_maps_free(&maps);
    p->detected_ns = clock_now_ns();
    return r;
}

static bool can_read(const struct process *p)
{
    struct proc_maps maps;
    bool yes;

    if (proc_maps_read(p->pid, &maps) < 0)
        return false;
    yes = maps.n == 0 || access_can_read(p->mem, &maps);
    proc_maps_free(&maps);
    return yes;
}

/* Gone, or not yet there: names the case. */
static int explain_failure(struct process *p, int r, struct err_note *note)
{
    struct proc_stat st;

    if (r == ERR_PERMISSION || r == ERR_VERSION || r == ERR_NOMEM)
        return r;
    if (proc_stat_read(p->pid, 0, &st) < 0)
        return err_note_what(note, ERR_NO_PROCESS, "no process has the pid %d", (int)p->pid);
    if (st.state == 'Z' || st.state == 'X')
        return err_note_what(note, ERR_GONE, "process %d has ended and waits for its parent to notice", (int)p->pid);
    if (r == ERR_NOT_PYTHON)
        access_describe(p->pid, note);
    return r == ERR_STARTING && !can_read(p) ? access_explain(p->pid, note) : r;
}

/* Only what may pass is waited for: a start-up, not a process that is something else. */
static int detect_patiently(struct process *p, uint64_t patience_ns, struct err_note *note)
{
    uint64_t deadline = clock_now_ns() + patience_ns;

    for (;;) {
        int r = detect_once(p, note);

        if (r == 0 || r == ERR_PERMISSION || r == ERR_VERSION || r == ERR_NOMEM || r == ERR_NO_PROCESS)
            return r;
        if ((r == ERR_NOT_PYTHON && !access_is_starting(p->pid)) || clock_now_ns() >= deadline || !process_alive(p))
            return r;
        clock_sleep_ns(POLL_NS);
    }
}

static int open_process(struct process *p, struct err_note *note)
{
    struct proc_stat st;
    int r = proc_stat_read(p->pid, 0, &st);

    if (r < 0)
        return r == ERR_NO_PROCESS ? err_note_what(note, r, "no process has the pid %d", (int)p->pid) : r;
    p->start_time = st.start_time;
    p->pidfd = proc_pidfd_open(p->pid);
    hot_open(&p->hot, p->pid);
    p->codes = code_cache_new();
    p->info = sampler_keep(p->sampler, sizeof(*p->info));
    if (!p->codes || !p->info)
        return ERR_NOMEM;
    r = mem_live_open(p->pid, &p->mem);
    if (r == 0)
        r = ahead_new(p->mem, &p->ahead);
    if (r == 0)
        p->mem = ahead_mem(p->ahead);
    return r;
}

int process_attach(struct sampler *s, pid_t pid, uint64_t patience_ns, struct process **ret, struct err_note *note)
{
    struct process *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return ERR_NOMEM;
    p->sampler = s;
    p->pid = pid;
    p->own_files = (struct files){.pid = pid};
    p->files = &p->own_files;
    p->pidfd = -1;
    r = open_process(p, note);
    if (r == 0) {
        r = detect_patiently(p, patience_ns, note);
        if (r < 0)
            r = explain_failure(p, r, note);
    }
    if (r == 0)
        r = fill_info(p);
    if (r < 0) {
        process_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

static void fill_signal(struct process *p, const struct core_thread *t)
{
    const char *name = t ? sigabbrev_np(t->signal) : NULL;
    char text[32];

    if (!t)
        return;
    snprintf(text, sizeof(text), "SIG%s", name ? name : "RT");
    p->info->signal = (struct trace_signal){.number = t->signal,
                                            .name = intern_str(p->sampler->names, text),
                                            .tid = t->tid,
                                            .has_address = t->has_address,
                                            .address = t->address,
                                            .sender = t->sender != p->pid ? t->sender : 0};
}

static int detect_in_core(struct process *p, struct err_note *note)
{
    struct proc_maps maps;
    int r = core_file_maps(p->core, &maps);

    if (r < 0)
        return r;
    r = detect_python(p->files, p->mem, &maps, p->sampler->names, &p->py, note);
    proc_maps_free(&maps);
    return r;
}

int process_open_core(struct sampler *s, const struct core_file *core, const struct files *files, struct mem *mem,
                      struct process **ret, struct err_note *note)
{
    struct process *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return ERR_NOMEM;
    *p = (struct process){.sampler = s, .pid = core->pid, .pidfd = -1, .core = core, .files = files, .mem = mem};
    p->table.core = core;
    p->codes = code_cache_new();
    p->info = sampler_keep(s, sizeof(*p->info));
    r = p->codes && p->info ? detect_in_core(p, note) : ERR_NOMEM;
    if (r == 0)
        r = fill_info(p);
    if (r < 0) {
        process_free(p);
        return r;
    }
    p->info->core = core->where;
    fill_signal(p, core_file_signalled(core));
    *ret = p;
    return 0;
}

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

    return o->knows && o->knows(key, o->knows_arg);
}

static struct trace trace_of(const struct process *p, const struct known_thread *k)
{
    return (struct trace){
        .process = p->info, .thread_id = k->thread_id, .os_thread_id = k->tid, .thread_name = k->name};
}

static int hand_over(struct process *p, const struct trace *trace, process_sink sink, void *arg)
{
    p->sampler->stacks++;
    p->sampler->unsure += trace->unsure;
    return sink(trace, arg);
}

/* Stands for the frames on top that could not be vouched for. */
static const struct func not_sure = {
    .name = "[not sure]", .filename = "moved while it was read", .short_filename = "moved while it was read"};

/* Stands for the frames at the root that are not in a core file. */
static const struct func cut_off = {
    .name = "[cut off]", .filename = "not in the core file", .short_filename = "not in the core file"};
/* Gives the frames the variables that were read with them. */
static int deliver_locals(struct process *p, struct frame *frames)
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

/* The stack that was just read, with its frames unless the receiver has them. */
static int deliver(struct process *p, const struct known_thread *k, bool active, process_sink sink, void *arg)
{
    const struct frames *frames = &p->stack.frames;
    struct trace trace = trace_of(p, k);

    trace.active = active;
    trace.owns_gil = p->stack.owns_gil;
    trace.unsure = p->stack.unsure;
    trace.key = hash_mix(p->stack.key, (uint64_t)p->pid);
    trace.n_frames = frames->n;
    if (is_known(p, trace.key))
        return hand_over(p, &trace, sink, arg);
    if (grow_array((void **)&p->frames, &p->cap_frames, frames->n + 2, sizeof(*p->frames)) < 0)
        return ERR_NOMEM;
    if (trace.unsure) {
        p->frames[0] = (struct frame){.func = sampler_func(p->sampler, &not_sure)};
        trace.n_frames++;
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
    if (p->stack.cut) {
        p->frames[trace.n_frames] = (struct frame){.func = sampler_func(p->sampler, &cut_off)};
        if (!p->frames[trace.n_frames++].func)
            return ERR_NOMEM;
    }
    if (p->sampler->options.locals && deliver_locals(p, p->frames + trace.unsure) < 0)
        return ERR_NOMEM;
    trace.frames = p->frames;
    return hand_over(p, &trace, sink, arg);
}

/* A thread that has not run since it was last read still has the stack that it had then. */
static bool deliver_again(struct process *p, struct known_thread *k, process_sink sink, void *arg, int *ret)
{
    struct trace trace = trace_of(p, k);
    struct task_turns turns;

    k->has_turns = false;
    if (!k->still || task_turns(&k->task, &turns) < 0)
        return false;
    if (turns.count != k->turns.count) {
        k->turns = turns;
        k->has_turns = true;
        return false;
    }
    if (!k->active && !p->sampler->options.idle) {
        p->sampler->idle++;
        *ret = 0;
        return true;
    }
    trace.key = hash_mix(k->key, (uint64_t)p->pid);
    trace.n_frames = k->n_frames;
    trace.owns_gil = k->owned_gil;
    trace.active = k->active;
    if (!k->has_stack || p->sampler->options.gil_only || !is_known(p, trace.key))
        return false;
    *ret = hand_over(p, &trace, sink, arg);
    return true;
}

/* A thread with several interpreters has a thread state in each; the one that runs has the GIL. */
static bool another_runs(struct process *p, const struct known_thread *k)
{
    for (size_t i = 0; i < p->threads.n; i++) {
        const struct py_thread *t = &p->threads.items[i];

        if (t->tstate != k->tstate && t->thread_id == k->thread_id && t->interp != k->interp &&
            threads_gil_holder(&p->py, t->interp) == t->tstate)
            return true;
    }
    return false;
}

static bool has_subinterpreters(const struct process *p)
{
    return p->threads.n && p->threads.items[0].interp != p->threads.items[p->threads.n - 1].interp;
}

static void note_heads(struct process *p)
{
    if (!p->stack.heads_read)
        return;
    p->heads_due = false;
    p->heads_ns = clock_now_ns();
    if (!p->stack.heads_same)
        p->listed_ns = 0;
}

static int sample_thread(struct process *p, struct known_thread *k, process_sink sink, void *arg)
{
    struct sampler *s = p->sampler;
    struct stack_source src = {s, &p->py, p->codes, p->ahead, p->heads_due ? &p->threads : NULL};
    bool active;
    int r = 0;

    if (k->tid && deliver_again(p, k, sink, arg, &r))
        return r;
    if (s->options.gil_only && threads_gil_holder(&p->py, k->interp) != k->tstate) {
        s->no_gil++;
        return 0;
    }
    r = stack_read(&p->stack, &src, k, s->options.idle);
    note_heads(p);
    if (r == ERR_NOMEM)
        return r;
    if (r < 0) {
        p->listed_ns = 0; /* it may have ended: look at the list again */
        if (r != ERR_GONE)
            sampler_count_error(s, r);
        return 0;
    }
    active = k->tid ? r != STACK_IDLE && p->stack.active : threads_gil_holder(&p->py, k->interp) == k->tstate;
    if (p->core && p->stack.owns_gil)
        active = true;
    if (active && has_subinterpreters(p))
        active = !another_runs(p, k);
    if (r == STACK_IDLE || (!active && !s->options.idle)) {
        s->idle++;
        return 0;
    }
    if (s->options.gil_only && !p->stack.owns_gil) {
        s->no_gil++;
        return 0;
    }
    return deliver(p, k, active, sink, arg);
}

/* The list of threads is read without a hold: again when it changed meanwhile. */
static int list_threads(struct process *p, uint64_t now)
{
    int r = ERR_TORN;

    for (int i = 0; i < LIST_TRIES && (r == ERR_TORN || r == ERR_CYCLE); i++)
        r = threads_read(&p->py, &p->threads);
    if (r == 0)
        r = thread_table_update(&p->table, &p->py, p->pid, &p->threads);
    if (r == 0)
        p->listed_ns = now;
    hot_forget(&p->hot);
    return r;
}

/* New threads are put at the head of the list; those that end are noticed when they are looked at. */
static int update_threads(struct process *p)
{
    uint64_t now = clock_now_ns();

    p->heads_due = p->listed_ns && now - p->heads_ns >= HEADS_AGE_NS && now - p->listed_ns < LIST_AGE_NS;
    if (p->listed_ns && (p->heads_due || now - p->heads_ns < HEADS_AGE_NS) && now - p->heads_ns < HEADS_MAX_NS)
        return 0;
    p->heads_due = false;
    p->heads_ns = now;
    if (!process_alive(p))
        return ERR_GONE;
    if (p->listed_ns && now - p->listed_ns < LIST_AGE_NS && threads_heads_same(&p->py, &p->threads))
        return 0;
    return list_threads(p, now);
}

/* After an exec nothing is where it was. */
static int detect_again(struct process *p)
{
    int r;

    if (clock_now_ns() - p->detected_ns < REDETECT_NS)
        return ERR_STARTING;
    code_cache_free(p->codes);
    p->codes = code_cache_new();
    if (!p->codes)
        return ERR_NOMEM;
    thread_table_free(&p->table);
    hot_forget(&p->hot);
    r = detect_once(p, NULL);
    return r == 0 ? fill_info(p) : r;
}

static int sample_hot(struct process *p, process_sink sink, void *arg)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < p->hot.n; i++)
        r = sample_thread(p, p->hot.items[i], sink, arg);
    p->sampler->idle += p->threads.n - p->hot.n;
    return r;
}

/* The thread that a signal hit comes first, then the main thread. */
static int rank_of(const struct process *p, const struct known_thread *k)
{
    return k->tid && k->tid == p->info->signal.tid ? 0 : k->tid == p->pid ? 1 : 2;
}

/* Of one rank from the oldest to the newest: the list has the newest first. */
static int sample_all(struct process *p, process_sink sink, void *arg)
{
    int r = 0;

    if (p->threads.n >= FEW_THREADS && !p->sampler->options.idle && hot_are_all(&p->hot))
        return sample_hot(p, sink, arg);
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = p->threads.n; r == 0 && i > 0; i--) {
            struct known_thread *k = thread_table_find(&p->table, p->threads.items[i - 1].tstate);

            if (k && rank_of(p, k) == pass)
                r = sample_thread(p, k, sink, arg);
        }
    return r == 0 && !p->core && p->threads.n >= FEW_THREADS ? hot_note(&p->hot, &p->table, &p->threads) : r;
}

int process_sample(struct process *p, process_sink sink, void *arg)
{
    int r;

    stop_sweep(&p->sampler->stop);
    r = p->failed >= MAX_FAILED ? detect_again(p) : 0;
    if (r == 0)
        r = update_threads(p);
    if (r < 0) {
        p->listed_ns = 0;
        p->failed++;
        return process_alive(p) ? r : ERR_GONE;
    }
    p->failed = 0;
    return sample_all(p, sink, arg);
}
