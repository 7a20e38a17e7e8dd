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
#define CALL_SPANS  4 /* a call takes as long as so many pieces do */

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

/* From 3.6 on the walk shows whether it came to the root. In 2.7 nothing tells a frame that has lost its caller from an
 * outermost one: a new root must be seen twice. */
static int root_check(struct frames *f, const struct layout *l, struct frames_hint *hint)
{
    bool known = l->fr_owner != NO || l->fr_state != NO || !f->n || hint->root == f->root;

    hint->root = f->root;
    if (known)
        frames_keep_chain(f, hint);
    return known ? 0 : ERR_TORN;
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
    f->w.misses = 0;
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

/* Was all of it where the hint told? Of a stack that is longer than a hint can be, that will never be so. */
static bool has_moved(const struct frames *f, const struct frames_hint *hint)
{
    if (hint->n_extra == FRAMES_EXTRA)
        return false;
    for (size_t i = 0; i < f->n; i++)
        if (!f->items[i].copied)
            return true;
    return f->is_astray || f->is_before;
}

/* A place of the hint is gone. The oldest may be to blame: without them first. */
static void hint_forget(struct frames_hint *hint, bool had_older)
{
    if (!had_older || !hint->n_older)
        hint->n_extra = hint->n_chunks = hint->cframe[0] = hint->cframe[1] = 0;
    hint->n_older = 0;
}

/* One double reading. What has moved to where the hint did not tell is read singly and is not sure. With `ret_moved` the
 * caller is told so, and nothing else is done about it. */
static int read_twice_once(struct frames *f, const struct python *py, addr_t tstate, struct frames_hint *hint,
                           size_t *ret_sure, bool *ret_moved)
{
    int r = frames_read_copies(f, py, tstate, hint, ret_moved ? FRAMES_TWICE_OLDER : FRAMES_TWICE);

    *ret_sure = 0;
    if (r == 0 && ret_moved && (*ret_moved = has_moved(f, hint)))
        return 0;
    if (r == ERR_TORN && !f->w.n_copied)
        hint_forget(hint, ret_moved);
    if (r < 0 || !f->n)
        return r;
    if (frames_stayed(f, &py->layout)) {
        *ret_sure = f->n;
        return root_check(f, &py->layout, hint);
    }
    swap_copies(f);
    r = frames_walk_fetched(f, py, hint);
    if (r < 0)
        return r;
    frames_hint_update(f, hint);
    *ret_sure = common_frames(f, f->other, f->n_other, true);
    return *ret_sure ? root_check(f, &py->layout, hint) : ERR_TORN;
}

/* A stack that has frames in new places is read once more, now that these are known. Only what both have in common
 * counts: to take the second for the first would favour functions in which the thread stays for longer. */
static int read_twice_known(struct frames *f, const struct python *py, addr_t tstate, struct frames_hint *hint,
                            size_t *ret_sure, bool *ret_cut)
{
    bool moved = false;
    size_t n, same;
    int r = read_twice_once(f, py, tstate, hint, ret_sure, &moved);

    *ret_cut = false;
    if (r < 0 || !moved)
        return r;
    n = f->n;
    if (n && grow_array((void **)&f->first, &f->cap_first, n, sizeof(*f->first)) < 0)
        return ERR_NOMEM;
    if (n)
        memcpy(f->first, f->items, n * sizeof(*f->first));
    r = read_twice_once(f, py, tstate, hint, ret_sure, NULL);
    if (r < 0)
        return r;
    same = common_frames(f, f->first, n, false);
    *ret_sure = same < *ret_sure ? same : *ret_sure;
    *ret_cut = same < n; /* it has returned from there meanwhile */
    return *ret_sure || (!n && !f->n) ? 0 : ERR_TORN;
}

/* Were we interrupted between the copies? A program that does the same again and again may be back where it was, and both
 * be alike though neither was ever so. What is usual adapts itself; it counts by pieces, so that a deep stack is not taken
 * for an interruption. */
static bool took_long(const struct frames *f, struct frames_hint *hint)
{
    uint64_t pieces = f->w.took_pieces + CALL_SPANS, took_ns, usual_ns = hint->usual_ns;

    if (!f->w.n_copied)
        return false;
    took_ns = f->w.took_ns * CALL_SPANS / pieces;
    hint->usual_ns = !usual_ns || took_ns < usual_ns ? took_ns : usual_ns + usual_ns / 4;
    return usual_ns && f->w.took_ns > 2 * usual_ns * pieces / CALL_SPANS + LONG_NS;
}

/* How long the newest chunk of the data stack is, as it says itself. */
static size_t chunk_size(const struct frames *f, addr_t chunk)
{
    const unsigned char *bytes = f->w.n_chunks > 1 ? windows_bytes(&f->w, 1, chunk, 16) : NULL;
    uint64_t size = bytes ? frames_addr_at(bytes, 8) : FRAMES_CHUNK_MAX;

    return size < FRAMES_CHUNK_MAX ? size : FRAMES_CHUNK_MAX;
}

/* In the data stack all below the top is in use: a frame there belongs to the stack, whatever is above it. From 3.6 to
 * 3.10 each frame tells; in 2.7 nothing does. */
static bool is_in_use(const struct frames *f, const struct layout *l, const struct raw_frame *raw)
{
    addr_t chunk, top;

    if (l->ts_chunk == NO)
        return l->fr_state != NO && raw->executing;
    chunk = frames_state_at(f, l->ts_chunk);
    top = frames_state_at(f, l->ts_chunk + 8);
    return raw->owner != OWNER_GENERATOR &&
           (raw->addr < chunk || raw->addr - chunk >= chunk_size(f, chunk) || raw->addr + (addr_t)l->fr_size <= top);
}

static void reverse(struct frames *f)
{
    for (size_t i = 0; i < f->n / 2; i++) {
        struct py_frame frame = f->items[i];

        f->items[i] = f->items[f->n - 1 - i];
        f->items[f->n - 1 - i] = frame;
    }
}

/* When the thread moved too fast for its innermost frames to be made out: those of the last stack that are still in
 * their place, in both copies, from the root on. Trying again instead would favour the moments when it is slow. */
static size_t known_frames(struct frames *f, const struct python *py, const struct frames_hint *hint)
{
    const struct layout *l = &py->layout;
    const unsigned char *bytes[2];
    struct raw_frame a, b;
    addr_t below = 0;
    size_t at = 0;

    f->n = 0;
    for (size_t i = hint->n_chain; i-- > 0; below = a.addr) {
        if (!windows_find_copies(&f->w, hint->chain[i], (size_t)l->fr_size, &at, bytes))
            break;
        frames_parse(l, hint->chain[i], bytes[0], &a);
        frames_parse(l, hint->chain[i], bytes[1], &b);
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

int frames_read_twice(struct frames *f, const struct python *py, addr_t tstate, struct frames_hint *hint,
                      size_t *ret_sure, bool *ret_cut)
{
    int r = ERR_TORN;

    for (int i = 0; i < TWICE_TRIES && r == ERR_TORN; i++) {
        bool was_long;

        r = read_twice_known(f, py, tstate, hint, ret_sure, ret_cut);
        was_long = took_long(f, hint);
        if (r == ERR_CYCLE && f->n < PY_MAX_FRAMES) /* of frames of two moments */
            r = ERR_TORN;
        if (was_long && i + 1 < TWICE_TRIES && (r == 0 || r == ERR_TORN)) {
            r = ERR_TORN;
            continue;
        }
        if (r == 0 && f->n)
            *ret_cut |= f->is_before || f->is_astray || was_long;
        if (r == ERR_TORN && (*ret_sure = known_frames(f, py, hint)) > 0) {
            *ret_cut = true;
            r = 0;
        }
        if (hint->n_extra == FRAMES_EXTRA) /* too deep for a hint: it will not be better */
            break;
    }
    return r;
}
