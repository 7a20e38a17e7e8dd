/*
 * DWARF's small stack machine, as far as unwind tables use it (DWARF 5, 2.5).
 */
#ifndef UNWIND_CFI_EXPR_H
#define UNWIND_CFI_EXPR_H

#include "unwind/cfi.h"

struct cfi_expr_env {
    uint64_t regs[CFI_REGS];
    uint32_t known; /* bit by register */
    /* A word of the target: 0 or an error. */
    int (*read)(void *arg, uint64_t addr, uint64_t *ret);
    void *arg;
};

/* Evaluates the expression of `rule`, beginning with `first` on the stack. ERR_READ when it cannot be told. */
int cfi_expr_eval(const struct cfi_section *s, const struct cfi_rule *rule, const struct cfi_expr_env *env,
                  const uint64_t *first, uint64_t *ret);

#endif
