/*
 * Samples threads that have no Python thread state, such as those of libraries (--native-all).
 */
#include "base/clock.h"
#include "base/grow.h"
#include "base/utf8.h"
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
    p->native_threads_listed_ns = 0;
}

static bool has_python(struct process *p, pid_t tid)
{
    for (size_t i = 0; i < p->threads.n; i++) {
        const struct sampled_thread *th = thread_table_find(&p->table, p->threads.items[i].tstate);

        if (th && th->os.tid == tid)
            return true;
    }
    return false;
}

/* The name may contain any bytes. */
static const char *name_of(struct process *p, pid_t tid)
{
    char *text = NULL, clean[3 * 64];
    const char *name = NULL;
    size_t len = 0;

    if (!p->core && proc_read_file(p->pid, tid, "comm", &text, &len) == 0) {
        len -= len && text[len - 1] == '\n';
        if (len > 64)
            len = 64;
        name = intern_bytes(p->sampler->names, clean, utf8_clean(text, len, clean));
    }
    free(text);
    return name;
}

/* Keeps the open files of a thread that is still alive. If the tid was reused, they cannot be read. */
static bool reuse_thread(struct process *p, struct sampled_thread *old, size_t n_old, pid_t tid,
                         struct sampled_thread *ret)
{
    struct task_look look;

    for (size_t i = 0; i < n_old; i++) {
        if (old[i].os.tid != tid || p->core || task_look(&old[i].os.task, &look) < 0)
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

    if (has_python(p, tid))
        return 0;
    if (grow_array((void **)&p->native_threads, &p->cap_native_threads, p->n_native_threads + 1,
                   sizeof(*p->native_threads)) < 0)
        return ERR_NOMEM;
    th = &p->native_threads[p->n_native_threads++];
    if (reuse_thread(p, old, n_old, tid, th)) {
        th->name = name_of(p, tid);
        return 0;
    }
    *th = (struct sampled_thread){.name = name_of(p, tid), .os = {.tid = tid, .dead = p->core != NULL}};
    if (th->os.dead)
        th->os.was_running = core_file_was_active(p->core, core_file_thread(p->core, tid));
    else
        task_open(&th->os.task, p->pid, tid);
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
    r = add_threads(p, old, n_old);
    for (size_t i = 0; i < n_old; i++)
        native_thread_close(&old[i]);
    free(old);
    return r;
}

static int sample_native_thread(struct process *p, struct sampled_thread *th, process_sink sink, void *arg)
{
    struct stack_source src = {.sampler = p->sampler, .py = &p->py, .native = &p->native};
    int r;

    if (!th->os.dead && emit_unchanged(p, th, sink, arg, &r))
        return r;
    r = process_read_stack(p, &src, th);
    if (r == STACK_IDLE)
        p->sampler->idle++;
    if (r == 0 && p->native.captured)
        return emit_stack(p, th, p->stack.active, sink, arg);
    return r == ERR_NOMEM ? r : 0;
}

int native_threads_sample(struct process *p, process_sink sink, void *arg)
{
    int r = 0;

    if (p->sampler->options.gil_only || !p->native.sampler)
        return 0;
    if (!p->native_threads_listed_ns || clock_now_ns() - p->native_threads_listed_ns > LIST_NS)
        r = list_native_threads(p);
    for (size_t i = 0; r == 0 && i < p->n_native_threads; i++)
        r = sample_native_thread(p, &p->native_threads[i], sink, arg);
    return r;
}
