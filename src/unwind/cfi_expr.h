/*
 * Evaluates DWARF expressions, as far as unwind tables use them (DWARF 5, section 2.5).
 */
#ifndef UNWIND_CFI_EXPR_H
#define UNWIND_CFI_EXPR_H

#include "unwind/cfi.h"

struct cfi_expr_env {
    uint64_t regs[CFI_REGS];
    uint32_t known; /* bit r is set if regs[r] is valid */
    /* Reads a word of the target's memory. Returns 0 or an error. */
    int (*read_word)(void *arg, uint64_t addr, uint64_t *ret);
    void *arg;
};

/* Evaluates the expression of `rule`, with `*first` on the stack unless `first` is NULL. Returns 0 or ERR_READ. */
int cfi_expr_eval(const struct cfi_section *s, const struct cfi_rule *rule, const struct cfi_expr_env *env,
                  const uint64_t *first, uint64_t *ret);

#endif
