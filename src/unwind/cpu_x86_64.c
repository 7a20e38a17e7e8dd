/*
 * x86-64: signal frames (arch/x86/include/uapi/asm/sigcontext.h in Linux), frame pointers and call instructions.
 */
#include "base/err.h"
#include "target/regs.h"
#include "unwind/cpu.h"

#include <string.h>

#define UCONTEXT_GREGS 40 /* offset of uc_mcontext in struct ucontext */
#define SCAN_WORDS     24 /* words searched for a return address */

bool cpu_is_callee_saved(unsigned reg)
{
    return reg == REGS_BX || reg == REGS_BP || (reg >= REGS_R8 + 4 && reg <= REGS_R15) || reg == REGS_PC;
}

unsigned cpu_callee_saved_reg(size_t i)
{
    static const uint8_t regs[CPU_CALLEE_SAVED] = {REGS_BX, REGS_BP, REGS_R8 + 4, REGS_R8 + 5, REGS_R8 + 6, REGS_R15};

    return regs[i];
}

/* The stack pointer points to the ucontext: returning from the handler has popped the return address. */
int cpu_unwind_signal_frame(struct cfi_expr_env *env)
{
    static const uint8_t order[] = {8,       9,       10,      11,      12,      13,      14,      15,     REGS_DI,
                                    REGS_SI, REGS_BP, REGS_BX, REGS_DX, REGS_AX, REGS_CX, REGS_SP, REGS_PC};
    uint64_t at = env->regs[REGS_SP] + UCONTEXT_GREGS, regs[REGS_N_];

    for (size_t i = 0; i < sizeof(order); i++)
        if (env->read_word(env->arg, at + 8 * i, &regs[order[i]]) < 0)
            return ERR_READ;
    memcpy(env->regs, regs, sizeof(regs));
    env->known = (1u << CFI_REGS) - 1;
    return 0;
}

/* True if a call instruction ends at `pc`. */
static bool is_after_call(struct mem *m, uint64_t pc)
{
    unsigned char b[8];

    if (pc < 8 || mem_read(m, pc - 8, b, sizeof(b)) < 0)
        return false;
    return b[3] == 0xe8 ||                            /* call rel32 */
           (b[6] == 0xff && (b[7] & 0x38) == 0x10) || /* call *reg, *(reg) */
           (b[5] == 0xff && (b[6] & 0x38) == 0x10) || /* call *disp8(reg), *(base, index) */
           (b[4] == 0xff && (b[5] & 0x38) == 0x10) || /* call *disp8(base, index) */
           (b[2] == 0xff && (b[3] & 0x38) == 0x10) || /* call *disp32(reg), *rel32(%rip) */
           (b[1] == 0xff && (b[2] & 0x38) == 0x10);   /* call *disp32(base, index) */
}

bool cpu_is_return_address(const struct cpu_guess *g, uint64_t pc)
{
    return pc && g->is_code(g->arg, pc - 1) && (is_after_call(g->mem, pc) || g->is_signal_return(g->arg, pc));
}

static int set_caller(struct cfi_expr_env *env, uint64_t pc, uint64_t cfa, uint64_t *ret_cfa)
{
    env->regs[REGS_PC] = pc;
    env->regs[REGS_SP] = cfa;
    env->known = (env->known | 1u << REGS_PC | 1u << REGS_SP) & ~(1u << REGS_BX);
    *ret_cfa = cfa;
    return 0;
}

int cpu_follow_frame_pointer(const struct cpu_guess *g, struct cfi_expr_env *env, uint64_t *ret_cfa)
{
    uint64_t bp = env->regs[REGS_BP], saved, pc;

    if (!(env->known >> REGS_BP & 1) || bp < env->regs[REGS_SP] || bp & 7 || env->read_word(env->arg, bp, &saved) < 0 ||
        env->read_word(env->arg, bp + 8, &pc) < 0 || !cpu_is_return_address(g, pc))
        return ERR_READ;
    env->regs[REGS_BP] = saved;
    return set_caller(env, pc, bp + 16, ret_cfa);
}

int cpu_guess_caller(const struct cpu_guess *g, struct cfi_expr_env *env, uint64_t *ret_cfa)
{
    uint64_t sp = env->regs[REGS_SP], pc;

    if (cpu_follow_frame_pointer(g, env, ret_cfa) == 0)
        return 0;
    if (!(env->known >> REGS_BP &
          1)) /* there may be a frame pointer: the search could find the return address of an old call */
        return ERR_READ;
    /* In a stub or without frame pointers, the return address is at the top of the stack or a few words above. */
    for (uint64_t i = 0; i < SCAN_WORDS; i++)
        if (env->read_word(env->arg, sp + 8 * i, &pc) == 0 && cpu_is_return_address(g, pc))
            return set_caller(env, pc, sp + 8 * i + 8, ret_cfa);
    return ERR_READ;
}

int cpu_unwind_bad_call(const struct cpu_guess *g, struct cfi_expr_env *env)
{
    uint64_t sp = env->regs[REGS_SP], pc;

    if (env->read_word(env->arg, sp, &pc) < 0 || !cpu_is_return_address(g, pc))
        return ERR_READ;
    env->regs[REGS_PC] = pc;
    env->regs[REGS_SP] = sp + 8;
    return 0;
}
