/*
 * User-space registers of a thread, indexed by DWARF register number (System V ABI, AMD64 supplement,
 * figure 3.36).
 */
#ifndef TARGET_REGS_H
#define TARGET_REGS_H

#include <stdint.h>

enum reg {
    REGS_AX,
    REGS_DX,
    REGS_CX,
    REGS_BX,
    REGS_SI,
    REGS_DI,
    REGS_BP,
    REGS_SP,
    REGS_R8,
    REGS_R15 = REGS_R8 + 7,
    REGS_PC,
    REGS_N_,
};

struct regs {
    uint64_t r[REGS_N_];
    uint32_t unknown; /* bit i is set if r[i] is not known */
};

#endif
