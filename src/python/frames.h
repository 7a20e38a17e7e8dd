/*
 * A thread's frames as the interpreter has them: which code, which instruction. No names yet.
 */
#ifndef PYTHON_FRAMES_H
#define PYTHON_FRAMES_H

#include "python/python.h"
#include "python/trail.h"
#include "python/windows.h"

struct py_frame {
    addr_t addr;
    addr_t code;
    int64_t at; /* bytes into the bytecode; negative: before the first instruction */
    bool is_entry;
    bool is_shim_entry; /* the interpreter was entered from C for this one */
    bool copied;        /* it is in both copies of a double reading */
    addr_t entry;       /* entered from C, 3.12+: something on the C stack of that entry; else 0 */
};

#define FRAMES_CHUNKS 256
#define FRAMES_EXTRA  16384
#define FRAMES_OLDER  4

#define FRAMES_HINT_CHUNKS 64 /* of 16 KB and more: some ten thousand frames */

/* Where a thread's frames were the last time, so that one call can fetch them the next time. Zeroed at first. */
struct frames_hint {
    addr_t cframe[2];
    struct {
        addr_t start;
        uint32_t len;
    } chunk[FRAMES_HINT_CHUNKS]; /* of the data stack, the newest first */
    size_t n_chunks;
    addr_t *extra; /* frames elsewhere: generators, entry frames; up to 3.10 all */
    size_t n_extra, cap_extra;
    addr_t
        older[FRAMES_OLDER]; /* those of stacks before that one, the latest first: a double reading wants them, too */
    size_t n_older;
    addr_t interp; /* what the thread state must say, or it is another's by now; 0: not checked */
    uint64_t thread_id;
    addr_t *chain; /* without a hold: all frames of the last walk to a root, the innermost first */
    size_t n_chain, cap_chain;
    struct trail *trail; /* of stacks before */
    uint64_t usual_ns;   /* what a double reading takes */
    addr_t root;         /* the outermost frame */
    addr_t generator;    /* set when a stack ended in a generator: that one */
    addr_t accepted;     /* a generator that may be the outermost frame; 0: none */
};

/* Reused from one stack to the next. */
struct frames {
    struct py_frame *items; /* innermost first */
    size_t n, cap;
    addr_t root;    /* address of the outermost */
    bool is_before; /* it is the stack below the innermost entry from C, which is not whole yet */
    bool is_astray; /* what leads to it was not where the hint told, and read later */
    struct windows w;
    const struct trail *trail; /* of the hint */
    size_t stride;             /* how many frames to fetch when the next one is not there; 0: none was missing */
    struct py_frame *other;    /* the stack by the other copy */
    size_t n_other, cap_other;
    struct py_frame *first; /* the stack before, when it is read once more */
    size_t cap_first;
    addr_t *chain; /* addresses of all frames that the walk passed */
    size_t n_chain, cap_chain;
    addr_t *touched; /* frames that the walk found outside the chunks: the next hint */
    size_t n_touched, cap_touched;
};

/* Reads the stack of the thread whose state is at `tstate`. ERR_TORN when what was read cannot have been one
 * stack: cut off before its root, or between two states. ERR_CYCLE, ERR_READ, ERR_NOMEM. */
int frames_read(struct frames *f, const struct python *py, addr_t tstate, struct frames_hint *hint);

/* Reads the stack twice in one call, for a thread that may run meanwhile. `ret_sure` is how many of the frames,
 * counted from the outermost, were the same both times; `ret_cut`: there were more, which are not known. */
int frames_read_twice(struct frames *f, const struct python *py, addr_t tstate, struct frames_hint *hint,
                      size_t *ret_sure, bool *ret_cut);
/* Drops the innermost frames but `n`. */
void frames_keep_outermost(struct frames *f, size_t n);

void frames_free(struct frames *f);
void frames_hint_free(struct frames_hint *hint);

#endif
