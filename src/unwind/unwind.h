/*
 * Unwinds a thread: registers and a copy of its stack in, native frames out, innermost first. The thread may keep
 * running meanwhile, because everything that changes was copied.
 *
 *     unwind_update(u, mem, maps, &changed);
 *     unwind_stack(u, mem, &regs, &copy, &stack);
 *     for (size_t i = 0; i < stack.n; i++)
 *         printf("%" PRIx64 "\n", stack.items[i].pc_entry->pc);
 */
#ifndef UNWIND_UNWIND_H
#define UNWIND_UNWIND_H

#include "target/regs.h"
#include "unwind/cpu.h"
#include "unwind/module_identity.h"
#include "unwind/modules.h"

struct unwind;

/* A copy of the used part of a thread's stack. */
struct stack_copy {
    addr_t addr; /* of bytes[0] in the target */
    const unsigned char *bytes;
    size_t len;
    struct mem
        *fallback; /* read for addresses outside the copy; NULL if the target is running, since memory may change */
};

/* What is known about one pc: its module, its unwind row, and the caller's data. Cached, so each pc is looked up
 * once. */
struct pc_entry {
    addr_t pc; /* for a frame that made a call: inside the call instruction, not the return address */
    struct module *module;
    bool has_row;
    struct cfi_row row;
    const struct cfi_section *section; /* holds the DWARF expressions of `row` */
    addr_t function;                   /* for generated code: start of the function; 0 if unknown */
    bool code_was_read;                /* for generated code without a row: has_frame_pointer is set */
    bool has_frame_pointer;
    const void *user; /* for the caller; initially NULL */
};

struct native_frame {
    struct pc_entry *pc_entry;        /* valid until the next unwind_update or unwind_stack */
    addr_t sp, cfa;                   /* the bounds of the frame */
    uint64_t saved[CPU_CALLEE_SAVED]; /* values of the callee-saved registers in this frame; 0 if unknown */
    uint32_t known;                   /* bit i is set if saved[i] is known */
};

struct native_stack {
    struct native_frame *items;
    size_t n, cap;
    bool complete;   /* reached the outermost frame of the thread */
    bool unknown_pc; /* met a pc outside all modules: the memory map may have changed */
};

struct unwind *unwind_new(void);              /* NULL if out of memory */
struct unwind *unwind_free(struct unwind *u); /* accepts NULL, returns NULL */

/* Sets the function that frees module->user. */
void unwind_set_free(struct unwind *u, void (*free_user)(void *user));

/* Sets where to look for unwind tables that are not in memory. */
void unwind_set_files(struct unwind *u, const struct module_files *files);

/* Updates the list of modules. Call it before the first unwind_stack and whenever the memory map may have changed. Sets
 * `*ret_changed` if modules came or went. Clears pc_entry->user for code that is not in an ELF file. Returns 0 or
 * ERR_NOMEM. */
int unwind_update(struct unwind *u, struct mem *m, const struct proc_maps *maps, bool *ret_changed);

/* Unwinds as far as possible. Reads only unwind tables and code from `m`. Returns 0, also for an incomplete stack, or
 * ERR_NOMEM. */
int unwind_stack(struct unwind *u, struct mem *m, const struct regs *regs, const struct stack_copy *copy,
                 struct native_stack *ret);
void native_stack_free(struct native_stack *s);

/*
 * Another library can be mapped at the address of one that was unloaded. To notice, read the spans of
 * unwind_identity_spans (at most MODULE_IDENTITY_MAX) together with the stack, then pass how many of them could be read
 * to unwind_identity_check.
 */
size_t unwind_identity_spans(struct unwind *u, struct mem_span *spans);
void unwind_identity_check(struct unwind *u, size_t n);

/* True if the identity of every module in the stack was read together with the stack, or if there are too many modules
 * to do that. If false, the modules are added to the spans, so the next sample can be confirmed. */
bool unwind_is_confirmed(struct unwind *u, const struct native_stack *s);

/* True if the modules of the stack have not changed in memory since they were found, so their symbols and unwind tables
 * apply to this stack. `*ret_reused` is set if one of them shares its address with a module seen earlier. */
bool unwind_modules_unchanged(struct unwind *u, struct mem *m, const struct native_stack *s, bool *ret_reused);

const struct modules *unwind_modules(const struct unwind *u);

#endif
