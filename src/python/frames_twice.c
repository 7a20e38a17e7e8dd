/*
 * The frames of a thread that nothing keeps still: they are copied twice in one call, and only what both copies have in
 * common is vouched for. Called by sample/stack.c where threads are not held.
 */
#include "python/frames_private.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/grow.h"

#define TWICE_TRIES 6
#define LONG_NS     (2 * NS_PER_US)

/* Frames in common with another look at the stack, from the root on. One that has moved on within its function is the
 * last: what it called then is another call. `copied`: as far as they are in both copies. */
static size_t common_frames(const struct frames *f, const struct py_frame *other, size_t n_other, bool copied)
{
    size_t n = f->n < n_other ? f->n : n_other, same = 0;

    while (same < n) {
        const struct py_frame *a = &f->items[f->n - 1 - same], *b = &other[n_other - 1 - same];

        if (a->code != b->code || a->addr != b->addr || (copied && !(a->copied && b->copied)))
            break;
        same++;
        if (a->at != b->at)
            break;
    }
    return same;
}

/* In 2.7 nothing tells a frame that has lost its caller from an outermost one: a new root must be seen twice. */
static int root_check(struct frames *f, struct frames_hint *hint)
{
    bool same = !f->n || hint->root == f->root;

    hint->root = f->root;
    if (same)
        frames_keep_chain(f, hint);
    return same ? 0 : ERR_TORN;
}

/* Puts the stack by the first copy aside, for the one by the second. */
static void swap_copies(struct frames *f)
{
    struct py_frame *items = f->other;
    size_t cap = f->cap_other;

    f->other = f->items;
    f->cap_other = f->cap;
    f->n_other = f->n;
    f->items = items;
    f->cap = cap;
    f->w.base = f->w.half;
}

/* True when the second copy has the very frames that were found by the first: all as they were, but that the innermost
 * may have gone on within its function. Saves the second walk. */
static bool frames_stayed(const struct frames *f, const struct layout *l)
{
    const unsigned char *b[2];
    size_t at = 0;

    if (!f->n_chain || f->n_chain == FRAMES_EXTRA)
        return false;
    for (size_t i = 0; i < f->n_chain; i++) {
        if (!windows_find_copies(&f->w, f->chain[i], (size_t)l->fr_size, &at, b))
            return false;
        if (i ? memcmp(b[0], b[1], (size_t)l->fr_size) != 0
              : frames_addr_at(b[0], l->fr_code) != frames_addr_at(b[1], l->fr_code) ||
                    frames_addr_at(b[0], l->fr_back) != frames_addr_at(b[1], l->fr_back))
            return false;
    }
    return true;
}

static bool all_copied(const struct frames *f)
{
    for (size_t i = 0; i < f->n; i++)
        if (!f->items[i].copied)
            return false;
    return !f->is_astray && !f->is_before;
}

/* One double reading. What has moved to where the hint did not tell is read singly and is not sure. With `ret_moved` the
 * caller is told so, and nothing else is done about it. */
static int read_twice_once(struct frames *f, const struct python *py, addr_t tstate, struct frames_hint *hint,
                           size_t *ret_sure, bool *ret_moved)
{
    int r = frames_read_copies(f, py, tstate, hint, ret_moved ? FRAMES_TWICE_OLDER : FRAMES_TWICE);

    if (r == 0 && ret_moved && (*ret_moved = !all_copied(f)))
        return 0;
    if (r == ERR_TORN && !f->w.n_copied) /* a place of the hint is gone */
        hint->n_extra = hint->n_chunks = hint->n_older = 0;
    if (r < 0 || !f->n)
        return r;
    if (frames_stayed(f, &py->layout)) {
        *ret_sure = f->n;
        return root_check(f, hint);
    }
    swap_copies(f);
    r = frames_walk_fetched(f, py, hint);
    if (r < 0)
        return r;
    frames_hint_update(f, hint);
    *ret_sure = common_frames(f, f->other, f->n_other, true);
    return *ret_sure ? root_check(f, hint) : ERR_TORN;
}

/* A stack that has frames in new places is read once more, now that these are known. Only what both have in common
 * counts: to take the second for the first would favour functions in which the thread stays for longer. */
static int read_twice_known(struct frames *f, const struct python *py, addr_t tstate, struct frames_hint *hint,
                            size_t *ret_sure)
{
    bool moved = false;
    size_t n, same;
    int r = read_twice_once(f, py, tstate, hint, ret_sure, &moved);

    if (r < 0 || !moved)
        return r;
    if (grow_array((void **)&f->first, &f->cap_first, f->n, sizeof(*f->first)) < 0)
        return ERR_NOMEM;
    n = f->n;
    memcpy(f->first, f->items, n * sizeof(*f->first));
    r = read_twice_once(f, py, tstate, hint, ret_sure, NULL);
    if (r < 0)
        return r;
    same = common_frames(f, f->first, n, false);
    *ret_sure = same < *ret_sure ? same : *ret_sure;
    return *ret_sure || !f->n ? 0 : ERR_TORN;
}

/* Were we interrupted between the copies? A program that does the same again and again may be back where it was, and both
 * be alike though neither was ever so. What is usual adapts itself. */
static bool took_long(const struct frames *f, struct frames_hint *hint)
{
    uint64_t took_ns = f->w.took_ns, usual_ns = hint->usual_ns;

    hint->usual_ns = !usual_ns || took_ns < usual_ns ? took_ns : usual_ns + usual_ns / 4;
    return usual_ns && took_ns > 2 * usual_ns + LONG_NS;
}

/* A frame as it is in one of the copies; false when it is not in both. */
static bool frame_copied(struct frames *f, const struct python *py, addr_t addr, size_t base, struct raw_frame *ret)
{
    f->w.base = base;
    return frames_read_one(f, py, addr, ret) == 0 && ret->copied;
}

/* In the data stack all below the top is in use: a frame there belongs to the stack, whatever is above it. Up to 3.10
 * each frame tells. */
static bool is_in_use(const struct frames *f, const struct layout *l, const struct raw_frame *raw)
{
    addr_t chunk, top;

    if (l->ts_chunk == NO)
        return raw->executing;
    chunk = frames_state_at(f, l->ts_chunk);
    top = frames_state_at(f, l->ts_chunk + 8);
    return raw->owner != OWNER_GENERATOR &&
           (raw->addr < chunk || raw->addr >= chunk + FRAMES_CHUNK_MAX || raw->addr + (addr_t)l->fr_size <= top);
}

/* When the thread moved too fast for its innermost frames to be made out: those of the last stack that are still in
 * their place, in both copies, from the root on. Trying again instead would favour the moments when it is slow. */
static size_t known_frames(struct frames *f, const struct python *py, const struct frames_hint *hint)
{
    const struct layout *l = &py->layout;
    struct raw_frame a, b;
    addr_t below = 0;

    f->n = 0;
    if (!f->w.n_copied)
        return 0;
    for (size_t i = hint->n_chain; i-- > 0; below = a.addr) {
        if (!frame_copied(f, py, hint->chain[i], 0, &a) || !frame_copied(f, py, hint->chain[i], f->w.half, &b) ||
            a.code != b.code || a.back != b.back || a.back != below || a.owner != b.owner || !is_in_use(f, l, &a))
            break;
        if (!frames_is_shim(l, &a) && frames_add(f, l, &a) < 0)
            break;
    }
    for (size_t i = 0; i < f->n / 2; i++) {
        struct py_frame frame = f->items[i];

        f->items[i] = f->items[f->n - 1 - i];
        f->items[f->n - 1 - i] = frame;
    }
    return f->n;
}

int frames_read_twice(struct frames *f, const struct python *py, addr_t tstate, struct frames_hint *hint,
                      size_t *ret_sure, bool *ret_cut)
{
    int r = ERR_TORN;

    *ret_sure = 0;
    *ret_cut = false;
    for (int i = 0; i < TWICE_TRIES && r == ERR_TORN; i++) {
        r = read_twice_known(f, py, tstate, hint, ret_sure);
        if ((r == 0 || r == ERR_TORN) && took_long(f, hint) && i + 1 < TWICE_TRIES) {
            r = ERR_TORN;
            continue;
        }
        *ret_cut = r == 0 && f->is_before; /* the thread may have entered meanwhile */
        if (r == ERR_TORN && (*ret_sure = known_frames(f, py, hint)) > 0)
            *ret_cut = true;
        if (*ret_cut)
            return 0;
    }
    return r;
}
