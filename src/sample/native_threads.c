/*
 * Samples threads that have no Python thread state, such as those of libraries (--native-all).
 */
#include "base/clock.h"
#include "base/deadline.h"
#include "base/grow.h"
#include "sample/process_private.h"
#include "target/core_file.h"
#include "target/proc.h"

#include <stdlib.h>
#include <string.h>

#define LIST_NS (100 * NS_PER_MS)

static void native_thread_close(struct sampled_thread *th)
{
    os_thread_close(&th->os);
    *th = (struct sampled_thread){0};
}

void native_threads_free(struct process *p)
{
    for (size_t i = 0; i < p->n_native_threads; i++)
        native_thread_close(&p->native_threads[i]);
    free(p->native_threads);
    p->native_threads = NULL;
    p->n_native_threads = p->cap_native_threads = 0;
    p->native_threads_listed_ns = p->native_threads_marked_ns = 0;
}

/* Keeps the open files of a thread that is still alive. If the tid was reused, they cannot be read. */
static bool reuse_thread(struct process *p, struct sampled_thread *old, size_t n_old, pid_t tid,
                         struct sampled_thread *ret)
{
    struct task_look look;

    for (size_t i = 0; i < n_old; i++) {
        if (old[i].os.tid != tid || !old[i].os.task.tid || p->core || task_look(&old[i].os.task, &look) < 0)
            continue;
        *ret = old[i];
        old[i] = (struct sampled_thread){0};
        return true;
    }
    return false;
}

static int add_thread(struct process *p, pid_t tid, struct sampled_thread *old, size_t n_old)
{
    struct sampled_thread *th;

    if (grow_array((void **)&p->native_threads, &p->cap_native_threads, p->n_native_threads + 1,
                   sizeof(*p->native_threads)) < 0)
        return ERR_NOMEM;
    th = &p->native_threads[p->n_native_threads++];
    if (reuse_thread(p, old, n_old, tid, th)) {
        th->kernel_name = NULL; /* read it again: a thread can change its name */
        return 0;
    }
    *th = (struct sampled_thread){.os = {.tid = tid, .task = {TASK_NO_FILES}, .dead = p->core != NULL}};
    if (th->os.dead)
        th->os.was_running = core_file_was_active(p->core, core_file_thread(p->core, tid));
    return 0;
}

static int add_threads(struct process *p, struct sampled_thread *old, size_t n_old)
{
    pid_t *tids = NULL;
    size_t n = 0;
    int r = 0;

    if (p->core) {
        for (size_t i = 0; r == 0 && i < p->core->n_threads; i++)
            r = add_thread(p, p->core->threads[i].tid, old, n_old);
        return r;
    }
    if (proc_tasks_read(p->pid, &tids, &n) < 0)
        return 0;
    for (size_t i = 0; r == 0 && i < n; i++)
        r = add_thread(p, tids[i], old, n_old);
    free(tids);
    return r;
}

static int list_native_threads(struct process *p)
{
    struct sampled_thread *old = p->native_threads;
    size_t n_old = p->n_native_threads;
    int r;

    p->native_threads = NULL;
    p->n_native_threads = p->cap_native_threads = 0;
    p->native_threads_listed_ns = clock_now_ns();
    p->native_threads_marked_ns = 0;
    r = add_threads(p, old, n_old);
    for (size_t i = 0; i < n_old; i++)
        native_thread_close(&old[i]);
    free(old);
    return r;
}

/* A thread can get a Python thread state at any time, and lose it. Each thread is sampled once: here, or with its Python
 * frames. A thread that lost its state during this sample was already read. */
static int mark_threads(struct process *p)
{
    struct tid_list python = {0};
    int r = thread_table_tids(&p->table, &python);

    p->native_threads_marked_ns = p->listed_after ? 0 : p->listed_ns;
    for (size_t i = 0; r == 0 && i < p->n_native_threads; i++) {
        struct sampled_thread *th = &p->native_threads[i];
        bool had_python = th->has_python;

        th->has_python = tid_list_has(&python, th->os.tid) || (th->has_python && p->listed_after);
        if (th->has_python || th->os.dead)
            continue;
        if (!th->os.task.tid || had_python) {
            task_close(&th->os.task);
            task_open(&th->os.task, p->pid, th->os.tid);
            thread_time_begin(&th->time, &th->os.task, false, clock_now_ns());
        }
        if (!th->kernel_name)
            th->kernel_name = thread_kernel_name(p->sampler->names, p->pid, th->os.tid);
    }
    free(python.items);
    return r;
}

static int sample_native_thread(struct process *p, struct sampled_thread *th, process_sink sink, void *arg)
{
    struct stack_source src = {.sampler = p->sampler, .py = &p->py, .native = &p->native};
    int r;

    if (deadline_passed())
        return emit_unread(p, th, sink, arg);
    if (!th->os.dead && emit_unchanged(p, th, sink, arg, &r))
        return r;
    r = process_read_stack(p, &src, th);
    if (r == STACK_IDLE)
        p->sampler->idle++;
    if (r == 0 && (p->native.captured || !p->sampler->options.recording) && process_has_pid(p))
        return emit_stack(p, th, p->stack.active, sink, arg);
    if (r != STACK_IDLE)
        emit_unknown(p, th);
    return r == ERR_NOMEM ? r : 0;
}

int native_threads_sample(struct process *p, process_sink sink, void *arg)
{
    int r = 0;

    if (p->sampler->options.gil_only || !p->native.sampler)
        return 0;
    if (!p->native_threads_listed_ns || clock_now_ns() - p->native_threads_listed_ns > LIST_NS)
        r = list_native_threads(p);
    if (r == 0 && p->native_threads_marked_ns != p->listed_ns)
        r = mark_threads(p);
    for (size_t i = 0; r == 0 && i < p->n_native_threads; i++)
        if (!p->native_threads[i].has_python)
            r = sample_native_thread(p, &p->native_threads[i], sink, arg);
    return r;
}
