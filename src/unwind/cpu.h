/*
 * The CPU-specific part of unwinding. One .c file per CPU.
 */
#ifndef UNWIND_CPU_H
#define UNWIND_CPU_H

#include "target/mem.h"
#include "unwind/cfi_expr.h"

#include <stddef.h>

/* True for callee-saved registers and the return address. */
bool cpu_is_callee_saved(unsigned reg);

/* DWARF number of the i-th callee-saved register, without the stack pointer and the return address. */
#define CPU_CALLEE_SAVED 6
unsigned cpu_callee_saved_reg(size_t i);

/* Restores all registers from the frame that the kernel pushed for a signal handler. Returns 0 or ERR_READ. */
int cpu_unwind_signal_frame(struct cfi_expr_env *env);

/* What the heuristics below need to check that a word is a return address. */
struct cpu_guess {
    bool (*is_code)(void *arg, uint64_t pc);
    bool (*is_signal_return)(void *arg,
                             uint64_t pc); /* the trampoline a signal handler returns to; no call precedes it */
    void *arg;
    struct mem *mem;
};

/* True if `pc` follows a call instruction, or is the trampoline that a signal handler returns to. */
bool cpu_is_return_address(const struct cpu_guess *g, uint64_t pc);

/* Steps to the caller of a function that has set up a frame pointer. Returns ERR_READ if no return address is there. */
int cpu_follow_frame_pointer(const struct cpu_guess *g, struct cfi_expr_env *env, uint64_t *ret_cfa);

/* Finds the caller of a function of a program or library without unwind tables: by the frame pointer, else by the
 * nearest word on the stack that looks like a return address. Returns 0 or ERR_READ, which it also does if the register of the
 * frame pointer is not known. */
int cpu_guess_caller(const struct cpu_guess *g, struct cfi_expr_env *env, uint64_t *ret_cfa);

/* Finds the caller of generated code without unwind tables, at the start or the end of a function: there the
 * instructions show where the return address is. Returns 0 or ERR_READ. */
int cpu_unwind_generated_code(const struct cpu_guess *g, struct cfi_expr_env *env, bool pc_is_exact, uint64_t *ret_cfa);

/* Finds the caller of generated code in the function that starts at `start`, by what the prologue pushes and reserves.
 * Returns 0 or ERR_READ. */
int cpu_unwind_by_prologue(const struct cpu_guess *g, struct cfi_expr_env *env, uint64_t start, bool pc_is_exact,
                           uint64_t *ret_cfa);

/* Computes the frame pointer of a function whose row is based on it, from what its first instructions do to the stack pointer,
 * and makes it known. For a register set that lacks it. Returns 0, or ERR_READ unless a return address is where it must be. */
int cpu_find_frame_pointer(const struct cpu_guess *g, struct cfi_expr_env *env, const struct cfi_row *row);

/* True if the instructions before `pc` set up a frame pointer. */
bool cpu_has_frame_pointer(struct mem *m, uint64_t pc);

/* Unwinds a call through a bad function pointer (NULL, for example): the call pushed its return address and did nothing
 * else. Returns 0 or ERR_READ. */
int cpu_unwind_bad_call(const struct cpu_guess *g, struct cfi_expr_env *env);

#endif
