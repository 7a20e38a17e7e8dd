/*
 * Copies the registers and the stack of a paused thread, then unwinds and symbolizes the copy.
 */
#include "sample/native.h"

#include "base/clock.h"
#include "base/grow.h"
#include "base/hash.h"
#include "sample/hidden_functions.h"
#include "target/core_file.h"
#include "target/files.h"
#include "target/proc.h"

#include <stdlib.h>
#include <string.h>

#define UPDATE_NS         NS_PER_S          /* libraries can be loaded or unloaded */
#define UPDATE_BACKOFF_NS (20 * NS_PER_MS)  /* after an update that did not help to unwind a stack */
#define RELOAD_NS         (500 * NS_PER_US) /* replacing a library with another and back takes longer */
#define LATE_NS           (10 * NS_PER_MS)  /* longer when symbols were read from files */
#define UPDATE_TRIES      4
#define BELOW_SP          128 /* CFI finds saved registers below SP when a function has popped its frame */
#define MAX_STACK         ((uint64_t)1 << 30)
#define UNKNOWN_STACK     ((size_t)64 * 1024) /* how much to copy of a stack with an unknown end */

static int update_modules_once(struct native *n, bool *ret_changed)
{
    const struct modules *ms = unwind_modules(n->unwind);
    struct proc_maps maps;
    int r = n->core ? core_file_maps(n->core, &maps) : proc_maps_read(n->pid, &maps);

    *ret_changed = false;
    if (r < 0)
        return r;
    mem_set_maps(n->mem, &maps);
    n->stack.n = 0; /* its places may be freed */
    for (size_t i = 0; i < maps.n; i++)
        if (strcmp(maps.items[i].path, "[stack]") == 0)
            n->main_stack_end = maps.items[i].end;
    r = unwind_update(n->unwind, n->mem, &maps, ret_changed);
    for (size_t i = 0; i < ms->n; i++) /* the interpreter and the C library are never unloaded */
        ms->items[i]->never_unloaded =
            ms->items[i]->start == n->names.interpreter || hidden_functions_is_libc(ms->items[i]->path);
    proc_maps_free(&maps);
    return r;
}

/* The maps and the memory they describe are not read at the same instant. Repeat until nothing changes. */
static int update_modules(struct native *n)
{
    bool changed = true;
    int r = 0;

    for (int i = 0; i < UPDATE_TRIES && changed && r == 0; i++)
        r = update_modules_once(n, &changed);
    n->updated_ns = clock_now_ns();
    return r;
}

static pid_t inner_pid(const struct native *n)
{
    struct proc_status st;

    return !n->core && proc_status_read(n->pid, 0, &st) == 0 && st.ns_pid > 0 ? st.ns_pid : n->pid;
}

int native_open(struct native *n, struct sampler *s, pid_t pid, const struct files *files, struct mem *mem,
                const struct core_file *core, const struct python *py)
{
    *n = (struct native){.sampler = s, .pid = pid, .files = files, .mem = mem, .core = core};
    n->names = (struct native_names){.sampler = s, .files = files, .pid = core ? 0 : pid, .mem = mem};
    n->names.inner_pid = inner_pid(n);
    n->names.interpreter = py->image;
    n->names.is_python2 = py->major == 2;
    n->names.show_hidden = s->options.native_all;
    n->unwind = unwind_new();
    if (!n->unwind)
        return ERR_NOMEM;
    unwind_set_free(n->unwind, native_files_close_module);
    unwind_set_files(n->unwind, &(struct module_files){.find_eh_frame = native_files_find_eh_frame,
                                                       .read_debug_frame = native_files_read_debug_frame,
                                                       .find_symbol = native_files_find_symbol,
                                                       .arg = &n->names});
    return update_modules(n);
}

void native_warm_up(struct native *n)
{
    const struct modules *ms = unwind_modules(n->unwind);

    for (size_t i = 0; i < ms->n; i++)
        if (ms->items[i]->never_unloaded)
            native_names_warm_up(&n->names, ms->items[i]);
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

/* The number of bytes from `sp` to the end of the stack; 0 when the end is unknown. */
static uint64_t stack_size(const struct native *n, uint64_t sp, uint64_t fs_base, bool is_main)
{
    const struct core_segment *s = n->core ? core_file_segment(n->core, sp) : NULL;

    if (s && s->end - sp < MAX_STACK)
        return s->end - sp;
    if (is_main && n->main_stack_end > sp && n->main_stack_end - sp < MAX_STACK)
        return n->main_stack_end - sp;
    if (fs_base > sp && fs_base - sp < MAX_STACK)
        return fs_base - sp;
    return 0;
}

/* Reads the stack and the module identities in one call. False when `want` is 0 or the stack cannot be read as a
 * whole; then it reads the identities only. */
static bool copy_stack(struct native *n, uint64_t sp, size_t want)
{
    struct mem_span spans[1 + MODULE_IDENTITY_MAX] = {{sp, n->bytes, want}};
    size_t n_identities = unwind_identity_spans(n->unwind, spans + 1),
           got = want ? mem_readv(n->mem, spans, 1 + n_identities) : 0;

    unwind_identity_check(n->unwind, got ? got - 1 : mem_readv(n->mem, spans + 1, n_identities));
    return got > 0;
}

/* Reads page by page, up to the first page that cannot be read. Returns the number of bytes. */
static size_t copy_pages(struct native *n, uint64_t sp, size_t want)
{
    struct mem_span spans[UNKNOWN_STACK / 4096 + 1];
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

void native_capture(struct native *n, const struct regs *regs, uint64_t fs_base, bool is_main, size_t limit)
{
    uint64_t sp = regs->r[REGS_SP] - BELOW_SP, size = stack_size(n, sp, fs_base, is_main);
    size_t want = size && size < limit ? (size_t)size : limit;

    n->captured = false;
    n->regs = *regs;
    if (!size && want > UNKNOWN_STACK)
        want = UNKNOWN_STACK;
    if (grow_array((void **)&n->bytes, &n->cap_bytes, want + 8, 1) < 0)
        return;
    if (!copy_stack(n, sp, size ? want : 0))
        want = copy_pages(n, sp, want < UNKNOWN_STACK ? want : UNKNOWN_STACK);
    n->copy = (struct stack_copy){.addr = sp, .bytes = n->bytes, .len = want, .fallback = n->core ? n->mem : NULL};
    n->captured = true;
    n->captured_ns = clock_now_ns();
}

static bool is_greenlet_start(const struct native_chain *chain)
{
    for (size_t i = 0; i < chain->n; i++)
        if (chain->items[i].is_greenlet_start)
            return true;
    return false;
}

/* The first frame from `i` on that is in greenlet's module, or is not. */
static size_t skip_frames(const struct native_stack *s, size_t i, bool in_greenlet)
{
    while (i < s->n && hidden_functions_is_greenlet(s->items[i].pc_entry->module->path) == in_greenlet)
        i++;
    return i;
}

/* For a greenlet module without symbols: the end of the greenlet functions that called something else; 0: there are none.
 * The innermost frames do not count: they may switch to another greenlet. */
static size_t greenlet_call_end(const struct native_stack *s)
{
    size_t call = skip_frames(s, skip_frames(s, 0, true), false);

    return call < s->n ? skip_frames(s, call, true) : 0;
}

/*
 * All greenlets of a thread share its C stack: greenlet copies the part of one that is switched out to the heap. The
 * stack of a greenlet ends where greenlet called its function. The bytes beyond belong to other greenlets and are not
 * part of this stack.
 */
static int end_at_greenlet(struct native *n)
{
    struct native_stack *s = &n->stack;
    size_t end = 0;

    for (size_t i = 0; i < s->n && !end; i++) {
        const struct native_chain *chain;

        if (!hidden_functions_is_greenlet(s->items[i].pc_entry->module->path))
            continue;
        chain = native_names_of(&n->names, s->items[i].pc_entry);
        if (!chain)
            return ERR_NOMEM;
        end = is_greenlet_start(chain) ? i + 1 : 0;
    }
    if (!end && !s->complete)
        end = greenlet_call_end(s);
    if (end) {
        s->n = end;
        s->complete = true;
        s->unknown_pc = false;
    }
    return 0;
}

static int unwind_once(struct native *n)
{
    int r = unwind_stack(n->unwind, n->mem, &n->regs, &n->copy, &n->stack);

    return r == 0 ? end_at_greenlet(n) : r;
}

/* If the stack could not be unwound to its end, updates the modules and tries once more. */
static int unwind_captured(struct native *n)
{
    uint64_t now = clock_now_ns();
    int r = !n->core && now - n->updated_ns > UPDATE_NS ? update_modules(n) : 0;

    if (r == ERR_NOMEM)
        return r;
    r = unwind_once(n);
    if (r < 0 || (n->stack.complete && !n->stack.unknown_pc) || n->core || now < n->no_update_until_ns)
        return r;
    if (update_modules(n) == ERR_NOMEM)
        return ERR_NOMEM;
    r = unwind_once(n);
    if (!n->stack.complete || n->stack.unknown_pc) /* the update did not help */
        n->no_update_until_ns = now + UPDATE_BACKOFF_NS;
    return r;
}

static int name_frames(struct native *n)
{
    int r = native_names_resolve(&n->names, &n->stack);

    for (size_t i = 0; i < n->stack.n && r == 0; i++)
        n->key = hash_mix(n->key, native_frame_names(n, i)->hash);
    return r;
}

void native_clear(struct native *n)
{
    n->stack.n = 0;
    n->stack.complete = false;
    n->key = 0;
}

int native_unwind(struct native *n)
{
    uint64_t elapsed;
    bool shares;
    int r;

    native_clear(n);
    if (!n->captured)
        return 0;
    r = unwind_captured(n);
    if (r == 0)
        r = name_frames(n);
    if (r < 0 || n->core)
        return r;
    if (!unwind_modules_unchanged(n->unwind, n->mem, &n->stack, &shares))
        return update_modules(n) == ERR_NOMEM ? ERR_NOMEM : NATIVE_CHANGED;
    if (!unwind_is_confirmed(n->unwind, &n->stack))
        return NATIVE_CHANGED;
    elapsed = clock_now_ns() - n->captured_ns;
    return shares && elapsed > RELOAD_NS ? NATIVE_CHANGED : elapsed > LATE_NS ? NATIVE_LATE : 0;
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
