/*
 * Locks and their owners. An RLock and an import lock know their owner. A Lock does not, so its holder is the thread that is in a
 * `with` block of it, or the only one whose frames have called acquire() and know the lock: that is likely, not certain.
 */
#include "sample/lock_waits.h"

#include "base/deadline.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/hash_table.h"
#include "python/lock_objects.h"
#include "python/thread_waits.h"
#include "sample/process_private.h"

#include <stdlib.h>
#include <string.h>

#define FRAMES_MAX 262144 /* noted, of all threads */
#define WITH_MAX   16     /* `with` blocks of one frame */
#define HELD_MAX   65536
#define LOOKS_MAX  65536 /* at frames, to find those that use `acquire`, and then those that know a lock */
#define AT_ONCE    64    /* frames or locks, before the cache of the target's memory is emptied */

/* A lock, and a thread that is in a `with` block of it. */
struct held_lock {
    addr_t lock;
    size_t thread; /* position in lock_waits.threads */
};

/* What was found out about a lock, for the next thread that waits for it. */
struct known_holder {
    addr_t lock;
    size_t thread; /* or HOLDER_NONE */
};

struct held_locks {
    struct held_lock *items;
    size_t n, cap;
    size_t *acquires; /* positions in lock_waits.frames of those that use `acquire` */
    size_t n_acquires, cap_acquires;
    bool has_acquires;
    size_t looks;
    bool cut, acquires_cut; /* not everything was seen, so there may be other holders */
    struct known_holder *known;
    size_t n_known, cap_known;
    struct hash_table known_by_lock;
};

static bool begin_repr(struct process *p)
{
    struct repr_limits limits = {0};

    if (!p->locks.repr && !(p->locks.repr = repr_new()))
        return false;
    repr_begin(p->locks.repr, &p->py, &limits);
    return true;
}

int lock_waits_note(struct process *p, const struct sampled_thread *th)
{
    struct lock_waits *w = &p->locks;
    const struct frames *frames = &p->stack.frames;
    size_t n = w->n_frames + frames->n <= FRAMES_MAX ? frames->n : 0;

    if (grow_array((void **)&w->threads, &w->cap, w->n + 1, sizeof(*w->threads)) < 0 ||
        grow_array((void **)&w->frames, &w->cap_frames, w->n_frames + n + 1, sizeof(*w->frames)) < 0)
        return ERR_NOMEM;
    w->threads[w->n++] = (struct noted_thread){
        .tstate = th->tstate, .thread_id = th->thread_id, .first = w->n_frames, .n = n, .is_cut = n < frames->n};
    for (size_t i = 0; i < n; i++)
        w->frames[w->n_frames++] = (struct noted_frame){.frame = frames->items[i],
                                                        .is_threading = code_is_in(p->stack.codes[i], "/threading.py")};
    return 0;
}

static struct sampled_thread *find_thread(struct process *p, uint64_t thread_id)
{
    for (size_t i = 0; i < p->threads.n; i++)
        if (p->threads.items[i].thread_id == thread_id)
            return thread_table_find(&p->table, p->threads.items[i].tstate);
    return NULL;
}

/* True if glibc's struct pthread is as we know it: that of a listed thread contains its ID. */
static bool knows_glibc_tids(struct process *p)
{
    struct thread_table *t = &p->table;

    for (size_t i = 0; i < p->threads.n; i++) {
        const struct sampled_thread *th = thread_table_find(t, p->threads.items[i].tstate);
        pid_t tid = th && th->os.tid ? threads_read_glibc_tid(&p->py, th->thread_id) : 0;

        if (tid && tid == th->os.tid)
            return true;
        for (size_t k = 0; tid && k < t->n_tids; k++)
            if (t->tids[k].inner == tid && t->tids[k].outer == th->os.tid)
                return true;
    }
    return false;
}

/* A thread that runs no Python any more has no thread state, but still exists. The kernel clears the ID when the thread exits; if its
 * memory has been unmapped, the target must still be readable. */
static void set_owner(struct process *p, uint64_t ident, bool certain, struct awaited_thread *ret)
{
    struct sampled_thread *th = find_thread(p, ident);

    *ret = (struct awaited_thread){.known = true, .certain = certain, .thread_id = ident};
    if (th) {
        ret->os_thread_id = th->os.tid;
        ret->name = th->name ? th->name : th->kernel_name;
    } else {
        ret->exited = !threads_read_glibc_tid(&p->py, ident) && knows_glibc_tids(p);
    }
}

/* The program's name for the object, from the frames outside of the operation. */
static const char *name_of(struct process *p, const struct thread_wait *t)
{
    const struct stack *st = &p->stack;

    return t->module ? t->module
                     : thread_wait_name_outside(p->locks.repr, st->frames.items + t->n_frames, st->codes + t->n_frames,
                                                st->frames.n - t->n_frames, t->object);
}

void lock_waits_read(struct process *p, const struct sampled_thread *th, const struct sched_stats *before,
                     struct wait_reason *ret)
{
    static const enum awaited_kind kinds[] = {
        [THREAD_WAIT_LOCK] = AWAITED_LOCK,          [THREAD_WAIT_RLOCK] = AWAITED_RLOCK,
        [THREAD_WAIT_IMPORT] = AWAITED_IMPORT_LOCK, [THREAD_WAIT_SHARED_LOCK] = AWAITED_SHARED_LOCK,
        [THREAD_WAIT_THREAD] = AWAITED_THREAD,      [THREAD_WAIT_OPERATION] = AWAITED_OPERATION};
    struct noted_thread *noted = &p->locks.threads[p->locks.n - 1];
    const struct stack *st = &p->stack;
    struct thread_wait t;

    noted->stats = *before;
    noted->waits = true;
    if ((!ret->futex && ret->state != TRACE_SLEEPING) || st->unsure || !th->tstate || !begin_repr(p))
        return;
    if (st->frames.n)
        noted->released = thread_wait_released(p->locks.repr, &st->frames.items[0], st->codes[0]);
    if (thread_wait_read(p->locks.repr, st->frames.items, st->codes, st->frames.n, ret->futex, &t) < 0 ||
        t.kind == THREAD_WAIT_UNKNOWN)
        return;
    if (t.is_shutdown &&
        (t.owner = thread_wait_ending(p->locks.repr, p->table.names.active, ret->futex, t.object)) != 0)
        t = (struct thread_wait){.kind = THREAD_WAIT_THREAD,
                                 .operation = t.operation,
                                 .owner = t.owner,
                                 .certain = true,
                                 .owner_certain = true};
    if (t.kind == THREAD_WAIT_SHARED_LOCK && (t.owner == th->thread_id || !find_thread(p, t.owner)))
        t.owner = 0; /* a fork() may have copied it */
    noted->object = t.object;
    ret->object = (struct awaited_object){.kind = kinds[t.kind],
                                          .certain = t.certain,
                                          .operation = t.operation,
                                          .name = name_of(p, &t),
                                          .addr = t.object};
    if (t.owner)
        set_owner(p, t.owner, t.owner_certain, &ret->object.owner);
}

/* ---- who holds a Lock ---- */

/* The thread may have run since: then the frame may be another one's by now. */
static bool is_same_frame(struct process *p, const struct py_frame *frame)
{
    addr_t code;

    return repr_word(p->locks.repr, frame->addr + (addr_t)p->py.layout.fr_code, &code) == 0 &&
           (code & ~3ull) == frame->code;
}

static int add_held(struct process *p, struct held_locks *h, size_t thread, const struct py_frame *frame)
{
    struct repr *v = p->locks.repr;
    addr_t objects[WITH_MAX];
    size_t n = is_same_frame(p, frame) ? lock_objects_in_with(v, frame, objects, WITH_MAX) : 0;

    for (size_t i = 0; i < n; i++) {
        enum lock_type type = lock_object_type(v, objects[i]);
        addr_t lock = type == LOCK_NONE ? thread_wait_lock_of(v, objects[i]) : objects[i];

        if (!lock || lock == p->locks.threads[thread].released ||
            (type == LOCK_NONE && lock_object_type(v, lock) != LOCK_PLAIN))
            continue;
        if (h->n == HELD_MAX) {
            h->cut = true;
            return 0;
        }
        if (grow_array((void **)&h->items, &h->cap, h->n + 1, sizeof(*h->items)) < 0)
            return ERR_NOMEM;
        h->items[h->n++] = (struct held_lock){.lock = lock, .thread = thread};
    }
    return 0;
}

static bool is_cut(const struct process *p)
{
    return deadline_passed() || mem_cached_spent(p->locks.repr->mem);
}

static int find_held(struct process *p, struct held_locks *h)
{
    const struct lock_waits *w = &p->locks;
    int r = 0;

    for (size_t i = 0; i < w->n && r == 0 && !h->cut; i++) {
        if (!begin_repr(p))
            return ERR_NOMEM;
        for (size_t k = 0; k < w->threads[i].n && r == 0; k++)
            r = add_held(p, h, i, &w->frames[w->threads[i].first + k].frame);
        h->cut |= is_cut(p) || w->threads[i].is_cut;
    }
    return r;
}

#define HOLDER_NONE ((size_t)-1)

/* The only thread that has the lock in a `with` block; HOLDER_NONE if there is none, or more than one. */
static size_t holder_in_with(const struct held_locks *h, addr_t lock)
{
    size_t found = HOLDER_NONE;

    for (size_t i = 0; i < h->n; i++) {
        if (h->items[i].lock != lock || h->items[i].thread == found)
            continue;
        if (found != HOLDER_NONE)
            return HOLDER_NONE;
        found = h->items[i].thread;
    }
    return found;
}

static int find_acquires(struct process *p, struct held_locks *h)
{
    const struct lock_waits *w = &p->locks;

    h->has_acquires = true;
    for (size_t i = 0; i < w->n_frames; i++) {
        if (i % AT_ONCE == 0) {
            h->acquires_cut = i >= LOOKS_MAX || is_cut(p);
            if (h->acquires_cut)
                break;
            if (!begin_repr(p))
                return ERR_NOMEM;
        }
        if (w->frames[i].is_threading || !is_same_frame(p, &w->frames[i].frame) ||
            !lock_frame_uses_name(p->locks.repr, &w->frames[i].frame, "acquire"))
            continue;
        if (grow_array((void **)&h->acquires, &h->cap_acquires, h->n_acquires + 1, sizeof(*h->acquires)) < 0)
            return ERR_NOMEM;
        h->acquires[h->n_acquires++] = i;
    }
    return 0;
}

/* The only thread whose frames call acquire() and know the lock, of those that do not wait for it. */
static size_t holder_by_acquire(struct process *p, struct held_locks *h, addr_t lock)
{
    const struct lock_waits *w = &p->locks;
    size_t found = HOLDER_NONE, thread = 0;

    if (!begin_repr(p) || (!h->has_acquires && find_acquires(p, h) < 0))
        h->acquires_cut = true;
    for (size_t i = 0; i < h->n_acquires && !h->acquires_cut; i++) {
        while (h->acquires[i] >= w->threads[thread].first + w->threads[thread].n)
            thread++;
        if (thread == found || w->threads[thread].object == lock || w->threads[thread].released == lock)
            continue;
        if (h->looks++ % AT_ONCE == 0)
            h->acquires_cut = h->looks > LOOKS_MAX || is_cut(p) || !begin_repr(p);
        if (!thread_frame_knows(p->locks.repr, &w->frames[h->acquires[i]].frame, lock))
            continue;
        if (found != HOLDER_NONE)
            return HOLDER_NONE;
        found = thread;
    }
    h->acquires_cut |= is_cut(p);
    return h->acquires_cut ? HOLDER_NONE : found;
}

/* The thread that likely holds a Lock. */
static size_t holder_of(struct process *p, struct held_locks *h, addr_t lock)
{
    uint64_t hash = hash_mix(0, lock);
    size_t step = 0, holder;
    uint32_t at;

    while ((at = hash_table_next(&h->known_by_lock, hash, &step)) != HASH_TABLE_NONE)
        if (h->known[at].lock == lock)
            return h->known[at].thread;
    holder = holder_in_with(h, lock);
    if (holder == HOLDER_NONE)
        holder = holder_by_acquire(p, h, lock);
    if (grow_array((void **)&h->known, &h->cap_known, h->n_known + 1, sizeof(*h->known)) < 0 ||
        hash_table_reserve(&h->known_by_lock, h->n_known + 1) < 0)
        return holder;
    hash_table_add(&h->known_by_lock, hash, (uint32_t)h->n_known);
    h->known[h->n_known++] = (struct known_holder){.lock = lock, .thread = holder};
    return holder;
}

/* Threads that have not run since they were read: what was read of them was true at the same time. */
static bool still_waits(struct process *p, const struct noted_thread *t)
{
    struct sampled_thread *th = thread_table_find(&p->table, t->tstate);
    struct sched_stats stats;
    struct task_look look;

    return th && t->waits && t->stats.run_count && task_look(&th->os.task, &look) == 0 && look.state != 'R' &&
           task_sched_stats(&th->os.task, &stats) == 0 && sched_stats_equal(&stats, &t->stats);
}

static int noted_compare(const void *a, const void *b)
{
    const struct noted_thread *x = *(const struct noted_thread *const *)a, *y = *(const struct noted_thread *const *)b;

    return x->thread_id < y->thread_id ? -1 : x->thread_id > y->thread_id;
}

static void confirm(struct process *p, struct wait_reason **waits, const uint64_t *threads, size_t n)
{
    const struct lock_waits *w = &p->locks;
    const struct noted_thread **sorted = calloc(w->n + 1, sizeof(const struct noted_thread *)), **found;

    for (size_t i = 0; sorted && i < w->n; i++)
        sorted[i] = &w->threads[i];
    if (sorted)
        qsort(sorted, w->n, sizeof(*sorted), noted_compare);
    for (size_t i = 0; sorted && i < n; i++) {
        struct noted_thread key = {.thread_id = threads[i]};
        const struct noted_thread *at = &key;

        found = bsearch(&at, sorted, w->n, sizeof(*sorted), noted_compare);
        waits[i]->object.confirmed = found && still_waits(p, *found);
    }
    free(sorted);
}

/* A lock may have passed to another thread, which waited for it as well, without waking this one. An owner that has not run between
 * this and confirm() owns the lock in between. */
static void read_owners_again(struct process *p, struct wait_reason **waits, size_t n)
{
    bool begun = true;

    for (size_t i = 0; i < n; i++) {
        struct awaited_object *object = &waits[i]->object;
        enum thread_wait_kind kind = object->kind == AWAITED_RLOCK ? THREAD_WAIT_RLOCK : THREAD_WAIT_IMPORT;
        uint64_t owner;

        if (i % AT_ONCE == 0)
            begun = begin_repr(p);
        if (object->kind != AWAITED_RLOCK && object->kind != AWAITED_IMPORT_LOCK)
            continue;
        owner = begun ? thread_wait_owner(p->locks.repr, kind, object->addr) : 0;
        if (!owner)
            object->owner = (struct awaited_thread){0};
        else if (owner != object->owner.thread_id)
            set_owner(p, owner, true, &object->owner);
    }
}

static bool needs_holder(const struct wait_reason *w)
{
    return w->object.kind == AWAITED_LOCK && !w->object.owner.known;
}

void lock_waits_finish(struct process *p, struct wait_reason **waits, const uint64_t *threads, size_t n)
{
    struct held_locks h = {0};
    bool needed = false;
    size_t holder;

    for (size_t i = 0; i < n; i++)
        needed |= needs_holder(waits[i]);
    run_as_user_begin(p->user);
    if (needed && find_held(p, &h) == 0 && !h.cut) {
        for (size_t i = 0; i < n && !deadline_passed(); i++) {
            if (!needs_holder(waits[i]))
                continue;
            holder = holder_of(p, &h, waits[i]->object.addr);
            if (holder != HOLDER_NONE)
                set_owner(p, p->locks.threads[holder].thread_id, false, &waits[i]->object.owner);
        }
    }
    read_owners_again(p, waits, n);
    confirm(p, waits, threads, n);
    run_as_user_end(p->user);
    free(h.items);
    free(h.acquires);
    free(h.known);
    hash_table_free(&h.known_by_lock);
    p->locks.n = p->locks.n_frames = 0;
}

void lock_waits_free(struct lock_waits *w)
{
    repr_free(w->repr);
    free(w->threads);
    free(w->frames);
    *w = (struct lock_waits){0};
}
