/*
 * A thread's Python frames as the interpreter has them: which code object, which instruction. No names yet.
 */
#ifndef PYTHON_FRAMES_H
#define PYTHON_FRAMES_H

#include "base/hash_table.h"
#include "python/python.h"
#include "snapshot/snapshot.h"

struct py_frame {
    addr_t addr;
    addr_t code;
    int64_t at; /* byte offset into the bytecode; negative: before the first instruction */
    bool is_entry;
    bool is_shim_entry; /* the interpreter was entered from C for this frame */
    bool doubled;       /* unpaused: it is in both copies */
    addr_t entry;       /* entered from C, 3.12+: an address on the C stack of that entry; else 0 */
};

/* What is remembered of a thread from one reading to the next. Zeroed at first. */
struct frames_state {
    addr_t interp; /* what the thread state must say, or it is another thread's by now; 0: do not check */
    uint64_t thread_id;
    addr_t cframe;    /* 3.11 and 3.12: the innermost _PyCFrame */
    addr_t generator; /* set when a stack ended in this generator */
    addr_t accepted;  /* a generator that may be the outermost frame; 0: none */
    /* Unpaused. */
    addr_t *chain; /* the frames of the last walk to a root, innermost first */
    size_t n_chain, cap_chain;
    addr_t root;       /* the outermost frame */
    uint64_t usual_ns; /* how long a double read usually takes */
};

#define FRAMES_CHUNKS_MAX 256

/* A chunk of the data stack, as far as it is in use. */
struct data_chunk {
    addr_t start, end;
};

/* Reused from one stack to the next. */
struct frames {
    struct py_frame *items; /* innermost first */
    size_t n, cap;
    addr_t root;           /* address of the outermost */
    bool entry_incomplete; /* this is the stack below the innermost entry from C, which is not complete yet */
    bool start_unplanned;  /* what leads to it was not in the plan, and was read later */
    addr_t chunk, chunk_top;
    size_t chunk_size;                           /* of the newest chunk of the data stack; 0: unknown */
    struct data_chunk chunks[FRAMES_CHUNKS_MAX]; /* newest first */
    size_t n_chunks, at_chunk;
    struct frame_size *sizes; /* by code object */
    size_t n_sizes, cap_sizes;
    struct hash_table sizes_by_code;
    addr_t *chain; /* addresses of all frames that the walk passed */
    size_t n_chain, cap_chain;
    /* Unpaused: other readings of the same stack, to compare. */
    struct py_frame *other, *first;
    size_t n_other, cap_other, cap_first;
};

/* Reads the stack of the thread whose state is at `tstate`, between snapshot_begin and snapshot_end. ERR_TORN when what was
 * read cannot have been one stack: cut off before its root, or between two states. ERR_GONE when the thread state is another
 * thread's. ERR_TOO_DEEP, ERR_CYCLE, ERR_READ, ERR_NOMEM. */
int frames_read(struct frames *f, const struct python *py, struct snapshot *snap, addr_t tstate,
                struct frames_state *state);

/* Reads the frames from the one at `frame` to the outermost, of a stack that no thread runs, from `py->mem`. The caller makes sure that it
 * does not change meanwhile. ERR_TORN when a frame cannot be read; ERR_TOO_DEEP, ERR_CYCLE, ERR_NOMEM: `f` has the frames before. */
int frames_read_chain(struct frames *f, const struct python *py, addr_t frame);

/* Reads the stack of a thread that may run meanwhile: two copies in one call, and only what they have in common counts.
 * `ret_sure` is how many of the frames, counted from the outermost, were the same in both; `ret_cut`: there were more. Begins
 * and ends the snapshot itself. */
int frames_read_unpaused(struct frames *f, const struct python *py, struct snapshot *snap, struct read_plan *plan,
                         addr_t tstate, struct frames_state *state, size_t *ret_sure, bool *ret_cut);

/* Drops the innermost frames but `n`. */
void frames_keep_outermost(struct frames *f, size_t n);

void frames_free(struct frames *f);
void frames_state_free(struct frames_state *state);

#endif
