/*
 * The native stack of a thread: captured while the thread is paused, unwound and symbolized afterwards.
 *
 *     native_capture(n, &regs, fs_base, is_main, limit);   // copies the registers and the stack
 *     ... resume the thread ...
 *     r = native_unwind(n);                                // fills n->stack; NATIVE_CHANGED: capture again
 */
#ifndef SAMPLE_NATIVE_H
#define SAMPLE_NATIVE_H

#include "python/python.h"
#include "sample/native_names.h"
#include "unwind/unwind.h"

struct native {
    struct sampler *sampler;
    const struct files *files;
    const struct core_file *core; /* NULL: a live process */
    struct mem *mem;
    pid_t pid;
    struct unwind *unwind;
    struct native_names names;
    uint64_t updated_ns;         /* when the maps were last read */
    uint64_t no_update_until_ns; /* a stack that ends early does not cause an update before then */
    addr_t main_stack_end;       /* end of the main thread's stack */
    struct regs regs;
    struct stack_copy copy;
    unsigned char *bytes;
    size_t cap_bytes;
    uint64_t captured_ns;
    bool captured; /* there is a stack to unwind */
    struct native_stack stack;
    uint64_t key; /* equal for stacks with the same functions and lines */
};

/* Prepares for one process and reads its maps. 0 or an error. */
int native_open(struct native *n, struct sampler *s, pid_t pid, const struct files *files, struct mem *mem,
                const struct core_file *core, const struct python *py);
void native_close(struct native *n);

/* Reads the symbols that nearly every stack needs: those of the interpreter and the C library. */
void native_warm_up(struct native *n);

/* Copies the registers and up to `limit` bytes of the stack. `fs_base` is the FS register: with glibc and musl it
 * points just above the stack of every thread but the main thread. */
void native_capture(struct native *n, const struct regs *regs, uint64_t fs_base, bool is_main, size_t limit);

/* 0 or ERR_NOMEM. A stack that cannot be unwound to its end is kept as far as it goes. NATIVE_CHANGED: a library was
 * loaded or unloaded in the meantime, so the names may be wrong: capture the stack again. NATIVE_LATE: it took so long
 * that this may have happened unnoticed. */
#define NATIVE_CHANGED 1
#define NATIVE_LATE    2
int native_unwind(struct native *n);

/* Discards the unwound stack. */
void native_clear(struct native *n);

/* The functions at frame `i`, set by native_unwind. */
const struct native_chain *native_frame_names(const struct native *n, size_t i);

/* The word at `addr`. False when it is not in the copy of the stack. */
bool native_word(const struct native *n, addr_t addr, uint64_t *ret);

#endif
