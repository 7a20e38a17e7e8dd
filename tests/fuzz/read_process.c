#include "read_process.h"

#include "python/code.h"
#include "python/detect.h"
#include "python/frames.h"
#include "python/gil.h"
#include "python/names.h"
#include "python/repr/locals.h"
#include "python/threads.h"
#include "stack_reader.h"

#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 8 /* a damaged list can have thousands */
#define ROUNDS      2 /* the second has a read plan and a filled cache */

/* What a sampler keeps from one sample to the next. */
struct reading {
    struct python py;
    struct py_threads threads;
    struct thread_names names;
    struct frames frames;
    struct stack_reader readers[MAX_THREADS];
    struct code_cache *cache;
    struct locals locals;
    bool with_locals;
    size_t stacks;
};

static void read_codes(struct reading *r)
{
    static const struct code *codes[PY_MAX_FRAMES];
    static addr_t addrs[PY_MAX_FRAMES];
    size_t n = r->frames.n;

    if (n > PY_MAX_FRAMES)
        abort();
    for (size_t i = 0; i < n; i++)
        addrs[i] = r->frames.items[i].code;
    code_cache_round(r->cache, false);
    if (code_cache_get(r->cache, &r->py, addrs, n, codes) < 0)
        abort();
    for (size_t i = 0; i < n; i++) {
        struct position at;

        if (codes[i] && code_position(codes[i], r->frames.items[i].at, &at) && at.line <= 0)
            abort();
        if (codes[i] && (code_line(codes[i], r->frames.items[i].at) < 0 || strlen(codes[i]->name) > 5 * PY_MAX_NAME ||
                         strlen(codes[i]->filename) > 5 * PY_MAX_NAME))
            abort();
    }
}

static void read_locals(struct reading *r)
{
    const struct locals_options options = {.level = 2};

    if (locals_read(&r->locals, &r->py, r->frames.items, r->frames.n, &options) < 0)
        abort();
    for (size_t i = 0; i < r->locals.n; i++)
        (void)strlen(locals_text(&r->locals, &r->locals.items[i]));
}

static void read_stack(struct reading *r, size_t i)
{
    addr_t tstate = r->threads.items[i].tstate;
    size_t sure;
    bool cut;

    if (stack_reader_unpaused(&r->readers[i], &r->frames, &r->py, tstate, &sure, &cut) == 0) {
        if (sure > r->frames.n)
            abort();
        frames_keep_outermost(&r->frames, sure);
    }
    if (stack_reader_paused(&r->readers[i], &r->frames, &r->py, tstate) < 0)
        return;
    r->stacks++;
    read_codes(r);
    if (r->with_locals)
        read_locals(r);
}

static void read_thread(struct reading *r, size_t i)
{
    const struct py_thread *t = &r->threads.items[i];
    struct gil_locks locks;

    if (i == 0 || t->interp != r->threads.items[i - 1].interp)
        names_read(&r->py, t->interp, &r->names);
    threads_gil_holder(&r->py, t->interp);
    if (gil_find(&r->py, t->interp, &locks))
        gil_has_futex(&r->py, &locks, locks.cond + 1024, locks.cond);
    threads_is_same(&r->py, t);
    threads_read_glibc_tid(&r->py, t->thread_id);
    read_stack(r, i);
}

static void read_once(struct reading *r)
{
    static const pid_t tids[] = {100, 101, 102, 103};

    if (threads_read(&r->py, &r->threads) < 0)
        return;
    threads_heads_same(&r->py, &r->threads);
    if (r->py.layout.ts_native_id == NO)
        threads_find_tid_offset(&r->py, &r->threads, tids, 4);
    r->names.n = 0;
    for (size_t i = 0; i < r->threads.n && i < MAX_THREADS; i++)
        read_thread(r, i);
    if (r->names.n)
        names_sort(&r->names);
    if (r->threads.n)
        names_find(&r->names, r->threads.items[0].interp, r->threads.items[0].thread_id);
}

size_t read_process(struct mem *m, const struct proc_maps *maps, const struct files *files, bool locals)
{
    struct intern *names = intern_new();
    struct reading r = {.cache = code_cache_new(true), .with_locals = locals};
    struct err_note note = {0};

    if (!names || !r.cache)
        abort();
    if (detect_python(files, m, maps, names, &r.py, &note) == 0)
        for (int i = 0; i < ROUNDS; i++)
            read_once(&r);
    for (size_t i = 0; i < MAX_THREADS; i++)
        stack_reader_free(&r.readers[i]);
    locals_free(&r.locals);
    code_cache_free(r.cache);
    frames_free(&r.frames);
    free(r.names.items);
    threads_free(&r.threads);
    intern_free(names);
    return r.stacks;
}
