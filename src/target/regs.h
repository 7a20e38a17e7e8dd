/*
 * A thread's registers, by the numbers that DWARF gives them (System V ABI, AMD64 supplement, figure 3.36).
 */
#ifndef TARGET_REGS_H
#define TARGET_REGS_H

#include <stdint.h>

enum reg {
    REG_AX,
    REG_DX,
    REG_CX,
    REG_BX,
    REG_SI,
    REG_DI,
    REG_BP,
    REG_SP,
    REG_R8,
    REG_R15 = REG_R8 + 7,
    REG_PC,
    REG_N_,
};

struct regs {
    uint64_t r[REG_N_];
};

#endif
