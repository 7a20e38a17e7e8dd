/*
 * Thread state -> frames.
 *
 * From 3.11 on most frames lie one after the other in the chunks of the thread's data stack; generators' frames are in the
 * heap, and entry frames on the C stack. Up to 3.10 each frame is an object in the heap.
 */
#include "python/frames_private.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/hash.h"

#include <stdlib.h>

#define CFRAME_BYTES 24
#define FRAME_BYTES  256                       /* more than fr_size in any version */
#define STATE_MAX    1024                      /* of PyThreadState in 3.11 and 3.12, with its root _PyCFrame */
#define CHUNK_HEADER 24                        /* previous, size, top (pystate.h, _stack_chunk) */
#define COPY_MAX     ((size_t)8 * 1024 * 1024) /* of all chunks; frames in the others are read one by one */
#define SIZES_MAX    65536
#define WORDS_MAX    (FRAMES_CHUNK_MAX / 8)

struct frame_size {
    addr_t code;
    size_t bytes;
};

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

/* f_lasti counts bytes up to 3.9, code units of two bytes in 3.10. */
static int64_t instruction_of(const struct layout *l, const struct raw_frame *raw)
{
    if (l->fr_lasti != NO)
        return l->line_kind == LINES_RANGES ? (int64_t)raw->lasti * 2 : raw->lasti;
    return (int64_t)(raw->instr - (raw->code + (addr_t)l->co_bytecode));
}

struct py_frame frames_make(const struct layout *l, const struct raw_frame *raw)
{
    return (struct py_frame){
        .addr = raw->addr,
        .code = raw->code,
        .at = instruction_of(l, raw),
        .is_entry = raw->is_entry,
        .doubled = raw->doubled,
    };
}

int frames_add(struct frames *f, const struct layout *l, const struct raw_frame *raw)
{
    if (f->n == PY_MAX_FRAMES)
        return ERR_TOO_DEEP;
    if (grow_array((void **)&f->items, &f->cap, f->n + 1, sizeof(*f->items)) < 0)
        return ERR_NOMEM;
    f->items[f->n++] = frames_make(l, raw);
    return 0;
}

bool frames_is_shim(const struct layout *l, const struct raw_frame *raw)
{
    return l->fr_owner != NO && l->fr_is_entry == NO && raw->owner >= OWNER_NOT_PYTHON;
}

/* ---- the data stack ---- */

/* Reads the size of the code object's frames; 0 if the value is invalid (larger than a chunk). ERR_READ if the code object
 * cannot be read, for example because a core file omits it. */
static int read_frame_size(const struct layout *l, struct snapshot *snap, addr_t code, size_t *ret)
{
    bool sum = l->frame_size_kind == FRAME_SIZE_SUM;
    int32_t fields[3];
    size_t words;

    if (snapshot_read_aside(snap, code + (addr_t)l->co_firstline - (sum ? 4 : 0), fields, sizeof(fields)) < 0)
        return ERR_READ;
    words = sum ? (size_t)(uint32_t)fields[0] + (uint32_t)fields[2] + (size_t)l->fr_slots / 8 : (uint32_t)fields[2];
    *ret = words <= WORDS_MAX ? words * 8 : 0;
    return 0;
}

/* The size of the code object's frames, remembered from the first time. NULL when it is unknown. */
static struct frame_size *frame_size(struct frames *f, const struct layout *l, struct snapshot *snap, addr_t code)
{
    uint64_t hash = hash_mix(0, code);
    size_t step = 0, bytes;
    uint32_t at;

    while ((at = hash_table_next(&f->sizes_by_code, hash, &step)) != HASH_TABLE_NONE)
        if (f->sizes[at].code == code)
            return &f->sizes[at];
    if (f->n_sizes == SIZES_MAX) {
        hash_table_clear(&f->sizes_by_code);
        f->n_sizes = 0;
    }
    if (read_frame_size(l, snap, code, &bytes) < 0 ||
        hash_table_reserve_item(&f->sizes_by_code, (void **)&f->sizes, &f->cap_sizes, f->n_sizes, sizeof(*f->sizes)) <
            0)
        return NULL;
    hash_table_add(&f->sizes_by_code, hash, (uint32_t)f->n_sizes);
    f->sizes[f->n_sizes] = (struct frame_size){code, bytes};
    return &f->sizes[f->n_sizes++];
}

/* Returns the address at which the caller of the frame at `addr` must end: `addr` itself or, if the frame is the first in
 * its chunk, the end of the previous chunk. 0: unknown. The first word of the first chunk is not used (pystate.c, push_chunk). */
static addr_t caller_end(struct frames *f, addr_t addr)
{
    for (size_t k = 0; k < f->n_chunks; k++) {
        size_t i = (f->at_chunk + k) % f->n_chunks; /* most likely the chunk of the last frame, or the next */
        addr_t start = f->chunks[i].start;
        size_t len = i == 0 && f->chunk_size ? f->chunk_size : f->chunks[i].end - start;

        if (addr < start || addr - start >= len)
            continue;
        f->at_chunk = i;
        if (addr - start > CHUNK_HEADER + 8)
            return addr;
        return i + 1 < f->n_chunks ? f->chunks[i + 1].end : 0;
    }
    return 0;
}

/*
 * The interpreter takes the memory of a frame from the top of the data stack, so a frame begins where its caller ends. But
 * the compiled interpreter may make a new frame current before it sets `previous`. Until then, `previous` holds what an
 * earlier frame at the same address left there, which may even be another frame of this stack.
 */
static bool is_called_from(struct frames *f, const struct layout *l, struct snapshot *snap, addr_t callee,
                           const struct raw_frame *caller)
{
    addr_t end = caller_end(f, callee);
    struct frame_size *size = end ? frame_size(f, l, snap, caller->code) : NULL;

    if (!size || caller->addr + size->bytes == end)
        return true;
    /* Another code object may be there by now. */
    return read_frame_size(l, snap, caller->code, &size->bytes) < 0 || caller->addr + size->bytes == end;
}

/* The innermost frame is current, but has not executed anything. */
static bool is_new(const struct layout *l, const struct raw_frame *raw)
{
    addr_t first = raw->code + (addr_t)l->co_bytecode;

    /* Up to 3.12, `instr` is the last instruction that was started; later, the one being executed or about to be. */
    return raw->owner == OWNER_THREAD && !raw->is_entry && (l->minor <= 12 ? raw->instr < first : raw->instr == first);
}

/*
 * True if `raw` cannot be the caller of the new innermost frame. A generator's frame is not on the data stack, so the
 * address of its callee does not identify the caller. If the callee's `previous` is stale, it may point to the frame that
 * resumed the generator. That frame has the generator on top of its value stack, and the generator's `previous` points back
 * to it.
 */
static bool cannot_be_caller(const struct layout *l, struct snapshot *snap, const unsigned char *bytes,
                             const struct raw_frame *raw)
{
    addr_t slot, object, back;
    int top;

    if (l->fr_stacktop_is_pointer) {
        slot = frames_addr_at(bytes, l->fr_stacktop) - 8;
    } else {
        memcpy(&top, bytes + l->fr_stacktop, sizeof(top));
        if (top < 0) /* still executing: it has not called anything */
            return true;
        slot = raw->addr + (addr_t)l->fr_slots + ((addr_t)(unsigned)top - 1) * 8;
    }
    if (snapshot_read_aside(snap, slot, &object, sizeof(object)) < 0)
        return false;
    object &= ~7ull; /* tagged from 3.14 on */
    return object && snapshot_read_aside(snap, object + (addr_t)(l->ge_frame + l->fr_back), &back, sizeof(back)) == 0 &&
           back == raw->addr;
}

/* ---- walking ---- */

/* What a walk found out about the outermost frame and the innermost entry frame. */
struct walk {
    addr_t callee;  /* the last frame in the data stack; 0: the next one need not be next to it */
    bool misplaced; /* it ended at a frame that cannot be the caller */
    bool starts_in_shim;
    bool has_entry;
    addr_t below_entry; /* the caller of the innermost entry frame */
    bool ends_in_entry;
    bool ends_in_generator;
    bool ends_in_executing;
};

static int walk_step(struct frames *f, const struct layout *l, const struct raw_frame *raw, bool planned,
                     struct walk *w)
{
    bool shim = frames_is_shim(l, raw), entry = raw->is_entry || shim;

    if (!f->n_chain)
        w->starts_in_shim = shim;
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
    f->start_unplanned |= !planned && !f->n; /* it may lead elsewhere by now */
    if (f->n) {
        f->items[f->n - 1].is_shim_entry = true;
        f->items[f->n - 1].doubled &= planned;
        /* 3.15 has one more in the thread state, below all others. */
        if (!f->items[f->n - 1].entry)
            f->items[f->n - 1].entry = raw->addr;
    }
    return 0;
}

/*
 * Checks a frame against the one that it called. Skips the check across an entry from C: a frame that is being freed is no
 * longer current but still on the data stack, and finalizers push their frames above it. Skips generators' frames, which are
 * not on the data stack.
 */
static bool is_in_place(struct frames *f, const struct layout *l, struct snapshot *snap, const struct raw_frame *raw,
                        struct walk *w)
{
    if (raw->owner == OWNER_THREAD && w->callee && !is_called_from(f, l, snap, w->callee, raw))
        return false;
    if (raw->is_entry || frames_is_shim(l, raw))
        w->callee = 0;
    else if (raw->owner == OWNER_THREAD)
        w->callee = raw->addr;
    return true;
}

/* Follows `back` from the frame at `addr` to the root. Brent's algorithm finds cycles: each frame is compared with one that
 * was passed before, and that one moves on after 1, 2, 4, 8 ... steps. */
static int walk_frames(struct frames *f, const struct python *py, struct snapshot *snap, addr_t addr, struct walk *w)
{
    const struct layout *l = &py->layout;
    struct raw_frame raw = {0};
    addr_t passed = addr;
    unsigned long steps = 0, move = 1;
    bool planned, called_new = false; /* by the frame that comes next */
    int r = 0;

    f->n = f->n_chain = 0;
    *w = (struct walk){0};
    for (; addr && r == 0; addr = raw.back) {
        const unsigned char *bytes = addr & 7 ? NULL : snapshot_view(snap, addr, (size_t)l->fr_size, 0);

        if (!bytes)
            return ERR_TORN;
        frames_parse(l, addr, bytes, &raw);
        raw.doubled = snapshot_is_doubled(snap);
        planned = snapshot_was_planned(snap);
        if (l->frame_size_kind != FRAME_SIZE_NONE &&
            (!is_in_place(f, l, snap, &raw, w) || (called_new && cannot_be_caller(l, snap, bytes, &raw)))) {
            w->misplaced = true;
            return ERR_TORN;
        }
        called_new = steps == 0 && l->frame_size_kind != FRAME_SIZE_NONE && is_new(l, &raw);
        r = walk_step(f, l, &raw, planned, w);
        if (r == 0 && f->n_chain < FRAMES_CHAIN_MAX) {
            if (grow_array((void **)&f->chain, &f->cap_chain, f->n_chain + 1, sizeof(*f->chain)) < 0)
                return ERR_NOMEM;
            f->chain[f->n_chain++] = addr;
        }
        if (r == 0 && (raw.back == passed || steps > 2 * PY_MAX_FRAMES))
            r = raw.back == passed ? ERR_CYCLE : ERR_TOO_DEEP;
        if (++steps == move) {
            passed = raw.back;
            move *= 2;
        }
    }
    if (r == 0 && f->n && l->fr_is_entry != NO)
        f->items[f->n - 1].is_shim_entry = true;
    return r;
}

/*
 * A frame becomes current before its `previous` is set (the compiler is free to do so), and a generator's is unset
 * while it does not run: at that moment the walk goes astray and ends in a generator that is not running. A complete
 * stack ends in an entry frame, and hardly ever in a generator: only if C code resumes one with no Python below.
 */
static bool is_complete(const struct frames *f, const struct walk *w, struct frames_state *state)
{
    if (f->n && w->ends_in_entry && w->ends_in_generator)
        state->generator = f->root;
    return f->n == 0 || (w->ends_in_entry && (!w->ends_in_generator || state->accepted == f->root));
}

/* The root _PyCFrame is part of the thread state; its current_frame is not used. All others are on the C stack. */
static bool is_root_cframe(addr_t tstate, addr_t cframe)
{
    return cframe - tstate < STATE_MAX;
}

/*
 * 3.11 and 3.12 enter the interpreter in two steps (Python/ceval.c): the new _PyCFrame becomes current before its
 * current_frame is set. In between, current_frame holds whatever was on the C stack. It is right if its entry frame was
 * called from the frame that the previous _PyCFrame has. Otherwise, if there is no frame, or an entry frame of an earlier
 * call, the stack is still that of the previous _PyCFrame. If there is a Python frame, it may also be a new one that is
 * current before its `previous` is set: then the stack of the previous _PyCFrame would lack the frames in between.
 */
static int walk_from_cframe(struct frames *f, const struct python *py, struct snapshot *snap, addr_t tstate,
                            addr_t cframe, struct frames_state *state)
{
    const struct layout *l = &py->layout;
    const unsigned char *bytes = snapshot_view(snap, cframe, CFRAME_BYTES, SNAPSHOT_PIVOT);
    addr_t frame, previous, outer = 0, before = 0;
    struct walk w;
    int r;

    if (!bytes)
        return ERR_TORN;
    f->start_unplanned |= !snapshot_was_planned(snap);
    frame = frames_addr_at(bytes, l->cf_frame);
    previous = frames_addr_at(bytes, l->cf_previous);
    if (previous) {
        bytes = snapshot_view(snap, previous, CFRAME_BYTES, SNAPSHOT_PIVOT);
        if (!bytes)
            return ERR_TORN;
        f->start_unplanned |= !snapshot_was_planned(snap);
        before = frames_addr_at(bytes, l->cf_frame);
        outer = frames_addr_at(bytes, l->cf_previous);
    }
    state->cframe = cframe;
    /* Nothing is before the first _PyCFrame but the root, and in a greenlet one that the greenlet made, without a frame.
     * If it is neither, `previous` is not set yet either. */
    if (!before && !is_root_cframe(tstate, previous ? previous : cframe) && !is_root_cframe(tstate, outer))
        return ERR_TORN;
    if (!previous)
        frame = 0;
    r = walk_frames(f, py, snap, frame, &w);
    if (r == 0 && (frame ? w.has_entry && w.below_entry == before && is_complete(f, &w, state) : !before))
        return 0;
    if (r == ERR_NOMEM || !before || w.misplaced || (f->n && !w.starts_in_shim))
        return r < 0 ? r : ERR_TORN;
    f->entry_incomplete = true;
    r = walk_frames(f, py, snap, before, &w);
    return r == 0 && !is_complete(f, &w, state) ? ERR_TORN : r;
}

/* Has the used part of each chunk of the data stack, newest first, copied as a block, so that the walk finds its frames
 * there. Frames that are in no block are read one by one. */
static void fetch_chunks(struct frames *f, struct snapshot *snap, addr_t chunk, addr_t top)
{
    size_t copied = 0;

    f->chunk = chunk;
    f->chunk_top = top;
    f->chunk_size = f->n_chunks = f->at_chunk = 0;
    for (int i = 0; i < FRAMES_CHUNKS_MAX && chunk && top > chunk && top - chunk <= FRAMES_CHUNK_MAX; i++) {
        size_t used = top - chunk;
        const unsigned char *bytes;
        addr_t previous;
        uint64_t size;

        copied += used;
        bytes = copied <= COPY_MAX && used >= CHUNK_HEADER ? snapshot_block(snap, chunk, used, 0) : NULL;
        if (!bytes)
            break;
        previous = frames_addr_at(bytes, 0);
        size = frames_addr_at(bytes, 8);
        size = size < used || size > FRAMES_CHUNK_MAX ? used : size;
        /* An older chunk has its own end. What was copied of it may be more. */
        if (i > 0)
            top = chunk + CHUNK_HEADER + (frames_addr_at(bytes, 16) <= WORDS_MAX ? frames_addr_at(bytes, 16) * 8 : 0);
        f->chunks[f->n_chunks++] = (struct data_chunk){chunk, top};
        if (i == 0) {
            f->chunk_size = size;
            snapshot_block_may_grow(snap, size);
        }
        /* Older chunks are full: their length is as it was. */
        used = snapshot_block_len(snap, previous);
        if (!used && previous) {
            bytes = snapshot_view(snap, previous + 16, 8, 0);
            used = bytes && frames_addr_at(bytes, 0) <= FRAMES_CHUNK_MAX / 8
                       ? CHUNK_HEADER + (size_t)frames_addr_at(bytes, 0) * 8
                       : 0;
        }
        chunk = previous;
        top = chunk + used;
    }
}

static size_t state_size(const struct layout *l)
{
    int fields[] = {l->ts_chunk + 8, l->ts_frame, l->ts_interp, l->ts_thread_id}, last = 0;

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (fields[i] > last)
            last = fields[i];
    return (size_t)last + 8;
}

int frames_read(struct frames *f, const struct python *py, struct snapshot *snap, addr_t tstate,
                struct frames_state *state)
{
    const struct layout *l = &py->layout;
    const unsigned char *bytes = snapshot_block(snap, tstate, state_size(l), SNAPSHOT_PIVOT);
    addr_t start, chunk = 0, top = 0;
    struct walk w;
    int r;

    f->n = f->n_chain = 0;
    f->entry_incomplete = f->start_unplanned = false;
    if (!bytes)
        return snapshot_has_failed(snap) ? ERR_TORN : ERR_READ;
    if (state->interp && (frames_addr_at(bytes, l->ts_interp) != state->interp ||
                          frames_addr_at(bytes, l->ts_thread_id) != state->thread_id))
        return ERR_GONE;
    start = frames_addr_at(bytes, l->ts_frame);
    if (l->ts_chunk != NO) {
        chunk = frames_addr_at(bytes, l->ts_chunk);
        top = frames_addr_at(bytes, l->ts_chunk + 8);
    }
    fetch_chunks(f, snap, chunk, top);
    if (l->cf_frame != NO)
        return walk_from_cframe(f, py, snap, tstate, start, state);
    r = walk_frames(f, py, snap, start, &w);
    if (r == 0 && l->fr_owner != NO && !is_complete(f, &w, state))
        return ERR_TORN;
    /* 3.6 to 3.10: a frame that has returned, or yielded, has lost its caller. A paused thread's current frame is always executing. */
    return r == 0 && f->n && snapshot_is_twice(snap) && !w.ends_in_executing ? ERR_TORN : r;
}

int frames_read_chain(struct frames *f, const struct python *py, addr_t frame)
{
    const struct layout *l = &py->layout;
    unsigned char bytes[FRAME_BYTES];
    struct raw_frame raw = {0};
    addr_t passed = frame;
    unsigned long steps = 0, move = 1;
    struct walk w = {0};
    int r = 0;

    f->n = f->n_chain = 0;
    for (addr_t addr = frame; addr && r == 0; addr = raw.back) {
        if (addr & 7 || (size_t)l->fr_size > sizeof(bytes) || mem_read(py->mem, addr, bytes, (size_t)l->fr_size) < 0)
            return ERR_TORN;
        frames_parse(l, addr, bytes, &raw);
        r = walk_step(f, l, &raw, true, &w);
        if (r == 0 && (raw.back == passed || steps == FRAMES_CHAIN_MAX))
            r = raw.back == passed ? ERR_CYCLE : ERR_TOO_DEEP;
        if (++steps == move) {
            passed = raw.back;
            move *= 2;
        }
    }
    return r;
}

void frames_keep_outermost(struct frames *f, size_t n)
{
    if (n >= f->n)
        return;
    memmove(f->items, f->items + (f->n - n), n * sizeof(*f->items));
    f->n = n;
}

void frames_state_free(struct frames_state *state)
{
    free(state->chain);
    *state = (struct frames_state){0};
}

void frames_free(struct frames *f)
{
    free(f->items);
    free(f->other);
    free(f->first);
    free(f->chain);
    free(f->sizes);
    hash_table_free(&f->sizes_by_code);
    *f = (struct frames){0};
}
