/*
 * Thread state -> frames. Called while the thread stands still (or, unheld, at the reader's risk).
 *
 * From 3.11 on most frames lie one after the other in the thread's data stack, whose used part is copied
 * in one go; generators' frames are in the heap and entry frames on the C stack. Up to 3.10 each frame is
 * an object in the heap.
 */
#include "python/frames.h"

#include "base/err.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

#define FRAME_BYTES  512
#define CHUNK_HEADER 24                         /* previous, size, top (pystate.h, _stack_chunk) */
#define CHUNK_MAX    ((size_t)64 * 1024 * 1024) /* the interpreter doubles them: 16 KB, 32 KB, … */

/* _PyInterpreterFrame.owner, pycore_frame.h: from 3 on it is not a Python function's frame. */
#define OWNER_NOT_PYTHON 3

struct raw_frame {
    addr_t addr, code, back, instr;
    int lasti, owner;
    bool is_entry;
};

static addr_t addr_at(const unsigned char *bytes, int at)
{
    addr_t value;

    memcpy(&value, bytes + at, sizeof(value));
    return value;
}

static const unsigned char *window_find(struct frames *f, addr_t addr, size_t len)
{
    for (size_t k = 0; k < f->n_windows; k++) {
        size_t i = (f->last_window + k) % f->n_windows;
        const struct frames_window *w = &f->windows[i];

        if (addr >= w->start && addr - w->start <= w->len && len <= w->len - (addr - w->start)) {
            f->last_window = i;
            return w->bytes + (addr - w->start);
        }
    }
    return NULL;
}

static int window_add(struct frames *f, const struct python *py, addr_t start, size_t len)
{
    struct frames_window *w;
    int r;

    if (f->n_windows == FRAMES_WINDOWS_MAX || len > CHUNK_MAX)
        return ERR_BOUNDS;
    if (grow_array((void **)&f->windows, &f->cap_windows, f->n_windows + 1, sizeof(*w)) < 0)
        return ERR_NOMEM;
    w = &f->windows[f->n_windows];
    if (grow_array((void **)&w->bytes, &w->cap, len, 1) < 0)
        return ERR_NOMEM;
    r = mem_read(py->mem, start, w->bytes, len);
    if (r == 0) {
        w->start = start;
        w->len = len;
        f->n_windows++;
    }
    return r;
}

/* Copies the used part of each chunk of the data stack; what cannot be copied is read frame by frame. */
static void copy_chunks(struct frames *f, const struct python *py, const unsigned char *tstate)
{
    addr_t chunk = addr_at(tstate, py->layout.ts_chunk), top = addr_at(tstate, py->layout.ts_chunk + 8);

    while (chunk && top > chunk) {
        uint64_t header[3];

        if (window_add(f, py, chunk, top - chunk) < 0)
            return;
        chunk = addr_at(f->windows[f->n_windows - 1].bytes, 0);
        if (!chunk || mem_read(py->mem, chunk, header, sizeof(header)) < 0 || header[2] > CHUNK_MAX / 8)
            return;
        top = chunk + CHUNK_HEADER + header[2] * 8;
    }
}

static int frame_read(struct frames *f, const struct python *py, addr_t addr, struct raw_frame *ret)
{
    const struct layout *l = &py->layout;
    unsigned char copy[FRAME_BYTES];
    const unsigned char *bytes = window_find(f, addr, (size_t)l->fr_size);

    if (addr & 7)
        return ERR_TORN;
    if (!bytes) {
        int r = mem_read(py->mem, addr, copy, (size_t)l->fr_size);

        if (r < 0)
            return r;
        bytes = copy;
    }
    *ret = (struct raw_frame){.addr = addr};
    ret->code = addr_at(bytes, l->fr_code) & ~3ull; /* tagged from 3.14 on */
    ret->back = addr_at(bytes, l->fr_back);
    if (l->fr_lasti != NO)
        memcpy(&ret->lasti, bytes + l->fr_lasti, sizeof(ret->lasti));
    else
        ret->instr = addr_at(bytes, l->fr_instr);
    if (l->fr_owner != NO)
        ret->owner = bytes[l->fr_owner];
    ret->is_entry = l->fr_is_entry != NO ? bytes[l->fr_is_entry] != 0 : l->fr_owner == NO;
    return 0;
}

/* f_lasti counts bytes up to 3.9, code units of two bytes in 3.10. */
static int64_t instruction_of(const struct layout *l, const struct raw_frame *raw)
{
    if (l->fr_lasti != NO)
        return l->line_kind == LINES_RANGES ? (int64_t)raw->lasti * 2 : raw->lasti;
    return (int64_t)(raw->instr - (raw->code + (addr_t)l->co_bytecode));
}

static int frame_add(struct frames *f, const struct layout *l, const struct raw_frame *raw)
{
    if (f->n == PY_MAX_FRAMES)
        return ERR_CYCLE;
    if (grow_array((void **)&f->items, &f->cap, f->n + 1, sizeof(*f->items)) < 0)
        return ERR_NOMEM;
    f->items[f->n++] = (struct py_frame){
        .code = raw->code,
        .at = instruction_of(l, raw),
        .is_entry = raw->is_entry,
    };
    return 0;
}

/* Entered from C: 3.11 marks the frame itself, later versions put one of their own below it. */
static bool is_shim(const struct layout *l, const struct raw_frame *raw)
{
    return l->fr_owner != NO && l->fr_is_entry == NO && raw->owner >= OWNER_NOT_PYTHON;
}

/* What the walk found out about the outermost and the first entry frame. */
struct walk {
    bool has_entry;
    addr_t below_entry; /* what the innermost entry frame was called from */
    bool ends_in_entry;
};

/* Follows `back` from the frame at `addr` to the root. A second pointer at half the pace finds cycles (Floyd). */
static int walk_frames(struct frames *f, const struct python *py, addr_t addr, struct walk *w)
{
    const struct layout *l = &py->layout;
    struct raw_frame raw, slow = {.back = addr};
    unsigned long steps = 0;

    f->n = 0;
    *w = (struct walk){0};
    for (; addr; addr = raw.back, steps++) {
        int r = frame_read(f, py, addr, &raw);
        bool entry;

        if (r < 0)
            return r;
        entry = raw.is_entry || is_shim(l, &raw);
        if (!is_shim(l, &raw))
            r = raw.code ? frame_add(f, l, &raw) : ERR_TORN;
        else if (f->n)
            f->items[f->n - 1].is_shim_entry = true;
        if (entry && !w->has_entry) {
            w->has_entry = true;
            w->below_entry = raw.back;
        }
        w->ends_in_entry = entry;
        if (r == 0 && steps % 2)
            r = frame_read(f, py, slow.back, &slow);
        if (r < 0)
            return r;
        if (raw.back && raw.back == slow.addr)
            return ERR_CYCLE;
    }
    if (f->n && l->fr_is_entry != NO)
        f->items[f->n - 1].is_shim_entry = true;
    return 0;
}

/*
 * 3.11 and 3.12 enter the interpreter in two steps (Python/ceval.c): the new _PyCFrame is made current before
 * its current_frame is set. In between, current_frame holds whatever was on the C stack. It is right if its
 * entry frame was called from the frame that the _PyCFrame before has; otherwise the stack still is that one's.
 */
static int walk_from_cframe(struct frames *f, const struct python *py, addr_t cframe)
{
    const struct layout *l = &py->layout;
    addr_t frame, previous, before = 0;
    struct walk w;
    int r = mem_read_addr(py->mem, cframe + (addr_t)l->cf_frame, &frame);

    if (r == 0)
        r = mem_read_addr(py->mem, cframe + (addr_t)l->cf_previous, &previous);
    if (r == 0 && previous)
        r = mem_read_addr(py->mem, previous + (addr_t)l->cf_frame, &before);
    if (r < 0)
        return r;
    if (!previous) /* the root: nothing runs */
        frame = 0;
    r = walk_frames(f, py, frame, &w);
    if (r == 0 && (!f->n || (w.has_entry && w.below_entry == before && w.ends_in_entry)))
        return 0;
    r = walk_frames(f, py, before, &w);
    return r == 0 && f->n && !w.ends_in_entry ? ERR_TORN : r;
}

int frames_read(struct frames *f, const struct python *py, addr_t tstate)
{
    const struct layout *l = &py->layout;
    unsigned char bytes[2048];
    size_t size = (size_t)(l->ts_chunk > l->ts_frame ? l->ts_chunk + 16 : l->ts_frame + 8);
    struct walk w;
    int r = mem_read(py->mem, tstate, bytes, size);

    f->n = f->n_windows = f->last_window = 0;
    if (r < 0)
        return r;
    if (l->ts_chunk != NO)
        copy_chunks(f, py, bytes);
    if (l->cf_frame != NO)
        return walk_from_cframe(f, py, addr_at(bytes, l->ts_frame));
    r = walk_frames(f, py, addr_at(bytes, l->ts_frame), &w);
    /* From 3.12 on a stack ends in an entry frame; a generator that is being resumed is cut off before it. */
    return r == 0 && l->fr_owner != NO && f->n && !w.ends_in_entry ? ERR_TORN : r;
}

void frames_free(struct frames *f)
{
    for (size_t i = 0; i < f->cap_windows; i++)
        free(f->windows[i].bytes);
    free(f->windows);
    free(f->items);
    *f = (struct frames){0};
}
