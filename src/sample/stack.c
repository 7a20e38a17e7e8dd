/*
 * The ways to read a stack. Called for each thread and sample.
 *
 * A thread that does not run is never disturbed: its stack stands still anyway, and the kernel's count of its
 * turns on a CPU proves afterwards that it did. A running one is held for the few microseconds that it takes to
 * copy its frames and to make sure of its code objects.
 */
#include "sample/stack.h"

#include "base/clock.h"
#include "base/grow.h"

#include <sched.h>
#include <stdlib.h>

#define TRIES           8
#define HOLD_TIMEOUT_NS (200 * NS_PER_MS)

static int resolve_codes(struct stack *st, const struct python *py, struct code_cache *codes)
{
    size_t n = st->frames.n;
    int r;

    if (grow_array((void **)&st->addrs, &st->cap_addrs, n, sizeof(*st->addrs)) < 0 ||
        grow_array((void **)&st->codes, &st->cap_codes, n, sizeof(*st->codes)) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        st->addrs[i] = st->frames.items[i].code;
    code_cache_round(codes);
    r = code_cache_get(codes, py, st->addrs, n, st->codes);
    for (size_t i = 0; r == 0 && i < n; i++)
        if (!st->codes[i])
            r = ERR_TORN;
    return r;
}

static int read_once(struct stack *st, const struct python *py, struct code_cache *codes, struct known_thread *k)
{
    int r = frames_read(&st->frames, py, k->tstate);

    if (r == 0)
        r = resolve_codes(st, py, codes);
    if (r == 0)
        st->owns_gil = threads_gil_holder(py, k->interp) == k->tstate;
    return r;
}

/* Some failures are a moment's: the interpreter between two states, memory that has just moved. */
static bool is_passing(int r)
{
    return r == ERR_TORN || r == ERR_READ || r == ERR_CYCLE || r == ERR_BOUNDS;
}

/* Without a hold: true if the thread did not run meanwhile; otherwise ERR_TORN. */
static int read_sleeping(struct stack *st, const struct python *py, struct code_cache *codes, struct known_thread *k)
{
    uint64_t before, after;
    char state;
    int r;

    if (task_turns(&k->task, &before) < 0)
        return ERR_UNSUPPORTED;
    /* It must sleep after its turns were counted, or it could be on a CPU all the while. */
    if (task_state(&k->task, &state) < 0)
        return ERR_GONE;
    if (state == 'R')
        return ERR_TORN;
    r = read_once(st, py, codes, k);
    if (task_turns(&k->task, &after) < 0)
        return ERR_GONE;
    return before != after ? ERR_TORN : r;
}

static int read_held(struct stack *st, struct sampler *s, const struct python *py, struct code_cache *codes,
                     struct known_thread *k)
{
    int r = stop_hold(&s->stop, k->tid, HOLD_TIMEOUT_NS);

    if (r < 0)
        return r;
    r = read_once(st, py, codes, k);
    stop_release(&s->stop);
    return r;
}

/* Without a hold, whatever the thread does: the best of a few tries, marked when it moved. */
static int read_running(struct stack *st, const struct python *py, struct code_cache *codes, struct known_thread *k)
{
    addr_t before, after;
    int r = ERR_TORN;

    for (int i = 0; i < TRIES; i++) {
        addr_t at = k->tstate + (addr_t)py->layout.ts_frame;

        if (mem_read_addr(py->mem, at, &before) < 0)
            return ERR_READ;
        r = read_once(st, py, codes, k);
        if (r == 0 && mem_read_addr(py->mem, at, &after) == 0) {
            st->unsure = before != after;
            if (!st->unsure)
                return 0;
        } else if (!is_passing(r)) {
            return r;
        }
    }
    return r;
}

int stack_read(struct stack *st, struct sampler *s, const struct python *py, struct code_cache *codes,
               struct known_thread *k, char state)
{
    int r = ERR_TORN;

    st->owns_gil = st->unsure = false;
    if (k->tid && state != 'R')
        for (int i = 0; i < TRIES && is_passing(r); i++)
            r = read_sleeping(st, py, codes, k);
    if (r == 0 || r == ERR_NOMEM || r == ERR_GONE)
        return r;
    if (k->tid && !s->options.nonblocking && !s->hold_refused) {
        r = ERR_TORN;
        for (int i = 0; i < TRIES && is_passing(r); i++) {
            r = read_held(st, s, py, codes, k);
            if (is_passing(r))
                sched_yield(); /* let it get past the moment */
        }
        if (r == 0 || r == ERR_NOMEM || r == ERR_GONE || is_passing(r))
            return r;
        /* Another tracer, a filter or a missing right: reading may still be allowed. */
        s->hold_refused |= r == ERR_PERMISSION;
    }
    return read_running(st, py, codes, k);
}

void stack_free(struct stack *st)
{
    frames_free(&st->frames);
    free(st->addrs);
    free(st->codes);
    *st = (struct stack){0};
}
