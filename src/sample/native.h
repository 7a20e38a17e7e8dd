/*
 * The native stack of a thread: captured while the thread stands still, unwound and named afterwards.
 *
 *     native_capture(n, &regs, base, limit);   // registers and the used stack, in one go
 *     …let the thread go…
 *     native_unwind(n);                        // n's stack and its names; again if it says so
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
    uint64_t updated_ns;         /* when the maps were last looked at */
    uint64_t no_update_until_ns; /* until then they are not looked at because of a stack that is cut off */
    addr_t main_stack_end;       /* of the main thread */
    struct regs regs;
    struct stack_copy copy;
    unsigned char *bytes;
    size_t cap_bytes;
    uint64_t captured_ns;
    bool captured; /* there is something to unwind */
    struct native_stack stack;
    uint64_t key; /* equal for stacks that read the same */
};

/* For one process. Opens what it needs; 0 or an error. */
int native_open(struct native *n, struct sampler *s, pid_t pid, const struct files *files, struct mem *mem,
                const struct core_file *core, const struct python *py);
void native_close(struct native *n);

/* Copies the stack from its pointer on, `limit` bytes at most. `base` is the thread's FS register: with glibc and musl
 * it points just above the stack of all threads but the first. */
void native_capture(struct native *n, const struct regs *regs, uint64_t fs_base, bool is_main, size_t limit);

/* 0 or ERR_NOMEM. A stack that cannot be followed to its end is kept as far as it goes. NATIVE_CHANGED: a library was
 * loaded or unloaded meanwhile, so that the names may be wrong: it must be captured again. NATIVE_LATE: it took so long that
 * this may have happened unseen. */
#define NATIVE_CHANGED 1
#define NATIVE_LATE    2
int native_unwind(struct native *n);

/* As if nothing could be unwound. */
void native_clear(struct native *n);

/* What frame `i` of the stack is called. */
const struct native_chain *native_frame_names(const struct native *n, size_t i);

/* The word at `addr`, if it is in the copy of the stack. */
bool native_word(const struct native *n, addr_t addr, uint64_t *ret);

#endif
