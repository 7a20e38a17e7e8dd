/*
 * A process and its descendants: the set, and one sample of all. Called by cmd/dump once and by the loop at each tick.
 */
#include "sample/family_private.h"

#include "base/clock.h"
#include "base/grow.h"
#include "base/hash.h"
#include "target/access.h"

#include <stdlib.h>
#include <unistd.h>

#define MAX_PROCESSES 65536
#define RETRY_NS      (20 * NS_PER_MS)
#define POLL_NS       (2 * NS_PER_MS)

/* ---- the set ---- */

static size_t slot_of(const struct family *t, pid_t pid)
{
    size_t at = hash_mix(0, (uint64_t)pid) & (t->n_slots - 1);

    while (t->slots[at] && t->items[t->slots[at] - 1].pid != pid)
        at = (at + 1) & (t->n_slots - 1);
    return at;
}

struct family_entry *family_find(const struct family *t, pid_t pid)
{
    size_t at;

    if (!t->n_slots)
        return NULL;
    at = slot_of(t, pid);
    return t->slots[at] ? &t->items[t->slots[at] - 1] : NULL;
}

/* Enters all items anew, with room for twice as many. */
static int index_rebuild(struct family *t)
{
    size_t n_slots = 64;
    uint32_t *slots;

    while (n_slots < t->n * 4)
        n_slots *= 2;
    slots = calloc(n_slots, sizeof(*slots));
    if (!slots)
        return ERR_NOMEM;
    free(t->slots);
    t->slots = slots;
    t->n_slots = n_slots;
    for (size_t i = 0; i < t->n; i++)
        t->slots[slot_of(t, t->items[i].pid)] = (uint32_t)i + 1;
    return 0;
}

int family_join(struct family *t, pid_t pid, const struct proc_stat *st, struct kin *up)
{
    struct kin *kin;

    if (t->n == MAX_PROCESSES)
        return ERR_BOUNDS;
    if (grow_array((void **)&t->items, &t->cap, t->n + 1, sizeof(*t->items)) < 0)
        return ERR_NOMEM;
    if ((t->n + 1) * 2 > t->n_slots && index_rebuild(t) < 0)
        return ERR_NOMEM;
    kin = kin_new(up, pid);
    if (!kin)
        return ERR_NOMEM;
    t->items[t->n++] = (struct family_entry){
        .pid = pid, .start_time = st->start_time, .image = st->image, .kin = kin, .error = ERR_STARTING};
    t->slots[slot_of(t, pid)] = (uint32_t)t->n;
    t->items[t->n - 1].left_out = up && proc_is_profiler(pid);
    return 0;
}

void family_remember(struct family *t, pid_t pid, struct kin *kin)
{
    struct family_member *m = &t->past[t->n_past++ % FAMILY_PAST];

    kin_drop(m->kin);
    *m = (struct family_member){pid, kin};
}

int family_drop_dead(struct family *t)
{
    size_t kept = 1;

    for (size_t i = 1; i < t->n; i++) {
        struct family_entry *e = &t->items[i];

        if (!e->dead) {
            t->items[kept++] = *e;
            continue;
        }
        process_free(e->process);
        if (e->left_out)
            kin_drop(e->kin);
        else
            family_remember(t, e->pid, e->kin);
    }
    if (kept >= t->n)
        return 0;
    t->n = kept;
    return index_rebuild(t);
}

void family_free(struct family *t)
{
    for (size_t i = 0; i < t->n; i++) {
        process_free(t->items[i].process);
        kin_drop(t->items[i].kin);
    }
    for (size_t i = 0; i < FAMILY_PAST; i++)
        kin_drop(t->past[i].kin);
    kin_free_all(&t->pinned);
    if (t->watching) {
        births_close(&t->births);
        forks_close(&t->forks);
    }
    free(t->elders);
    free(t->items);
    free(t->slots);
    *t = (struct family){.sampler = t->sampler, .subprocesses = t->subprocesses, .max_depth = t->max_depth};
}

const struct proc_info *family_entry_info(const struct family_entry *e)
{
    return &e->kin->info;
}

static bool entry_alive(const struct family_entry *e)
{
    return e->process ? process_alive(e->process) : proc_is_alive(e->pid, e->start_time);
}

bool family_root_alive(const struct family *t)
{
    return t->n && entry_alive(&t->items[0]);
}

bool family_is_calm(const struct family *t)
{
    return !t->subprocesses && t->n == 1 && t->items[0].process && !t->items[0].suspect && !t->items[0].dead;
}

bool family_is_alone(const struct family *t)
{
    for (size_t i = 1; i < t->n; i++)
        if (!t->items[i].left_out && !t->items[i].dead)
            return false;
    return true;
}

bool family_has_python(const struct family *t)
{
    for (size_t i = 1; i < t->n; i++)
        if (!t->items[i].left_out && !t->items[i].dead && (t->items[i].process || !t->items[i].given_up))
            return true;
    return false;
}

bool family_is_way_to_us(const struct family *t, const struct family_entry *e)
{
    const struct family_entry *us = family_find(t, getpid());

    for (const struct kin *kin = us ? us->kin : NULL; kin && kin != t->items[0].kin; kin = kin->up)
        if (kin == e->kin)
            return !e->process;
    return false;
}

/* ---- attaching ---- */

/* May the process still become a Python that can be read? */
static bool may_change(const struct family_entry *e, int r)
{
    if (r == ERR_STARTING || r == ERR_READ || r == ERR_TORN)
        return true;
    return r == ERR_NOT_PYTHON && access_is_starting(e->pid);
}

/* The Python that it was forked from, if it is the same program still. */
static const struct process *forked_from(const struct family *t, const struct family_entry *e)
{
    const struct family_entry *parent = e->kin->up ? family_find(t, e->kin->up->info.pid) : NULL;

    return parent && parent->process && e->image && parent->image == e->image ? parent->process : NULL;
}

static int attach(struct family *t, struct family_entry *e, uint64_t patience_ns, struct err_note *note)
{
    const struct process *like = forked_from(t, e);
    int r = like ? process_attach_fork(t->sampler, e->pid, like, &e->process) : ERR_STARTING;

    if (r < 0 && r != ERR_NOMEM)
        r = process_attach(t->sampler, e->pid, patience_ns, &e->process, note);
    if (r == 0) {
        process_move_info(e->process, &e->kin->info);
        t->has_python = true;
    }
    return r;
}

int family_try(struct family *t, struct family_entry *e, uint64_t patience_ns, struct err_note *note)
{
    struct proc_stat st;
    int r;

    if (e->process || e->left_out)
        return 0;
    if (proc_stat_read(e->pid, 0, &st) == 0 && st.start_time == e->start_time)
        e->image = st.image; /* it may have executed something since it joined */
    r = attach(t, e, patience_ns, note);
    e->error = r;
    if (r == 0 || r == ERR_NOMEM)
        return r;
    if (r == ERR_NO_PROCESS || r == ERR_GONE)
        e->dead = true;
    e->given_up = !may_change(e, r);
    e->retry_ns = clock_now_ns() + RETRY_NS;
    return kin_read_command(e->kin) < 0 ? ERR_NOMEM : r;
}

int family_renew(struct family_entry *e, const struct proc_stat *st)
{
    struct kin *kin = e->kin;

    e->process = process_free(e->process);
    e->image = st->image;
    e->given_up = false;
    e->retry_ns = 0;
    e->error = ERR_STARTING;
    if (kin->pinned) { /* what was seen of it keeps the name it had */
        kin = kin_new(kin->up, e->pid);
        if (!kin)
            return ERR_NOMEM;
        kin_drop(e->kin);
        e->kin = kin;
    }
    e->left_out = kin->up && proc_is_profiler(e->pid);
    return 0;
}

int family_attach(struct family *t, struct family_entry *e, uint64_t patience_ns)
{
    uint64_t deadline = clock_now_ns() + patience_ns;
    int r = family_try(t, e, 0, NULL);

    while (r == ERR_STARTING && clock_now_ns() < deadline) {
        clock_sleep_ns(POLL_NS);
        r = family_try(t, e, 0, NULL);
    }
    return r;
}

void family_detach(struct family_entry *e)
{
    e->process = process_free(e->process);
}

int family_add(struct family *t, pid_t pid, uint64_t patience_ns, bool must_be_python, struct err_note *note)
{
    struct proc_stat st;
    int r = proc_stat_read(pid, 0, &st);

    if (r < 0)
        return r == ERR_NO_PROCESS ? err_note_what(note, r, "no process has the pid %d", (int)pid) : r;
    r = family_join(t, pid, &st, NULL);
    if (r < 0)
        return r;
    if (must_be_python)
        return family_try(t, &t->items[0], patience_ns, note);
    r = family_try(t, &t->items[0], 0, note);
    if (r == ERR_STARTING)
        r = family_attach(t, &t->items[0], patience_ns);
    return r == ERR_NOT_PYTHON || r == ERR_STARTING ? 0 : r;
}

/* ---- sampling ---- */

/* What came of one sample of a process. ERR_GONE when nothing of it is left. */
static int entry_sample(struct family *t, struct family_entry *e, process_sink sink, void *arg)
{
    uint64_t before = t->sampler->stacks;
    int r = process_sample(e->process, sink, arg);

    if (t->sampler->stacks != before)
        kin_pin(e->kin, &t->pinned);
    if (r == ERR_GONE)
        e->dead = true;
    else if (r < 0 && r != ERR_NOMEM) {
        if (r != ERR_STARTING) /* no stack was missed */
            sampler_count_error(t->sampler, r);
        e->suspect = true;
    }
    return r;
}

int family_sample(struct family *t, process_sink sink, void *arg)
{
    size_t left = 0;
    int r = 0;

    for (size_t i = 0; i < t->n && r == 0; i++) {
        struct family_entry *e = &t->items[i];

        if (!e->process) {
            left += !e->given_up && !e->left_out && !e->dead;
            continue;
        }
        r = entry_sample(t, e, sink, arg);
        left += r != ERR_GONE;
        if (r != ERR_NOMEM && r <= 0)
            r = 0;
    }
    /* A root that is no Python, or is no more, may yet start or become one. */
    return r ? r : left || family_root_alive(t) ? 0 : ERR_GONE;
}
