/*
 * The frames of a thread that nothing pauses. Two copies are made in one call, and only what they have in common counts.
 */
#include "python/frames_private.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/grow.h"

#define TRIES       6
#define LONG_NS     (2 * NS_PER_US)
#define CALL_PIECES 4 /* a call takes as long as this many pieces */

/* How many frames two readings have in common, counted from the root. A frame that has moved on within its function is the
 * last one: what it called then is another call. `doubled`: only frames that are in both copies count. */
static size_t common_frames(const struct frames *f, const struct py_frame *other, size_t n_other, bool doubled)
{
    size_t n = f->n < n_other ? f->n : n_other, same = 0;

    while (same < n) {
        const struct py_frame *a = &f->items[f->n - 1 - same], *b = &other[n_other - 1 - same];

        if (a->code != b->code || a->addr != b->addr || (doubled && !(a->doubled && b->doubled)))
            break;
        same++;
        if (a->at != b->at)
            break;
    }
    return same;
}

/* From 3.6 on the walk shows whether it reached the root. In 2.7 nothing tells a frame that has lost its caller from an
 * outermost one: a new root must be seen twice. Remembers the chain of a good walk. */
static int check_root(struct frames *f, const struct layout *l, struct frames_state *state)
{
    bool known = l->fr_owner != NO || l->fr_state != NO || !f->n || state->root == f->root;
    addr_t *chain = state->chain;
    size_t cap = state->cap_chain;

    state->root = f->root;
    if (!known)
        return ERR_TORN;
    state->chain = f->chain;
    state->cap_chain = f->cap_chain;
    state->n_chain = f->n_chain;
    f->chain = chain;
    f->cap_chain = cap;
    f->n_chain = 0;
    return 0;
}

/* True when the second copy has the very frames that the walk found in the first, but that the innermost may have gone on
 * within its function. Saves the second walk. */
static bool frames_stayed(const struct frames *f, struct snapshot *snap, const struct layout *l)
{
    const unsigned char *b[2];

    if (!f->n_chain || f->n_chain == FRAMES_CHAIN_MAX)
        return false;
    for (size_t i = 0; i < f->n_chain; i++) {
        if (!snapshot_both(snap, f->chain[i], (size_t)l->fr_size, b))
            return false;
        if (i ? memcmp(b[0], b[1], (size_t)l->fr_size) != 0
              : frames_addr_at(b[0], l->fr_code) != frames_addr_at(b[1], l->fr_code) ||
                    frames_addr_at(b[0], l->fr_back) != frames_addr_at(b[1], l->fr_back))
            return false;
    }
    return true;
}

/* Was a part of the stack not in the plan? A stack that is deeper than a plan can be never fits, so do not retry it. */
static bool has_unplanned_frames(const struct frames *f)
{
    if (f->n_chain == FRAMES_CHAIN_MAX)
        return false;
    for (size_t i = 0; i < f->n; i++)
        if (!f->items[i].doubled)
            return true;
    return f->start_unplanned || f->entry_incomplete;
}

/* Walks the second copy, or compares the bytes: how many of the frames are the same in both. */
static int compare_copies(struct frames *f, const struct python *py, struct snapshot *snap, addr_t tstate,
                          struct frames_state *state, size_t *ret_sure)
{
    struct py_frame *items = f->other;
    size_t cap = f->cap_other;
    int r;

    *ret_sure = f->n;
    if (!f->n || frames_stayed(f, snap, &py->layout))
        return f->n ? check_root(f, &py->layout, state) : 0;
    f->other = f->items;
    f->cap_other = f->cap;
    f->n_other = f->n;
    f->items = items;
    f->cap = cap;
    snapshot_select(snap, 1);
    r = frames_read(f, py, snap, tstate, state);
    if (r < 0)
        return r;
    *ret_sure = common_frames(f, f->other, f->n_other, true);
    return *ret_sure ? check_root(f, &py->layout, state) : ERR_TORN;
}

/* A stack with frames that were not in the plan is read once more, now that they are. Only what both readings have in common
 * counts: using the second alone would favour functions in which the thread stays for longer. Leaves the last
 * snapshot open. */
static int read_planned(struct frames *f, const struct python *py, struct snapshot *snap, struct read_plan *plan,
                        addr_t tstate, struct frames_state *state, size_t *ret_sure, bool *ret_cut)
{
    size_t n, same;
    int r;

    *ret_sure = 0;
    *ret_cut = false;
    snapshot_begin(snap, plan, SNAPSHOT_TWICE, 0);
    r = frames_read(f, py, snap, tstate, state);
    if (r < 0 || !has_unplanned_frames(f))
        return r < 0 ? r : compare_copies(f, py, snap, tstate, state, ret_sure);
    n = f->n;
    if (n && grow_array((void **)&f->first, &f->cap_first, n, sizeof(*f->first)) < 0)
        return ERR_NOMEM;
    if (n)
        memcpy(f->first, f->items, n * sizeof(*f->first));
    snapshot_end(snap, true);
    snapshot_begin(snap, plan, SNAPSHOT_TWICE, 0);
    r = frames_read(f, py, snap, tstate, state);
    if (r == 0)
        r = compare_copies(f, py, snap, tstate, state, ret_sure);
    if (r < 0)
        return r;
    same = common_frames(f, f->first, n, false);
    *ret_sure = same < *ret_sure ? same : *ret_sure;
    *ret_cut = same < n; /* it has returned from there meanwhile */
    return *ret_sure || (!n && !f->n) ? 0 : ERR_TORN;
}

/* Were we preempted between the copies? A program that does the same again and again may be back where it was, so that both
 * copies are alike though neither ever existed. What is usual adapts; it counts by pieces, so that a deep stack does not pass
 * for a preemption. */
static bool took_long(const struct snapshot *snap, struct frames_state *state)
{
    size_t pieces;
    uint64_t call_ns = snapshot_took_ns(snap, &pieces), took_ns, usual_ns = state->usual_ns;

    if (!call_ns)
        return false;
    pieces += CALL_PIECES;
    took_ns = call_ns * CALL_PIECES / pieces;
    state->usual_ns = !usual_ns || took_ns < usual_ns ? took_ns : usual_ns + usual_ns / 4;
    return usual_ns && call_ns > 2 * usual_ns * pieces / CALL_PIECES + LONG_NS;
}

/* In the data stack everything below the top is in use: a frame there belongs to the stack, whatever is above it. From 3.6 to
 * 3.10 each frame tells; in 2.7 nothing does. */
static bool is_in_use(const struct frames *f, const struct layout *l, const struct raw_frame *raw)
{
    size_t size = f->chunk_size ? f->chunk_size : FRAMES_CHUNK_MAX;

    if (l->ts_chunk == NO)
        return l->fr_state != NO && raw->executing;
    return raw->owner != OWNER_GENERATOR &&
           (raw->addr < f->chunk || raw->addr - f->chunk >= size || raw->addr + (addr_t)l->fr_size <= f->chunk_top);
}

static void reverse(struct frames *f)
{
    for (size_t i = 0; i < f->n / 2; i++) {
        struct py_frame frame = f->items[i];

        f->items[i] = f->items[f->n - 1 - i];
        f->items[f->n - 1 - i] = frame;
    }
}

/* When the thread moved too fast for its innermost frames to be made out: those of the last stack that are still in their
 * place, in both copies, from the root on. Trying again instead would favour the moments when it is slow. */
static size_t known_frames(struct frames *f, const struct python *py, struct snapshot *snap,
                           const struct frames_state *state)
{
    const struct layout *l = &py->layout;
    const unsigned char *bytes[2];
    struct raw_frame a, b;
    addr_t below = 0;

    f->n = 0;
    for (size_t i = state->n_chain; i-- > 0; below = a.addr) {
        if (!snapshot_both(snap, state->chain[i], (size_t)l->fr_size, bytes))
            break;
        frames_parse(l, state->chain[i], bytes[0], &a);
        frames_parse(l, state->chain[i], bytes[1], &b);
        if (a.code != b.code || a.back != b.back || a.back != below || a.owner != b.owner || !is_in_use(f, l, &a) ||
            !is_in_use(f, l, &b))
            break;
        if (!frames_is_shim(l, &a) && frames_add(f, l, &a) < 0)
            break;
        if (a.lasti != b.lasti || a.instr != b.instr) /* what it called is another call */
            break;
    }
    reverse(f);
    return f->n;
}

int frames_read_unpaused(struct frames *f, const struct python *py, struct snapshot *snap, struct read_plan *plan,
                         addr_t tstate, struct frames_state *state, size_t *ret_sure, bool *ret_cut)
{
    int r = ERR_TORN;

    for (int i = 0; i < TRIES && r == ERR_TORN; i++) {
        bool was_long, complete;

        r = read_planned(f, py, snap, plan, tstate, state, ret_sure, ret_cut);
        complete = r == 0;
        was_long = took_long(snap, state);
        if (r == ERR_CYCLE) /* of frames of two moments */
            r = ERR_TORN;
        if (was_long && i + 1 < TRIES && (r == 0 || r == ERR_TORN)) {
            r = ERR_TORN;
        } else {
            if (r == 0 && f->n)
                *ret_cut |= f->entry_incomplete || f->start_unplanned || was_long;
            if (r == ERR_TORN && (*ret_sure = known_frames(f, py, snap, state)) > 0) {
                *ret_cut = true;
                r = 0;
            }
        }
        snapshot_end(snap, complete);
        if (f->n_chain == FRAMES_CHAIN_MAX) /* too deep for a plan: it will not get better */
            break;
    }
    return r;
}
