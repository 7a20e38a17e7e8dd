/*
 * Attaches to a process, or opens a core file, and finds the interpreter in it.
 */
#include "sample/process_private.h"

#include "base/clock.h"
#include "base/deadline.h"
#include "base/log.h"
#include "base/signame.h"
#include "python/detect.h"
#include "target/access.h"
#include "target/container.h"
#include "target/core_file.h"
#include "target/descriptors.h"
#include "target/proc.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLL_NS     (2 * NS_PER_MS)
#define REDETECT_NS (50 * NS_PER_MS)

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
    short_names_free(&p->short_names);
    snapshot_free(p->snapshot);
    free(p->frames);
    lock_waits_free(&p->locks);
    free(p->locals);
    free(p->sources);
    tasks_free(p->tasks);
    task_samples_free(&p->task_samples);
    native_close(&p->native);
    merge_frames_free(&p->merged);
    native_threads_free(p);
    running_threads_free(&p->running);
    native_cpu_free(&p->native_cpu, &p->sampler->cpu_of_ended);
    run_as_user_free(p->user);
    if (p->own_files.pid)
        files_close(&p->own_files);
    free(p);
    return NULL;
}

const struct proc_info *process_info(const struct process *p)
{
    return p->info;
}

void process_move_info(struct process *p, struct proc_info *to)
{
    pid_t parent = to->parent;
    const struct proc_info *parent_info = to->parent_info;

    *to = *p->info;
    to->parent = parent;
    to->parent_info = parent_info;
    p->info = to;
}

bool process_alive(const struct process *p)
{
    struct pollfd fd = {.fd = p->pidfd, .events = POLLIN};

    if (p->core)
        return true; /* a core file does not change */
    if (p->pidfd >= 0)
        return poll(&fd, 1, 0) <= 0; /* EINTR says nothing about the process */
    return proc_is_alive(p->pid, p->start_time);
}

bool process_has_pid(const struct process *p)
{
    struct proc_stat st;

    if (p->core || (p->pidfd >= 0 && process_alive(p)))
        return true;
    return proc_stat_read(p->pid, 0, &st) == 0 && st.start_time == p->start_time;
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
    p->info->found_by = p->py.how;
    return 0;
}

/* At first, exec maps nothing but a stack, and before that nothing at all. That does not mean that we lack
 * permission. */
static bool has_program(const struct proc_maps *maps)
{
    for (size_t i = 0; i < maps->n; i++)
        if (maps->items[i].readable && maps->items[i].path[0] == '/')
            return true;
    return false;
}

static bool can_read(const struct process *p)
{
    struct proc_maps maps;
    bool yes;

    if (proc_maps_read(p->pid, &maps) < 0)
        return false;
    yes = !has_program(&maps) || access_can_read(p->mem, &maps);
    proc_maps_free(&maps);
    return yes;
}

static int fail(const struct process *p, int code, enum err_reason reason, struct err_note *note)
{
    return err_because(note, code, &(struct err_facts){.reason = reason, .pid = p->pid});
}

static int detect_once(struct process *p, struct err_note *note)
{
    struct proc_maps maps;
    int r = proc_maps_read(p->pid, &maps);

    p->detected_ns = clock_now_ns();
    if (r == ERR_PERMISSION)
        return access_explain(p->pid, note);
    if (r < 0)
        return r;
    if (!mem_live_answers(p->pid, &maps)) {
        proc_maps_free(&maps);
        return fail(p, ERR_READ, REASON_NO_ANSWER, note);
    }
    p->has_guarded = mem_set_maps(p->mem, &maps) > 0;
    log_changed(LOG_LEVEL_DEBUG, "maps", p->pid, maps.n, "pid %d: %zu mappings, the first is %s", (int)p->pid, maps.n,
                maps.n ? maps.items[0].path : "none");
    /* A process in the middle of exec, or a zombie, has no maps. */
    if (maps.n == 0 || (!has_program(&maps) && access_is_starting(p->pid)))
        r = ERR_STARTING;
    else
        r = detect_python(p->files, p->mem, &maps, p->sampler->names, &p->py, note);
    /* After an exec the old mappings cannot be read, whatever our permissions are. */
    if (r == ERR_NOT_PYTHON && has_program(&maps) && !access_can_read(p->mem, &maps))
        r = access_is_starting(p->pid) || can_read(p) ? ERR_STARTING : access_explain(p->pid, note);
    proc_maps_free(&maps);
    return r;
}

/* Finds out why: the process has ended, is still starting, or cannot be read. */
static int explain_failure(struct process *p, int r, struct err_note *note)
{
    struct proc_stat st;
    char *exe;
    int now;

    if (r == ERR_PERMISSION || r == ERR_VERSION || r == ERR_NOMEM || r == ERR_READ)
        return r;
    now = proc_stat_read(p->pid, 0, &st);
    if (now < 0 && now != ERR_NO_PROCESS)
        return now;
    if (now < 0)
        return fail(p, ERR_NO_PROCESS, REASON_NO_PID, note);
    if (st.state == 'Z' || st.state == 'X')
        return fail(p, ERR_GONE, REASON_ZOMBIE, note);
    if (r == ERR_NOT_PYTHON && proc_exe_read(p->pid, &exe) == 0) {
        err_because(note, r, &(struct err_facts){.reason = REASON_OTHER_PROGRAM, .pid = p->pid, .path = exe});
        free(exe);
    }
    return r == ERR_STARTING && !can_read(p) ? access_explain(p->pid, note) : r;
}

/* Waits only for what can change: an interpreter that is starting, not a process that runs another program. */
static int detect_with_patience(struct process *p, uint64_t patience_ns, struct err_note *note)
{
    uint64_t deadline = clock_now_ns() + deadline_cap(patience_ns);

    for (;;) {
        int r = detect_once(p, note);

        if (r == 0 || r == ERR_PERMISSION || r == ERR_VERSION || r == ERR_NOMEM || r == ERR_NO_PROCESS ||
            (note && note->facts.reason == REASON_NO_ANSWER))
            return r;
        if ((r == ERR_NOT_PYTHON && !access_is_starting(p->pid)) || clock_now_ns() >= deadline || !process_alive(p))
            return r;
        log_often(LOG_LEVEL_DEBUG, "process", p->pid, "pid %d: %s, trying again", (int)p->pid, err_name(r));
        clock_sleep_ns(POLL_NS);
    }
}

static int open_process(struct process *p, struct err_note *note)
{
    struct proc_stat st;
    int r = proc_stat_read(p->pid, 0, &st);

    if (r < 0)
        return r == ERR_NO_PROCESS ? fail(p, r, REASON_NO_PID, note) : r;
    if (st.is_kernel_thread) /* it has no maps, like a process in the middle of exec */
        return fail(p, ERR_NOT_PYTHON, REASON_KERNEL_THREAD, note);
    p->start_time = st.start_time;
    p->pidfd = descriptors_keep(proc_pidfd_open(p->pid));
    if (p->pidfd < 0)
        log_often(LOG_LEVEL_INFO, "process", 0, "pid %d: no pidfd: %s", (int)p->pid, strerror(errno));
    r = proc_stat_read(p->pid, 0, &st);
    if (r < 0 || st.start_time != p->start_time) /* the pidfd may be another process's */
        return fail(p, ERR_NO_PROCESS, REASON_NO_PID, note);
    p->codes = code_cache_new(p->sampler->options.positions);
    if (p->sampler->options.await_stacks)
        p->tasks = tasks_new();
    if (!p->codes || (p->sampler->options.await_stacks && !p->tasks))
        return ERR_NOMEM;
    r = mem_live_open(p->pid, &p->mem);
    if (r == 0)
        r = snapshot_new(p->mem, true, &p->snapshot);
    if (r < 0)
        return r;
    p->mem = snapshot_mem(p->snapshot);
    return 0;
}

/* Fills in the container, if the process is in another one than we are. */
static void fill_container(struct process *p)
{
    struct proc_status st;
    struct container own, c;

    if (proc_status_read(p->pid, 0, &st) == 0 && st.in_pid_ns)
        p->info->inner_pid = st.ns_pid;
    if (!container_of(p->pid, &c) || (container_of(getpid(), &own) && strcmp(own.id, c.id) == 0))
        return;
    p->info->runtime = c.runtime;
    p->info->container = intern_str(p->sampler->names, c.id);
    log_debug("process", "pid %d: in container %s/%s", (int)p->pid, c.runtime, c.id);
}

static struct process *process_new(struct sampler *s, pid_t pid)
{
    struct process *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->sampler = s;
    p->pid = pid;
    files_open_live(pid, &p->own_files);
    p->files = &p->own_files;
    p->info = &p->own_info;
    p->table.kernel_names = s->options.kernel_names ? s->names : NULL;
    p->pidfd = -1;
    p->user = run_as_user_of(pid);
    p->table.since_ticks = s->options.mode != SAMPLER_COUNT ? s->since_ticks : 0;
    return p;
}

int process_attach(struct sampler *s, pid_t pid, uint64_t patience_ns, struct process **ret, struct err_note *note)
{
    struct process *p = process_new(s, pid);
    int r;

    if (!p)
        return ERR_NOMEM;
    run_as_user_begin(p->user);
    r = open_process(p, note);
    if (r == 0) {
        r = detect_with_patience(p, patience_ns, note);
        if (r < 0)
            r = explain_failure(p, r, note);
    }
    if (r == 0)
        r = fill_info(p);
    if (r == 0)
        fill_container(p);
    if (r == 0 && !process_has_pid(p)) /* some of this may be another process's */
        r = fail(p, ERR_NO_PROCESS, REASON_NO_PID, note);
    run_as_user_end(p->user);
    if (r < 0) {
        log_changed(LOG_LEVEL_INFO, "process", pid, -r, "pid %d: cannot attach: %s%s%s", (int)pid, err_name(r),
                    note && note->facts.path ? ": it runs " : "", note && note->facts.path ? note->facts.path : "");
        process_free(p);
        return r;
    }
    if (p->info->inner_pid)
        log_info("process", "pid %d: PID %d in its own namespace", (int)pid, (int)p->info->inner_pid);
    log_info("process", "pid %d: attached, executable %s, command %s", (int)pid, p->info->executable, p->info->command);
    *ret = p;
    return 0;
}

static void guard_memory(struct process *p)
{
    struct proc_maps maps;

    if (proc_maps_read(p->pid, &maps) < 0)
        return;
    p->has_guarded = mem_set_maps(p->mem, &maps) > 0;
    proc_maps_free(&maps);
}

int process_attach_fork(struct sampler *s, pid_t pid, const struct process *parent, struct process **ret)
{
    struct process *p = process_new(s, pid);
    int r;

    if (!p)
        return ERR_NOMEM;
    run_as_user_begin(p->user);
    r = open_process(p, NULL);
    if (r == 0) {
        p->py = parent->py;
        p->py.mem = p->mem;
        p->detected_ns = clock_now_ns();
        if (parent->has_guarded)
            guard_memory(p);
        r = threads_read(&p->py, &p->threads);
    }
    if (r == 0 && !p->threads.n)
        r = ERR_STARTING;
    if (r == 0)
        r = fill_info(p);
    if (r == 0)
        fill_container(p);
    if (r == 0 && !process_has_pid(p))
        r = ERR_NO_PROCESS;
    run_as_user_end(p->user);
    log_debug("process", "pid %d: attach as a fork of pid %d: %s", (int)pid, (int)parent->pid,
              r == 0 ? "done" : err_name(r));
    if (r < 0) {
        process_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

static void fill_signal(struct process *p, const struct core_thread *t)
{
    const char *name = t ? signame_of(t->signal) : NULL;
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
    *p = (struct process){.sampler = s, .pid = core->pid, .pidfd = -1, .core = core, .files = files};
    p->table.core = core;
    p->info = &p->own_info;
    p->codes = code_cache_new(p->sampler->options.positions);
    r = p->codes ? snapshot_new(mem, false, &p->snapshot) : ERR_NOMEM;
    if (r == 0) {
        p->mem = snapshot_mem(p->snapshot);
        r = detect_in_core(p, note);
    }
    if (r == 0)
        r = fill_info(p);
    if (r < 0) {
        process_free(p);
        return r;
    }
    p->info->core = core->path;
    fill_signal(p, core_file_signalled(core));
    log_info("process", "core file of pid %d: opened, executable %s, command %s", (int)p->pid, p->info->executable,
             p->info->command);
    *ret = p;
    return 0;
}

void process_count_from_now(struct process *p)
{
    if (p->table.since_ticks)
        p->table.since_ticks = UINT64_MAX;
}

int process_detect_again(struct process *p)
{
    int r;

    if (clock_now_ns() - p->detected_ns < REDETECT_NS)
        return ERR_STARTING;
    log_often(LOG_LEVEL_INFO, "process", p->pid, "pid %d: looking for Python again, %s", (int)p->pid,
              p->has_execed ? "it has executed another program" : "its threads could not be read");
    code_cache_free(p->codes);
    short_names_free(&p->short_names);
    p->codes = code_cache_new(p->sampler->options.positions);
    if (!p->codes)
        return ERR_NOMEM;
    process_count_from_now(p);
    thread_table_free(&p->table);
    p->has_execed = false;
    running_threads_forget(&p->running);
    native_close(&p->native);
    native_threads_free(p);
    r = detect_once(p, NULL);
    return r == 0 ? fill_info(p) : r;
}
