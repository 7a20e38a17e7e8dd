/*
 * x86-64: finds the caller of generated code that has no unwind tables, from the instructions around the pc. The stack
 * below a caller is full of old return addresses, so nothing here searches the stack: either the instructions prove
 * where the return address is, or the walk ends.
 */
#include "base/err.h"
#include "target/regs.h"
#include "unwind/cpu.h"

#include <string.h>

#define EPILOGUE_BYTES  64 /* of a prologue, too */
#define EPILOGUE_STEPS  16
#define PROLOGUE_SEARCH 8192 /* bytes before the pc */
#define PAGE            4096ull

/* What the instructions up to `ret` do to the registers. */
struct epilogue {
    struct cfi_expr_env env;
    const unsigned char *at, *end;
};

static bool starts_with(const unsigned char *at, const unsigned char *end, const char *bytes, size_t len)
{
    return (size_t)(end - at) >= len && memcmp(at, bytes, len) == 0;
}

#define STARTS_WITH(at, end, bytes) starts_with(at, end, bytes, sizeof(bytes) - 1)

static int64_t signed_byte(const unsigned char *at)
{
    return (int8_t)*at;
}

static int64_t signed_word(const unsigned char *at)
{
    int32_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

/* Sets rsp to `base` plus an offset. The stack shrinks in an epilogue. */
static bool move_sp(struct epilogue *e, unsigned base, int64_t offset, size_t len)
{
    uint64_t sp = e->env.regs[base] + (uint64_t)offset;

    if (!(e->env.known >> base & 1) || sp < e->env.regs[REGS_SP] || (size_t)(e->end - e->at) < len)
        return false;
    e->env.regs[REGS_SP] = sp;
    e->at += len;
    return true;
}

/* The DWARF number of the register that instructions encode as `number`. */
static unsigned dwarf_reg(unsigned number)
{
    static const uint8_t dwarf[] = {REGS_AX, REGS_CX, REGS_DX, REGS_BX, REGS_SP, REGS_BP, REGS_SI, REGS_DI};

    return number < 8 ? dwarf[number] : number;
}

static bool pop(struct epilogue *e, unsigned number, size_t len)
{
    unsigned reg = dwarf_reg(number);

    if (reg == REGS_SP || e->env.read_word(e->env.arg, e->env.regs[REGS_SP], &e->env.regs[reg]) < 0)
        return false;
    e->env.known |= 1u << reg;
    return move_sp(e, REGS_SP, 8, len);
}

/* Executes one instruction, if it is one of those that compilers put before `ret`. */
static bool execute(struct epilogue *e)
{
    const unsigned char *at = e->at, *end = e->end;

    if (end - at < 8)
        return false;
    if (at[0] >= 0x58 && at[0] <= 0x5f)
        return pop(e, at[0] - 0x58u, 1);
    if (at[0] == 0x41 && at[1] >= 0x58 && at[1] <= 0x5f)
        return pop(e, at[1] - 0x58u + 8, 2);
    if (STARTS_WITH(at, end, "\x48\x83\xc4")) /* add $imm8, %rsp */
        return move_sp(e, REGS_SP, signed_byte(at + 3), 4);
    if (STARTS_WITH(at, end, "\x48\x81\xc4")) /* add $imm32, %rsp */
        return move_sp(e, REGS_SP, signed_word(at + 3), 7);
    if (STARTS_WITH(at, end, "\x48\x8d\x64\x24")) /* lea disp8(%rsp), %rsp */
        return move_sp(e, REGS_SP, signed_byte(at + 4), 5);
    if (STARTS_WITH(at, end, "\x48\x8d\xa4\x24")) /* lea disp32(%rsp), %rsp */
        return move_sp(e, REGS_SP, signed_word(at + 4), 8);
    if (STARTS_WITH(at, end, "\x48\x8d\x65")) /* lea disp8(%rbp), %rsp */
        return move_sp(e, REGS_BP, signed_byte(at + 3), 4);
    if (STARTS_WITH(at, end, "\x48\x89\xec") || STARTS_WITH(at, end, "\x48\x8b\xe5")) /* mov %rbp, %rsp */
        return move_sp(e, REGS_BP, 0, 3);
    if (at[0] == 0xc9) /* leave */
        return move_sp(e, REGS_BP, 0, 0) && pop(e, 5, 1);
    if (STARTS_WITH(at, end, "\xc5\xf8\x77")) /* vzeroupper */
        return move_sp(e, REGS_SP, 0, 3);
    return false;
}

static bool is_ret(const struct epilogue *e)
{
    return STARTS_WITH(e->at, e->end, "\xc3") || STARTS_WITH(e->at, e->end, "\xf3\xc3");
}

/* Takes the word at rsp as the return address. */
static int return_to_caller(const struct cpu_guess *g, const struct cfi_expr_env *from, struct cfi_expr_env *env,
                            uint64_t *ret_cfa)
{
    struct cfi_expr_env next = *from;

    if (next.read_word(next.arg, next.regs[REGS_SP], &next.regs[REGS_PC]) < 0 ||
        !cpu_is_return_address(g, next.regs[REGS_PC]))
        return ERR_READ;
    next.regs[REGS_SP] += 8;
    next.known |= 1u << REGS_PC;
    *ret_cfa = next.regs[REGS_SP];
    *env = next;
    return 0;
}

/* Reads up to EPILOGUE_BYTES at `pc`, fewer at the end of a page, and pads them with an invalid instruction. */
static bool read_code(struct mem *m, uint64_t pc, unsigned char code[EPILOGUE_BYTES])
{
    uint64_t room = PAGE - (pc & (PAGE - 1));

    memset(code, 0x06, EPILOGUE_BYTES);
    return mem_read(m, pc, code, EPILOGUE_BYTES) == 0 ||
           (room < EPILOGUE_BYTES && mem_read(m, pc, code, (size_t)room) == 0);
}

/* Only pops and the like are left before `ret`: trampolines and stubs are often nothing but a call and this. */
static int by_epilogue(const struct cpu_guess *g, const unsigned char *code, struct cfi_expr_env *env,
                       uint64_t *ret_cfa)
{
    struct epilogue e = {.env = *env, .at = code, .end = code + EPILOGUE_BYTES};

    for (int i = 0; i < EPILOGUE_STEPS && !is_ret(&e); i++)
        if (!execute(&e))
            return ERR_READ;
    return is_ret(&e) ? return_to_caller(g, &e.env, env, ret_cfa) : ERR_READ;
}

/* The length of `push %rbp; mov %rsp, %rbp` at `at`, or 0. */
static size_t prologue_len(const unsigned char *at, const unsigned char *end)
{
    return STARTS_WITH(at, end, "\x55\x48\x89\xe5") || STARTS_WITH(at, end, "\x55\x48\x8b\xec") ? 4 : 0;
}

/* The pc is at the first instruction of a function with a frame pointer, or at the second one. */
static int by_entry(const struct cpu_guess *g, const unsigned char *code, struct cfi_expr_env *env, uint64_t *ret_cfa)
{
    const unsigned char *end = code + EPILOGUE_BYTES;
    struct cfi_expr_env from = *env;
    unsigned char push;

    if (STARTS_WITH(code, end, "\xf3\x0f\x1e\xfa")) /* endbr64 */
        code += 4;
    if (prologue_len(code, end))
        return return_to_caller(g, &from, env, ret_cfa);
    if (!STARTS_WITH(code, end, "\x48\x89\xe5") && !STARTS_WITH(code, end, "\x48\x8b\xec"))
        return ERR_READ;
    if (mem_read(g->mem, env->regs[REGS_PC] - 1, &push, 1) < 0 || push != 0x55)
        return ERR_READ;
    from.regs[REGS_SP] += 8;
    return return_to_caller(g, &from, env, ret_cfa);
}

/* ---- a function whose start is known ---- */

/* What the prologue has done to the stack before `pc`. */
struct prologue {
    uint64_t depth;          /* bytes pushed and reserved below the return address */
    bool has_fp;             /* rbp points to the caller's rbp, right below the return address */
    uint64_t saved[REGS_N_]; /* per DWARF register: its distance below the return address; 0 if it was not pushed */
};

static void push(struct prologue *p, unsigned reg)
{
    p->depth += 8;
    if (!p->saved[reg])
        p->saved[reg] = p->depth;
}

/* Executes one instruction of a prologue and returns its length, or 0 if it belongs to the body. */
static size_t execute_prologue(struct prologue *p, const unsigned char *at, const unsigned char *end)
{
    if (end - at < 8)
        return 0;
    if (at[0] >= 0x50 && at[0] <= 0x57) {
        push(p, dwarf_reg(at[0] - 0x50u));
        return 1;
    }
    if (at[0] == 0x41 && at[1] >= 0x50 && at[1] <= 0x57) {
        push(p, at[1] - 0x50u + 8);
        return 2;
    }
    if (STARTS_WITH(at, end, "\x48\x83\xec") && at[3] < 0x80) { /* sub $imm8, %rsp */
        p->depth += at[3];
        return 4;
    }
    if (STARTS_WITH(at, end, "\x48\x81\xec") && signed_word(at + 3) > 0) { /* sub $imm32, %rsp */
        p->depth += (uint64_t)signed_word(at + 3);
        return 7;
    }
    if ((STARTS_WITH(at, end, "\x48\x89\xe5") || STARTS_WITH(at, end, "\x48\x8b\xec")) && p->saved[REGS_BP] == 8 &&
        p->depth == 8) { /* mov %rsp, %rbp */
        p->has_fp = true;
        return 3;
    }
    return STARTS_WITH(at, end, "\xf3\x0f\x1e\xfa") ? 4 : 0; /* endbr64 */
}

/* Reads the prologue of the function at `start`, as far as it was executed before `pc`. */
static bool read_prologue(struct mem *m, uint64_t start, uint64_t pc, struct prologue *ret)
{
    unsigned char code[EPILOGUE_BYTES];
    size_t at = 0, len;

    *ret = (struct prologue){0};
    if (!read_code(m, start, code))
        return false;
    while (start + at < pc && (len = execute_prologue(ret, code + at, code + EPILOGUE_BYTES)) > 0)
        at += len;
    return true;
}

/* True if the call that returns to `pc` called the function at `start`: directly, or with its address as a constant. */
static bool calls_function(struct mem *m, uint64_t pc, uint64_t start)
{
    unsigned char code[EPILOGUE_BYTES];
    int32_t offset;

    if (pc < sizeof(code) || mem_read(m, pc - sizeof(code), code, sizeof(code)) < 0)
        return false;
    memcpy(&offset, code + sizeof(code) - 4, sizeof(offset));
    if (code[sizeof(code) - 5] == 0xe8 && pc + (uint64_t)(int64_t)offset == start)
        return true;
    for (size_t i = 0; i + 10 <= sizeof(code); i++)
        if ((code[i] == 0x48 || code[i] == 0x49) && (code[i + 1] & 0xf8) == 0xb8 &&
            memcmp(code + i + 2, &start, 8) == 0)
            return true; /* movabs $start, %reg */
    return false;
}

/* True if the instruction at the pc may be part of an epilogue that ends in a jump instead of `ret`: some of the frame is
 * already popped. */
static bool may_be_tail_call(const struct cpu_guess *g, const struct cfi_expr_env *env)
{
    unsigned char code[EPILOGUE_BYTES];
    struct epilogue e = {.env = *env, .at = code, .end = code + EPILOGUE_BYTES};
    uint64_t sp = env->regs[REGS_SP];

    if (!read_code(g->mem, env->regs[REGS_PC], code))
        return true;
    if (code[0] == 0xe9 || (code[0] == 0xff && (code[1] & 0x38) == 0x20) ||
        (code[0] == 0x41 && code[1] == 0xff && (code[2] & 0x38) == 0x20))
        return true;
    return execute(&e) && e.env.regs[REGS_SP] != sp;
}

int cpu_unwind_by_prologue(const struct cpu_guess *g, struct cfi_expr_env *env, uint64_t start, bool pc_is_exact,
                           uint64_t *ret_cfa)
{
    struct cfi_expr_env from = *env, next;
    struct prologue p;
    uint64_t at;

    if (!read_prologue(g->mem, start, env->regs[REGS_PC], &p) || (pc_is_exact && may_be_tail_call(g, env)))
        return ERR_READ;
    if (p.has_fp && !(env->known >> REGS_BP & 1))
        return ERR_READ;
    at = p.has_fp ? env->regs[REGS_BP] + 8 : env->regs[REGS_SP] + p.depth; /* of the return address */
    if (at < env->regs[REGS_SP])
        return ERR_READ;
    for (unsigned reg = 0; reg < REGS_N_; reg++) {
        if (!p.saved[reg])
            continue;
        if (from.read_word(from.arg, at - p.saved[reg], &from.regs[reg]) < 0)
            return ERR_READ;
        from.known |= 1u << reg;
    }
    from.regs[REGS_SP] = at;
    if (return_to_caller(g, &from, &next, ret_cfa) < 0)
        return ERR_READ;
    /* Some functions set up their frame later than at their start. Those that call others have one. */
    if (!p.depth && (!pc_is_exact || !calls_function(g->mem, next.regs[REGS_PC], start)))
        return ERR_READ;
    *env = next;
    return 0;
}

/* The bytes that `sub $imm, %rsp` in the first instructions of a function reserves; 0 if there is none. */
static uint64_t reserved_bytes(const unsigned char *code, const unsigned char *end)
{
    for (const unsigned char *at = code; at + 7 <= end; at++) {
        if (STARTS_WITH(at, end, "\x48\x83\xec") && signed_byte(at + 3) > 0)
            return (uint64_t)signed_byte(at + 3);
        if (STARTS_WITH(at, end, "\x48\x81\xec") && signed_word(at + 3) > 0)
            return (uint64_t)signed_word(at + 3);
    }
    return 0;
}

/* True if a frame that ends at `cfa` has a return address. */
static bool ends_frame(const struct cpu_guess *g, const struct cfi_expr_env *env, uint64_t cfa)
{
    uint64_t pc;

    return !(cfa & 15) && env->read_word(env->arg, cfa - 8, &pc) == 0 && cpu_is_return_address(g, pc);
}

/* Compilers push the other registers before they reserve the rest of the frame, or move them into it. Where a function pushes
 * arguments or calls alloca, the return address is not where it is expected. */
int cpu_find_frame_pointer(const struct cpu_guess *g, struct cfi_expr_env *env, const struct cfi_row *row)
{
    const struct cfi_rule *saved = &row->regs[REGS_BP];
    uint64_t room = env->regs[REGS_PC] - row->function, pushed, moved;
    unsigned char code[EPILOGUE_BYTES];
    int64_t lowest = 0;

    if (row->cfa.value != 16 || saved->kind != CFI_OFFSET || saved->value != -16 ||
        !read_code(g->mem, row->function, code))
        return ERR_READ;
    for (unsigned reg = 0; reg < CFI_REGS; reg++)
        if (row->regs[reg].kind == CFI_OFFSET && row->regs[reg].value < lowest)
            lowest = row->regs[reg].value;
    moved = env->regs[REGS_SP] + reserved_bytes(code, code + (room < EPILOGUE_BYTES ? room : EPILOGUE_BYTES)) + 16;
    pushed = moved - 16 - (uint64_t)lowest;
    if (moved != pushed && ends_frame(g, env, moved) == ends_frame(g, env, pushed))
        return ERR_READ;
    if (!ends_frame(g, env, moved) && !ends_frame(g, env, pushed))
        return ERR_READ;
    env->regs[REGS_BP] = (ends_frame(g, env, moved) ? moved : pushed) - 16;
    env->known |= 1u << REGS_BP;
    return 0;
}

/* ---- a function whose start is unknown ---- */

/* True for `ret` and the padding behind the last instruction of a function. */
static bool is_function_end(const unsigned char *at, const unsigned char *end)
{
    static const char padding[][4] = {"\xcc", "\x90", "\x0f\x1f", "\x66\x90", "\x66\x66", "\x66\x0f\x1f", "\x66\x2e"};

    if (*at != 0xc3)
        return false;
    for (size_t i = 0; i < sizeof(padding) / sizeof(padding[0]); i++)
        if (starts_with(at + 1, end, padding[i], strlen(padding[i])))
            return true;
    return false;
}

/* Reads the code before `pc`, down to the first page that cannot be read. Returns its length. */
static size_t read_before(struct mem *m, uint64_t pc, unsigned char code[PROLOGUE_SEARCH])
{
    uint64_t start = pc;

    while (pc - start < PROLOGUE_SEARCH && start) {
        uint64_t from = (start - 1) & ~(PAGE - 1);

        if (pc - from > PROLOGUE_SEARCH)
            from = pc - PROLOGUE_SEARCH;
        if (mem_read(m, from, code + PROLOGUE_SEARCH - (pc - from), (size_t)(start - from)) < 0)
            break;
        start = from;
    }
    return (size_t)(pc - start);
}

/* The nearest prologue before `pc`, with no end of a function in between. */
bool cpu_has_frame_pointer(struct mem *m, uint64_t pc)
{
    unsigned char code[PROLOGUE_SEARCH];
    const unsigned char *end = code + PROLOGUE_SEARCH, *start = end - read_before(m, pc, code);

    for (const unsigned char *at = end; at > start; at--) {
        if (prologue_len(at - 1, end))
            return true;
        if (is_function_end(at - 1, end))
            return false;
    }
    return false;
}

int cpu_unwind_generated_code(const struct cpu_guess *g, struct cfi_expr_env *env, bool pc_is_exact, uint64_t *ret_cfa)
{
    unsigned char code[EPILOGUE_BYTES];

    if (!read_code(g->mem, env->regs[REGS_PC], code))
        return ERR_READ;
    if (by_epilogue(g, code, env, ret_cfa) == 0)
        return 0;
    return pc_is_exact ? by_entry(g, code, env, ret_cfa) : ERR_READ;
}
