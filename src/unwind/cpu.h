/*
 * What differs from one CPU to the next.
 */
#ifndef UNWIND_CPU_H
#define UNWIND_CPU_H

#include "target/mem.h"
#include "unwind/cfi_expr.h"

#include <stddef.h>

/* True for registers that a function leaves as they were, or saves, and the return address. */
bool cpu_is_saved(unsigned reg);

/* The registers among them that hold values: the number of each. */
#define CPU_SAVED 6
unsigned cpu_saved_reg(size_t i);

/* Behind the frame that the kernel made for a signal handler: all registers as they were. ERR_READ. */
int cpu_signal_frame(struct cfi_expr_env *env);

/* Who called, where no table says: by the frame pointer, else by what looks like a return address close by. */
struct cpu_guess {
    bool (*is_code)(void *arg, uint64_t pc);
    bool (*ends_signal)(void *arg, uint64_t pc); /* where a signal handler returns to: it was not called */
    void *arg;
    struct mem *mem;
};

/* From the first instruction of a function that is not there to who called it. ERR_READ: nobody did. */
int cpu_leave_nowhere(const struct cpu_guess *g, struct cfi_expr_env *env);

int cpu_guess_caller(const struct cpu_guess *g, struct cfi_expr_env *env, uint64_t *ret_cfa);

#endif
