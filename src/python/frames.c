/*
 * Thread state -> frames. Called while the thread stands still (or, unheld, at the reader's risk).
 *
 * From 3.11 on most frames lie one after the other in the thread's data stack; generators' frames are in the
 * heap and entry frames on the C stack. Up to 3.10 each frame is an object in the heap. All of it is fetched by
 * one call from where it was the last time; what has moved since is read singly.
 */
#include "python/frames_private.h"

#include "base/err.h"
#include "base/grow.h"

#include <stdlib.h>

#define CFRAME_BYTES 24
#define NEAR         1024
#define CHUNK_HEADER 24   /* previous, size, top (pystate.h, _stack_chunk) */
#define CHUNK_SLACK  1024 /* room for some more frames than there were */
#define STRIDE_LEAST 8
#define STRIDE_MOST  256
#define NEAR_FRAMES  64                        /* a stack that differs in more is another one altogether */
#define COPY_MAX     ((size_t)8 * 1024 * 1024) /* of all chunks; frames in the others are read singly */

void frames_parse(const struct layout *l, addr_t addr, const unsigned char *bytes, struct raw_frame *ret)
{
    unsigned state = l->fr_state != NO ? bytes[l->fr_state] : 0;

    *ret = (struct raw_frame){.addr = addr};
    ret->code = frames_addr_at(bytes, l->fr_code) & ~3ull; /* tagged from 3.14 on */
    ret->back = frames_addr_at(bytes, l->fr_back);
    if (l->fr_lasti != NO)
        memcpy(&ret->lasti, bytes + l->fr_lasti, sizeof(ret->lasti));
    else
        ret->instr = frames_addr_at(bytes, l->fr_instr);
    if (l->fr_owner != NO)
        ret->owner = bytes[l->fr_owner];
    ret->executing = l->fr_state == NO || (state < 8 && l->fr_executing >> state & 1);
    ret->is_entry = l->fr_is_entry != NO ? bytes[l->fr_is_entry] != 0 : l->fr_owner == NO;
}

/* The frame at `addr`; if it is in a new place, with those that came after it when it was there before. First a few, then
 * twice as many each time, as long as they were the right ones: the trail may be old. */
static const unsigned char *frame_fetch(struct frames *f, const struct python *py, addr_t addr)
{
    size_t size = (size_t)py->layout.fr_size;
    const unsigned char *bytes = windows_find(&f->w, addr, size);
    addr_t addrs[STRIDE_MOST + 1];
    size_t n;

    if (bytes)
        return bytes;
    if (!f->stride || f->w.at_extra + f->w.n_chunks < f->w.n_fetched)
        f->stride = STRIDE_LEAST;
    else if (f->stride < STRIDE_MOST)
        f->stride *= 2;
    addrs[0] = addr;
    n = windows_count_new(&f->w, addrs + 1, trail_follow(f->trail, addr, addrs + 1, f->stride), size);
    return n ? windows_fetch_all(&f->w, py->mem, addrs, n + 1, size) : windows_fetch_one(&f->w, py->mem, addr, size);
}

static int frame_read(struct frames *f, const struct python *py, addr_t addr, struct raw_frame *ret)
{
    const struct layout *l = &py->layout;
    const unsigned char *bytes = addr & 7 ? NULL : frame_fetch(f, py, addr);

    if (!bytes)
        return ERR_TORN;
    frames_parse(l, addr, bytes, ret);
    ret->copied = f->w.found < f->w.n_copied && !f->w.items[f->w.found].once;
    return 0;
}

/* f_lasti counts bytes up to 3.9, code units of two bytes in 3.10. */
static int64_t instruction_of(const struct layout *l, const struct raw_frame *raw)
{
    if (l->fr_lasti != NO)
        return l->line_kind == LINES_RANGES ? (int64_t)raw->lasti * 2 : raw->lasti;
    return (int64_t)(raw->instr - (raw->code + (addr_t)l->co_bytecode));
}

int frames_add(struct frames *f, const struct layout *l, const struct raw_frame *raw)
{
    if (f->n == PY_MAX_FRAMES)
        return ERR_CYCLE;
    if (grow_array((void **)&f->items, &f->cap, f->n + 1, sizeof(*f->items)) < 0)
        return ERR_NOMEM;
    f->items[f->n++] = (struct py_frame){
        .addr = raw->addr,
        .code = raw->code,
        .at = instruction_of(l, raw),
        .is_entry = raw->is_entry,
        .copied = raw->copied,
    };
    return 0;
}

/* Remembers where a frame is, for the next hint. */
static int frame_touch(struct frames *f, addr_t addr)
{
    if (f->n_chain < FRAMES_EXTRA) {
        if (grow_array((void **)&f->chain, &f->cap_chain, f->n_chain + 1, sizeof(*f->chain)) < 0)
            return ERR_NOMEM;
        f->chain[f->n_chain++] = addr;
    }
    if (f->n_touched == FRAMES_EXTRA || f->w.found < f->w.n_chunks) /* where it was found just now */
        return 0;
    if (grow_array((void **)&f->touched, &f->cap_touched, f->n_touched + 1, sizeof(*f->touched)) < 0)
        return ERR_NOMEM;
    f->touched[f->n_touched++] = addr;
    return 0;
}

/* Entered from C: 3.11 marks the frame itself, later versions put one of their own below it. */
bool frames_is_shim(const struct layout *l, const struct raw_frame *raw)
{
    return l->fr_owner != NO && l->fr_is_entry == NO && raw->owner >= OWNER_NOT_PYTHON;
}

/* What the walk found out about the outermost and the first entry frame. */
struct walk {
    bool has_entry;
    addr_t below_entry; /* what the innermost entry frame was called from */
    bool ends_in_entry;
    bool ends_in_generator;
    bool ends_in_executing;
};

static int walk_step(struct frames *f, const struct layout *l, const struct raw_frame *raw, struct walk *w)
{
    bool shim = frames_is_shim(l, raw), entry = raw->is_entry || shim, late;

    if (entry && !w->has_entry) {
        w->has_entry = true;
        w->below_entry = raw->back;
    }
    w->ends_in_entry = entry;
    w->ends_in_generator = raw->owner == OWNER_GENERATOR;
    w->ends_in_executing = raw->executing;
    f->root = raw->addr;
    if (!shim)
        return raw->code ? frames_add(f, l, raw) : ERR_TORN;
    late = f->w.found >= f->w.n_hinted; /* then it may lead elsewhere by now */
    f->is_astray |= late && !f->n;
    if (f->n) {
        f->items[f->n - 1].is_shim_entry = true;
        f->items[f->n - 1].copied &= !late;
        /* 3.15 has one more in the thread state, below all others. */
        if (!f->items[f->n - 1].entry)
            f->items[f->n - 1].entry = raw->addr;
    }
    return 0;
}

/* Follows `back` from the frame at `addr` to the root. Each frame is compared with one that was passed before, and
 * that one is moved on after 1, 2, 4, 8 … steps: a cycle meets it (Brent). */
static int walk_frames(struct frames *f, const struct python *py, addr_t addr, struct walk *w)
{
    struct raw_frame raw = {0};
    addr_t passed = addr;
    unsigned long steps = 0, move = 1;
    int r = 0;

    f->n = f->n_touched = f->n_chain = 0;
    *w = (struct walk){0};
    for (; addr && r == 0; addr = raw.back) {
        r = frame_read(f, py, addr, &raw);
        if (r == 0)
            r = walk_step(f, &py->layout, &raw, w);
        if (r == 0)
            r = frame_touch(f, addr);
        if (r == 0 && (raw.back == passed || steps > 2 * PY_MAX_FRAMES))
            r = ERR_CYCLE;
        if (++steps == move) {
            passed = raw.back;
            move *= 2;
        }
    }
    if (r == 0 && f->n && py->layout.fr_is_entry != NO)
        f->items[f->n - 1].is_shim_entry = true;
    return r;
}

/*
 * A frame is made current before its `previous` is set (the compiler is free to do so), and a generator's is unset
 * while it does not run: in that moment the walk goes astray and ends in a generator that is not running. A whole
 * stack ends in an entry frame, and hardly ever in a generator: only C code that resumes one with no Python below.
 */
static bool is_whole(const struct frames *f, const struct walk *w, struct frames_hint *hint)
{
    if (f->n && w->ends_in_entry && w->ends_in_generator)
        hint->generator = f->root;
    return f->n == 0 || (w->ends_in_entry && (!w->ends_in_generator || hint->accepted == f->root));
}

static const unsigned char *cframe_fetch(struct frames *f, const struct python *py, addr_t cframe)
{
    const unsigned char *bytes = windows_fetch(&f->w, py->mem, cframe, CFRAME_BYTES);

    f->is_astray |= f->w.found >= f->w.n_hinted;
    return bytes;
}

/*
 * 3.11 and 3.12 enter the interpreter in two steps (Python/ceval.c): the new _PyCFrame is made current before
 * its current_frame is set. In between, current_frame holds whatever was on the C stack. It is right if its
 * entry frame was called from the frame that the _PyCFrame before has; otherwise the stack still is that one's.
 */
static int walk_from_cframe(struct frames *f, const struct python *py, addr_t cframe, struct frames_hint *hint)
{
    const struct layout *l = &py->layout;
    const unsigned char *bytes = cframe_fetch(f, py, cframe);
    addr_t frame, previous, before = 0;
    struct walk w;
    int r;

    if (!bytes)
        return ERR_TORN;
    frame = frames_addr_at(bytes, l->cf_frame);
    previous = frames_addr_at(bytes, l->cf_previous);
    if (previous) {
        bytes = cframe_fetch(f, py, previous);
        if (!bytes)
            return ERR_TORN;
        before = frames_addr_at(bytes, l->cf_frame);
    }
    hint->cframe[0] = cframe;
    hint->cframe[1] = previous;
    /* The root has none before it, and no frame. */
    r = walk_frames(f, py, previous ? frame : 0, &w);
    if (r == 0 && (!f->n || (w.has_entry && w.below_entry == before && is_whole(f, &w, hint))))
        return 0;
    if (r == ERR_CYCLE && f->n == PY_MAX_FRAMES) /* that many frames are no garbage */
        return r;
    if (r == ERR_NOMEM || !before)
        return r < 0 ? r : ERR_TORN;
    f->is_before = true;
    r = walk_frames(f, py, before, &w);
    return r == 0 && !is_whole(f, &w, hint) ? ERR_TORN : r;
}

/* Each piece costs: one that lies close behind another is read with it. The root of the _PyCFrames is part of the
 * thread state, the others are on the C stack. Returns the length that holds both. */
static size_t with_cframe(addr_t start, size_t len, addr_t cframe)
{
    size_t end = cframe > start && cframe - start < NEAR ? cframe - start + CFRAME_BYTES : 0;

    return end > len ? end : len;
}

static int add_cframes(struct frames *f, const struct frames_hint *hint)
{
    addr_t a = hint->cframe[0], b = hint->cframe[1], low = a && (a < b || !b) ? a : b;
    size_t len = with_cframe(low, with_cframe(low, CFRAME_BYTES, a), b);

    for (int i = 0; i < 2; i++) {
        addr_t cframe = i == 0 ? low : low == a ? b : a;
        int r;

        if (!cframe || windows_bytes(&f->w, 0, cframe, CFRAME_BYTES) || (i == 1 && cframe + CFRAME_BYTES <= low + len))
            continue;
        r = windows_add(&f->w, cframe, i == 0 ? len : CFRAME_BYTES);
        if (r < 0)
            return r;
        f->w.items[f->w.n - 1].once = true;
    }
    return 0;
}

static size_t state_size(const struct layout *l)
{
    int fields[] = {l->ts_chunk + 8, l->ts_frame, l->ts_interp, l->ts_thread_id}, last = 0;

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (fields[i] > last)
            last = fields[i];
    return (size_t)last + 8;
}

/* Fetches the thread state and, in the same call, all that the hint tells. */
static int fetch_hinted(struct frames *f, const struct python *py, addr_t tstate, const struct frames_hint *hint,
                        enum frames_copies copies)
{
    size_t size = with_cframe(tstate, state_size(&py->layout), hint->cframe[0]);
    int r = windows_add(&f->w, tstate, with_cframe(tstate, size, hint->cframe[1]));

    if (r == 0)
        f->w.items[0].once = true;
    for (size_t i = 0; r == 0 && i < hint->n_chunks; i++)
        r = windows_add(&f->w, hint->chunk[i].start, hint->chunk[i].len);
    if (r == 0)
        r = add_cframes(f, hint);
    for (size_t i = 0; r == 0 && i < hint->n_extra; i++)
        r = windows_add(&f->w, hint->extra[i], (size_t)py->layout.fr_size);
    for (size_t i = 0; r == 0 && copies == FRAMES_TWICE_OLDER && i < hint->n_older; i++)
        r = windows_add(&f->w, hint->older[i], (size_t)py->layout.fr_size);
    if (r == 0)
        r = copies != FRAMES_ONCE ? windows_read_twice(&f->w, py->mem) : windows_read(&f->w, py->mem, 0);
    if (r == 0 && f->w.n == 0)
        r = ERR_READ;
    f->w.n_chunks = hint->n_chunks + 1 < f->w.n ? hint->n_chunks + 1 : f->w.n;
    windows_keep(&f->w);
    return r;
}

/* True when the copied chunks are the used part of the data stack as the thread state has it now. */
static bool chunks_current(const struct frames *f, addr_t chunk, addr_t top)
{
    for (size_t i = 1; chunk; i++) {
        const unsigned char *bytes = i < f->w.n_chunks ? windows_bytes(&f->w, i, chunk, sizeof(chunk)) : NULL;

        if (!bytes || f->w.items[i].start != chunk || top > chunk + f->w.items[i].len)
            return false;
        chunk = frames_addr_at(bytes, 0);
        top = 0; /* older chunks are full: their length is as it was */
    }
    return true;
}

static void hint_chunk(struct frames_hint *hint, addr_t start, size_t used, size_t size)
{
    size_t len = used + CHUNK_SLACK < size ? used + CHUNK_SLACK : size;

    if (hint->n_chunks == sizeof(hint->chunk) / sizeof(hint->chunk[0]))
        return;
    hint->chunk[hint->n_chunks].start = start;
    hint->chunk[hint->n_chunks++].len = (uint32_t)len;
}

/* Copies the used part of each chunk anew, and notes it for the next time. What cannot be copied is read frame
 * by frame. The thread state is window 0 and stays. */
static int copy_chunks(struct frames *f, const struct python *py, addr_t chunk, addr_t top, struct frames_hint *hint)
{
    size_t copied = 0;
    int r = 0;

    f->w.n = f->w.n_chunks = 1;
    f->w.n_copied = f->w.n_copied ? 1 : 0;
    hint->n_chunks = 0;
    while (r == 0 && chunk && top > chunk && top - chunk <= FRAMES_CHUNK_MAX && f->w.n < FRAMES_CHUNKS &&
           copied + (top - chunk) <= COPY_MAX) {
        size_t first = f->w.n, used = top - chunk;
        const unsigned char *bytes;
        uint64_t size, next_top;

        copied += used;
        r = windows_add(&f->w, chunk, used);
        if (r == 0)
            r = windows_read(&f->w, py->mem, first);
        if (r < 0 || f->w.n == first)
            break;
        bytes = f->w.bytes + f->w.items[first].at;
        size = used >= CHUNK_HEADER ? frames_addr_at(bytes, 8) : 0;
        if (size < used || size > FRAMES_CHUNK_MAX)
            size = used;
        hint_chunk(hint, chunk, used, size);
        chunk = frames_addr_at(bytes, 0);
        if (!chunk || mem_read_addr(py->mem, chunk + 16, &next_top) < 0 || next_top > FRAMES_CHUNK_MAX / 8)
            break;
        top = chunk + CHUNK_HEADER + next_top * 8;
    }
    f->w.n_chunks = f->w.n;
    windows_keep(&f->w);
    return r;
}

static void swap_addrs(addr_t **a, size_t *cap_a, addr_t **b, size_t *cap_b)
{
    addr_t *addrs = *a;
    size_t cap = *cap_a;

    *a = *b;
    *cap_a = *cap_b;
    *b = addrs;
    *cap_b = cap;
}

static bool is_among(const addr_t *addrs, size_t n, addr_t addr)
{
    for (size_t i = 0; i < n; i++)
        if (addrs[i] == addr)
            return true;
    return false;
}

/* A program calls the same functions again and again, and often in the same place: frames of the last stack that are
 * not in this one are kept for a while. Both lists end in what they have in common. */
static void keep_older(const struct frames *f, struct frames_hint *hint)
{
    addr_t kept[2 * FRAMES_OLDER];
    size_t n_old = hint->n_extra, n_new = f->n_touched, n = 0;

    while (n_old && n_new && hint->extra[n_old - 1] == f->touched[n_new - 1]) {
        n_old--;
        n_new--;
    }
    for (size_t i = n_old; i-- > 0 && n < FRAMES_OLDER;)
        if (n_new < NEAR_FRAMES && !is_among(f->touched, n_new, hint->extra[i]))
            kept[n++] = hint->extra[i];
    for (size_t i = 0; i < hint->n_older; i++)
        if (!is_among(kept, n, hint->older[i]) && !(n_new < NEAR_FRAMES && is_among(f->touched, n_new, hint->older[i])))
            kept[n++] = hint->older[i];
    hint->n_older = n < FRAMES_OLDER ? n : FRAMES_OLDER;
    memcpy(hint->older, kept, hint->n_older * sizeof(kept[0]));
}

/* What the walk found is where the next one looks. */
void frames_hint_update(struct frames *f, struct frames_hint *hint)
{
    if (f->w.n_copied)
        keep_older(f, hint);
    swap_addrs(&f->touched, &f->cap_touched, &hint->extra, &hint->cap_extra);
    hint->n_extra = f->n_touched;
    f->n_touched = 0;
}

void frames_keep_chain(struct frames *f, struct frames_hint *hint)
{
    swap_addrs(&f->chain, &f->cap_chain, &hint->chain, &hint->cap_chain);
    hint->n_chain = f->n_chain;
    f->n_chain = 0;
}

/* From what was fetched to the frames; fetches singly what is not there. */
int frames_walk_fetched(struct frames *f, const struct python *py, struct frames_hint *hint)
{
    const struct layout *l = &py->layout;
    addr_t start = frames_state_at(f, l->ts_frame);
    struct walk w;
    int r = 0;

    f->is_before = f->is_astray = false;
    if (l->ts_chunk != NO && !chunks_current(f, frames_state_at(f, l->ts_chunk), frames_state_at(f, l->ts_chunk + 8)))
        r = copy_chunks(f, py, frames_state_at(f, l->ts_chunk), frames_state_at(f, l->ts_chunk + 8), hint);
    if (r < 0)
        return r;
    if (l->cf_frame != NO)
        return walk_from_cframe(f, py, start, hint);
    r = walk_frames(f, py, start, &w);
    if (r == 0 && l->fr_owner != NO && !is_whole(f, &w, hint))
        return ERR_TORN;
    /* 3.6 to 3.10: a frame that has ended, or yielded, has lost its caller. Of a thread that stands still none is met. */
    return r == 0 && f->n && f->w.n_copied && !w.ends_in_executing ? ERR_TORN : r;
}

int frames_read_copies(struct frames *f, const struct python *py, addr_t tstate, struct frames_hint *hint,
                       enum frames_copies copies)
{
    const struct layout *l = &py->layout;
    int r;

    windows_clear(&f->w);
    f->n = f->n_touched = 0;
    r = fetch_hinted(f, py, tstate, hint, copies);
    if (r == 0 && hint->interp &&
        (frames_state_at(f, l->ts_interp) != hint->interp || frames_state_at(f, l->ts_thread_id) != hint->thread_id))
        r = ERR_GONE;
    if (r < 0)
        return r;
    f->trail = hint->trail;
    f->stride = 0;
    r = frames_walk_fetched(f, py, hint);
    if (r < 0)
        return r;
    if (f->stride && trail_note(&hint->trail, f->touched, f->n_touched) < 0)
        return ERR_NOMEM;
    frames_hint_update(f, hint);
    return 0;
}

int frames_read(struct frames *f, const struct python *py, addr_t tstate, struct frames_hint *hint)
{
    return frames_read_copies(f, py, tstate, hint, FRAMES_ONCE);
}

void frames_keep_outermost(struct frames *f, size_t n)
{
    if (n >= f->n)
        return;
    memmove(f->items, f->items + (f->n - n), n * sizeof(*f->items));
    f->n = n;
}

void frames_hint_free(struct frames_hint *hint)
{
    free(hint->extra);
    free(hint->chain);
    trail_free(hint->trail);
    *hint = (struct frames_hint){0};
}

void frames_free(struct frames *f)
{
    free(f->items);
    free(f->other);
    free(f->first);
    windows_free(&f->w);
    free(f->touched);
    free(f->chain);
    *f = (struct frames){0};
}
