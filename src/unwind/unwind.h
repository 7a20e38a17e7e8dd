/*
 * Registers and a copy of the stack -> the native frames, innermost first. The thread may run on meanwhile: all that
 * moves was copied.
 *
 *     unwind_update(u, mem, maps);
 *     unwind_stack(u, mem, &regs, &copy, &stack);
 *     for (size_t i = 0; i < stack.n; i++) … stack.items[i].pc …
 */
#ifndef UNWIND_UNWIND_H
#define UNWIND_UNWIND_H

#include "target/regs.h"
#include "unwind/cpu.h"
#include "unwind/module_identity.h"
#include "unwind/modules.h"

struct unwind;

/* The used part of a thread's stack. */
struct stack_copy {
    addr_t at;
    const unsigned char *bytes;
    size_t len;
    struct mem *rest; /* what is elsewhere, if it stands still, too: that of a core file. NULL: nothing else is read */
};

/* An address of code that was met: how to unwind it, and what the caller notes of it. */
struct unwind_place {
    addr_t pc; /* to look up: inside of the call, not behind it */
    struct module *module;
    bool has_row;
    struct cfi_row row;
    const struct cfi_section *section; /* that the expressions of `row` are in */
    const void *user;                  /* the caller's; NULL at first */
};

struct native_frame {
    struct unwind_place *place; /* good until the next unwind_update or unwind_stack */
    addr_t sp, cfa;             /* its part of the stack */
    uint64_t saved[CPU_SAVED];  /* the registers of cpu_saved_reg as it has them; 0: not known */
};

struct native_stack {
    struct native_frame *items;
    size_t n, cap;
    bool whole;   /* it ends where a thread begins */
    bool unknown; /* it met an address that is in no module: the maps may have changed */
};

struct unwind *unwind_new(void);
struct unwind *unwind_free(struct unwind *u); /* accepts NULL, returns NULL */

/* For the caller's `user` of modules. */
void unwind_set_free(struct unwind *u, void (*free_user)(void *user));

/* Where tables are looked for that are not in memory. */
void unwind_set_files(struct unwind *u, const struct module_files *files);

/* Looks at the maps: at first, and again whenever they may have changed. `ret_changed`: modules came or went. `user` of
 * places that are not in an ELF file is NULL again. 0 or ERR_NOMEM. */
int unwind_update(struct unwind *u, struct mem *m, const struct proc_maps *maps, bool *ret_changed);

/* 0 (also when it could not be followed to the end) or ERR_NOMEM. `m` is read for tables only. */
int unwind_stack(struct unwind *u, struct mem *m, const struct regs *regs, const struct stack_copy *copy,
                 struct native_stack *ret);
void native_stack_free(struct native_stack *s);

/*
 * What to read in the same instant as the stack, MODULE_IDENTITY_MAX spans at most, and how many of them could be: for
 * unwind_still, which else can only look later.
 */
size_t unwind_identity_spans(struct unwind *u, struct mem_span *spans);
void unwind_identities_check(struct unwind *u, size_t n);

/* False when one of the stack's modules was not among the marks, so that another one may have been in its place: the next
 * stack tells, since now it is. True as well when there are too many of them. */
bool unwind_is_confirmed(struct unwind *u, const struct native_stack *s);

/* True when the modules of the stack are in memory as they were when they were found: what was unwound after their
 * names and tables were read means the same now. `ret_shares`: one of them takes turns with another at its place. */
bool unwind_still(struct unwind *u, struct mem *m, const struct native_stack *s, bool *ret_shares);

const struct modules *unwind_modules(const struct unwind *u);

#endif
