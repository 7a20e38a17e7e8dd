/*
 * Registers and stack of a held thread -> named native frames. Called by stack.c (capture) and process.c (the rest).
 */
#include "sample/native.h"

#include "base/clock.h"
#include "base/grow.h"
#include "base/hash.h"
#include "sample/hidden_functions.h"
#include "target/core_file.h"
#include "target/files.h"
#include "target/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UPDATE_NS    NS_PER_S          /* libraries come and go */
#define HURRY_NS     (20 * NS_PER_MS)  /* when an address is in none of those known */
#define TURN_NS      (500 * NS_PER_US) /* a library is not unloaded, replaced and loaded again in less */
#define LATE_NS      (10 * NS_PER_MS)  /* names were read from files */
#define UPDATE_TRIES 4
#define BELOW        128 /* a function that returns has left its frame, but its saved registers are looked for there */
#define MAX_STACK    ((uint64_t)1 << 30)
#define OTHER_STACK  ((size_t)64 * 1024) /* of a stack of which nothing is known */

static int read_maps(const struct native *n, struct proc_maps *ret)
{
    return n->core ? core_file_maps(n->core, ret) : proc_maps_read(n->pid, ret);
}

/* The interpreter and the C library stay. */
static void mark_fixed(const struct native *n)
{
    const struct modules *ms = unwind_modules(n->unwind);

    for (size_t i = 0; i < ms->n; i++)
        ms->items[i]->never_unloaded =
            ms->items[i]->start == n->names.interpreter || hidden_functions_is_libc(ms->items[i]->path);
}

static int update_once(struct native *n, bool *ret_changed)
{
    struct proc_maps maps;
    int r = read_maps(n, &maps);

    *ret_changed = false;
    if (r < 0)
        return r;
    n->stack.n = 0; /* its places may go */
    for (size_t i = 0; i < maps.n; i++)
        if (strcmp(maps.items[i].path, "[stack]") == 0)
            n->main_stack_end = maps.items[i].end;
    r = unwind_update(n->unwind, n->mem, &maps, ret_changed);
    mark_fixed(n);
    proc_maps_free(&maps);
    return r;
}

/* The maps and what is in memory there are not read at one instant: until nothing changes. */
static int update(struct native *n)
{
    bool changed = true;
    int r = 0;

    for (int i = 0; i < UPDATE_TRIES && changed && r == 0; i++)
        r = update_once(n, &changed);
    n->updated_ns = clock_now_ns();
    return r;
}

static int open_root(const struct native *n)
{
    char path[64];

    if (n->core)
        return n->files->root;
    snprintf(path, sizeof(path), "/proc/%d/root", (int)n->pid);
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static pid_t inner_pid(const struct native *n)
{
    struct proc_status st;

    return !n->core && proc_status_read(n->pid, 0, &st) == 0 && st.ns_pid > 0 ? st.ns_pid : n->pid;
}

int native_open(struct native *n, struct sampler *s, pid_t pid, const struct files *files, struct mem *mem,
                const struct core_file *core, const struct python *py)
{
    struct module_files files_of_modules;

    *n = (struct native){.sampler = s, .pid = pid, .files = files, .mem = mem, .core = core};
    n->names = (struct native_names){.sampler = s, .files = files, .pid = core ? 0 : pid, .mem = mem};
    n->names.root_fd = open_root(n);
    n->names.inner_pid = inner_pid(n);
    n->names.interpreter = py->image;
    n->names.is_python2 = py->major == 2;
    n->names.all = s->options.native_all;
    n->unwind = unwind_new();
    if (!n->unwind)
        return ERR_NOMEM;
    unwind_set_free(n->unwind, native_names_free_module);
    files_of_modules = (struct module_files){native_names_open_module, &n->names, n->names.root_fd};
    unwind_set_files(n->unwind, &files_of_modules);
    return update(n);
}

void native_close(struct native *n)
{
    if (!n->sampler)
        return;
    unwind_free(n->unwind);
    native_names_close(&n->names);
    native_stack_free(&n->stack);
    free(n->bytes);
    *n = (struct native){0};
}

/* What is known of where the stack ends: 0 when nothing is. */
static uint64_t stack_size(const struct native *n, uint64_t sp, uint64_t base, bool is_main)
{
    const struct core_segment *s = n->core ? core_file_segment(n->core, sp) : NULL;

    if (s && s->end - sp < MAX_STACK)
        return s->end - sp;
    if (is_main && n->main_stack_end > sp && n->main_stack_end - sp < MAX_STACK)
        return n->main_stack_end - sp;
    if (base > sp && base - sp < MAX_STACK)
        return base - sp;
    return 0;
}

/* What tells which libraries are there, and with it the stack, in one go. Without a length, or where it cannot be read as
 * a whole, only the first; then it is false. */
static bool copy_stack(struct native *n, uint64_t sp, size_t want)
{
    struct mem_span spans[1 + MODULE_IDENTITY_MAX] = {{sp, n->bytes, want}};
    size_t n_marks = unwind_identity_spans(n->unwind, spans + 1),
           got = want ? mem_readv(n->mem, spans, 1 + n_marks) : 0;

    unwind_identity_check(n->unwind, got ? got - 1 : mem_readv(n->mem, spans + 1, n_marks));
    return got > 0;
}

/* Page after page, up to where there is no more. */
static size_t copy_pages(struct native *n, uint64_t sp, size_t want)
{
    struct mem_span spans[OTHER_STACK / 4096 + 1];
    size_t n_spans = 0, at = 0, got;

    while (at < want && n_spans < sizeof(spans) / sizeof(spans[0])) {
        size_t len = 4096 - ((sp + at) & 4095);

        if (len > want - at)
            len = want - at;
        spans[n_spans++] = (struct mem_span){sp + at, n->bytes + at, len};
        at += len;
    }
    got = mem_readv(n->mem, spans, n_spans);
    for (at = 0; got > 0; got--)
        at += spans[got - 1].len;
    return at;
}

void native_capture(struct native *n, const struct regs *regs, uint64_t base, bool is_main, size_t limit)
{
    uint64_t sp = regs->r[REGS_SP] - BELOW, size = stack_size(n, sp, base, is_main);
    size_t want = size && size < limit ? (size_t)size : limit;

    n->captured = false;
    n->regs = *regs;
    if (!size && want > OTHER_STACK)
        want = OTHER_STACK;
    if (grow_array((void **)&n->bytes, &n->cap_bytes, want + 8, 1) < 0)
        return;
    if (!copy_stack(n, sp, size ? want : 0))
        want = copy_pages(n, sp, want < OTHER_STACK ? want : OTHER_STACK);
    n->copy = (struct stack_copy){.addr = sp, .bytes = n->bytes, .len = want, .fallback = n->core ? n->mem : NULL};
    n->captured = true;
    n->captured_ns = clock_now_ns();
}

/* Again with new maps when the old ones may be the reason that it did not get to the end. */
static int walk(struct native *n)
{
    uint64_t now = clock_now_ns();
    int r = !n->core && now - n->updated_ns > UPDATE_NS ? update(n) : 0;

    if (r == ERR_NOMEM)
        return r;
    r = unwind_stack(n->unwind, n->mem, &n->regs, &n->copy, &n->stack);
    if (r < 0 || (n->stack.complete && !n->stack.unknown_pc) || n->core || now < n->hurry_ns)
        return r;
    if (update(n) == ERR_NOMEM)
        return ERR_NOMEM;
    r = unwind_stack(n->unwind, n->mem, &n->regs, &n->copy, &n->stack);
    if (!n->stack.complete || n->stack.unknown_pc) /* they were not */
        n->hurry_ns = now + HURRY_NS;
    return r;
}

static int name_frames(struct native *n)
{
    for (size_t i = 0; i < n->stack.n; i++) {
        const struct native_chain *chain = native_names_of(&n->names, n->stack.items[i].pc_entry);

        if (!chain)
            return ERR_NOMEM;
        n->key = hash_mix(n->key, chain->hash);
    }
    return 0;
}

void native_forget(struct native *n)
{
    n->stack.n = 0;
    n->stack.complete = false;
    n->key = 0;
}

int native_unwind(struct native *n)
{
    uint64_t passed;
    bool shares;
    int r;

    native_forget(n);
    if (!n->captured)
        return 0;
    r = walk(n);
    if (r == 0)
        r = name_frames(n);
    if (r < 0 || n->core)
        return r;
    if (!unwind_modules_unchanged(n->unwind, n->mem, &n->stack, &shares))
        return update(n) == ERR_NOMEM ? ERR_NOMEM : NATIVE_CHANGED;
    if (!unwind_is_confirmed(n->unwind, &n->stack))
        return NATIVE_CHANGED;
    passed = clock_now_ns() - n->captured_ns;
    return shares && passed > TURN_NS ? NATIVE_CHANGED : passed > LATE_NS ? NATIVE_LATE : 0;
}

const struct native_chain *native_frame_names(const struct native *n, size_t i)
{
    return n->stack.items[i].pc_entry->user;
}

bool native_word(const struct native *n, addr_t addr, uint64_t *ret)
{
    if (addr < n->copy.addr || n->copy.len < 8 || addr - n->copy.addr > n->copy.len - 8)
        return false;
    memcpy(ret, n->copy.bytes + (addr - n->copy.addr), sizeof(*ret));
    return true;
}
