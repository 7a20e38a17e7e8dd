/*
 * Walks the runtime: interpreters, their thread states, and the holder of the GIL.
 */
#include "python/threads.h"

#include "base/err.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

#define STATE_BYTES   1024
#define PTHREAD_BYTES 1024
#define GLIBC_TID     720 /* offset of struct pthread.tid, the same in every glibc on x86-64 so far */

static uint64_t word_at(const unsigned char *bytes, int at)
{
    uint64_t value;

    memcpy(&value, bytes + at, sizeof(value));
    return value;
}

static int max_of(int a, int b)
{
    return a > b ? a : b;
}

static int thread_read(const struct python *py, addr_t tstate, struct py_thread *ret, addr_t *ret_next)
{
    const struct layout *l = &py->layout;
    unsigned char bytes[STATE_BYTES + 8];
    int last = max_of(max_of(l->ts_next, l->ts_interp), max_of(l->ts_thread_id, l->ts_native_id));
    int r = mem_read(py->mem, tstate, bytes, (size_t)last + 8);

    if (r < 0)
        return r;
    *ret = (struct py_thread){.tstate = tstate,
                              .interp = word_at(bytes, l->ts_interp),
                              .thread_id = word_at(bytes, l->ts_thread_id),
                              .native_id = l->ts_native_id == NO ? 0 : word_at(bytes, l->ts_native_id)};
    *ret_next = word_at(bytes, l->ts_next);
    return 0;
}

static int interp_threads(const struct python *py, addr_t interp, struct py_threads *t)
{
    const struct layout *l = &py->layout;
    addr_t tstate = 0;
    int r = mem_read_addr(py->mem, interp + (addr_t)l->in_threads, &tstate);

    if (grow_array((void **)&t->heads, &t->cap_heads, t->n_heads + 1, sizeof(*t->heads)) < 0)
        return ERR_NOMEM;
    t->heads[t->n_heads++] = (struct interp_head){interp, tstate};
    while (r == 0 && tstate) {
        if (t->n == PY_MAX_THREADS)
            return ERR_CYCLE;
        if (grow_array((void **)&t->items, &t->cap, t->n + 1, sizeof(*t->items)) < 0)
            return ERR_NOMEM;
        r = thread_read(py, tstate, &t->items[t->n], &tstate);
        if (r == 0 && t->items[t->n].interp != interp)
            r = ERR_TORN;
        if (r == 0)
            t->n++;
    }
    return r;
}

int threads_read(const struct python *py, struct py_threads *ret)
{
    addr_t interp;
    int r = mem_read_addr(py->mem, py->interp_head, &interp);

    ret->n = ret->n_heads = 0;
    for (int i = 0; r == 0 && interp; i++) {
        if (i == PY_MAX_INTERPRETERS)
            return ERR_CYCLE;
        r = interp_threads(py, interp, ret);
        if (r == 0)
            r = mem_read_addr(py->mem, interp + (addr_t)py->layout.in_next, &interp);
    }
    if (r == 0 && ret->n == 0)
        return ERR_STARTING;
    return r == ERR_READ ? ERR_TORN : r;
}

bool threads_heads_same(const struct python *py, const struct py_threads *t)
{
    addr_t head;

    if (!t->n_heads || mem_read_addr(py->mem, py->interp_head, &head) < 0 || head != t->heads[0].interp)
        return false;
    for (size_t i = 0; i < t->n_heads; i++)
        if (mem_read_addr(py->mem, t->heads[i].interp + (addr_t)py->layout.in_threads, &head) < 0 ||
            head != t->heads[i].tstate)
            return false;
    return true;
}

bool threads_is_same(const struct python *py, const struct py_thread *t)
{
    struct py_thread now;
    addr_t next;

    return thread_read(py, t->tstate, &now, &next) == 0 && now.interp == t->interp && now.thread_id == t->thread_id &&
           now.native_id == t->native_id;
}

void threads_free(struct py_threads *t)
{
    free(t->items);
    free(t->heads);
    *t = (struct py_threads){0};
}

static addr_t gil_holder_if_locked(const struct python *py, addr_t base, int holder_at, int locked_at)
{
    addr_t holder;
    int locked;
    struct mem_span spans[] = {{base + (addr_t)locked_at, &locked, sizeof(locked)},
                               {base + (addr_t)holder_at, &holder, sizeof(holder)}};

    return mem_readv(py->mem, spans, 2) == 2 && locked == 1 ? holder : 0;
}

addr_t threads_gil_holder(const struct python *py, addr_t interp)
{
    const struct layout *l = &py->layout;
    addr_t gil;

    if (l->in_gil != NO)
        return mem_read_addr(py->mem, interp + (addr_t)l->in_gil, &gil) < 0 || !gil
                   ? 0
                   : gil_holder_if_locked(py, gil, l->gil_holder, l->gil_locked);
    if (l->rt_gil_holder != NO)
        return gil_holder_if_locked(py, py->runtime, l->rt_gil_holder, l->rt_gil_locked);
    if (!py->current_thread || mem_read_addr(py->mem, py->current_thread, &gil) < 0)
        return 0;
    return gil;
}

static bool contains_tid(pid_t tid, const pid_t *tids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tids[i] == tid)
            return true;
    return false;
}

/* At least three of four threads must have a live tid there (one may just have exited), and no two the same. In glibc's struct,
 * 0 is the tid of a thread that has exited and whose thread state is still there: a main thread that called pthread_exit. */
static bool is_tid_offset(const struct python *py, const struct py_threads *t, int offset, const pid_t *tids, size_t n)
{
    pid_t seen[8];
    size_t checked = t->n < 8 ? t->n : 8, hits = 0, misses = 0;

    for (size_t i = 0; i < checked; i++) {
        seen[i] = threads_read_tid(py, t->items[i].thread_id, offset);
        hits += contains_tid(seen[i], tids, n);
        misses += !contains_tid(seen[i], tids, n) && (seen[i] || offset != GLIBC_TID);
        if (seen[i] && contains_tid(seen[i], seen, i) && t->items[i].thread_id != t->items[0].thread_id)
            return false;
    }
    return misses <= checked / 4 && (hits || !checked);
}

int threads_find_tid_offset(const struct python *py, const struct py_threads *t, const pid_t *tids, size_t n_tids)
{
    if (is_tid_offset(py, t, GLIBC_TID, tids, n_tids))
        return GLIBC_TID;
    for (int at = 0; at < PTHREAD_BYTES; at += 4)
        if (is_tid_offset(py, t, at, tids, n_tids))
            return at;
    return NO;
}

pid_t threads_read_tid(const struct python *py, uint64_t thread_id, int offset)
{
    int32_t tid;

    if (offset == NO || mem_read(py->mem, thread_id + (addr_t)offset, &tid, sizeof(tid)) < 0)
        return 0;
    return tid > 0 ? tid : 0;
}

pid_t threads_read_glibc_tid(const struct python *py, uint64_t thread_id)
{
    return threads_read_tid(py, thread_id, GLIBC_TID);
}
