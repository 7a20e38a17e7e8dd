/*
 * The unwinder: walks from frame to frame by the rows of the unwind tables, by signal frames and, without a table, by
 * heuristics. Caches what it finds for each pc.
 */
#include "unwind/unwind.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/hash_table.h"
#include "base/log.h"
#include "elf/jit_object.h"
#include "unwind/cfi_expr.h"
#include "unwind/cpu.h"
#include "unwind/jit_code.h"
#include "unwind/module_tables.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FRAMES       262144
#define MAX_SIGNALS      64 /* frames of signal handlers in one stack: behind each the stack may be anywhere */
#define MAX_ENTRIES      32768
#define MAX_ENTRIES_PEAK (2 * MAX_ENTRIES) /* one walk can add many */
#define MAX_CHECKED      64

struct unwind {
    struct modules modules;
    struct jit_code jit_code;
    struct module_identities identities;
    bool has_new_entries; /* places were made since the marks were read: by what was in memory later */
    uint64_t round;
    unsigned char (*first_pages)[MODULE_PAGE]; /* for unwind_still */
    struct pc_entry **entries;
    size_t n, cap;
    struct hash_table by_pc;  /* index of `entries` */
    size_t n_jit;             /* of them in code that a program made: it may be other code by now */
    struct pc_entry unmapped; /* for all addresses that are in no module: not kept */
};

/* The state of one walk. */
struct walk {
    struct unwind *u;
    struct mem *m;
    const struct stack_copy *copy;
    struct cfi_expr_env env;
    bool pc_is_exact; /* pc is the current instruction, not a return address */
    int signals;      /* signal frames passed so far */
};

static void entries_clear(struct unwind *u)
{
    for (size_t i = 0; i < u->n; i++)
        free(u->entries[i]);
    hash_table_clear(&u->by_pc);
    u->n = u->n_jit = 0;
}

/* What is known about generated code may be stale. */
static void entries_clear_generated(struct unwind *u)
{
    for (size_t i = 0; u->n_jit && i < u->n; i++)
        if (!u->entries[i]->module->is_elf) {
            u->entries[i]->user = NULL;
            u->entries[i]->code_was_read = false;
        }
}

struct unwind *unwind_new(void)
{
    struct unwind *u = calloc(1, sizeof(*u));

    if (u)
        u->first_pages = malloc(MAX_CHECKED * sizeof(*u->first_pages));
    return u && u->first_pages ? u : unwind_free(u);
}

struct unwind *unwind_free(struct unwind *u)
{
    if (!u)
        return NULL;
    entries_clear(u);
    free(u->entries);
    hash_table_free(&u->by_pc);
    free(u->first_pages);
    jit_code_free(&u->jit_code, &u->modules);
    modules_free(&u->modules);
    free(u);
    return NULL;
}

void unwind_set_free(struct unwind *u, void (*free_user)(void *user))
{
    u->modules.free_user = free_user;
}

const struct modules *unwind_modules(const struct unwind *u)
{
    return &u->modules;
}

void unwind_set_files(struct unwind *u, const struct module_files *files)
{
    u->modules.files = *files;
}

int unwind_update(struct unwind *u, struct mem *m, const struct proc_maps *maps, bool *ret_changed)
{
    int r = modules_update(&u->modules, m, maps, ret_changed);
    bool jit_changed = jit_code_update(&u->jit_code, &u->modules, m);

    /* Entries in an ELF file stay valid as long as the file is mapped. */
    if (u->modules.any_unloaded || jit_changed) {
        entries_clear(u);
        module_identity_update(&u->identities, u->modules.items, u->modules.n);
    } else {
        entries_clear_generated(u);
    }
    return r;
}

/* Looks up a pc and caches the result. NULL if out of memory. */
static struct pc_entry *entry_new(struct unwind *u, struct mem *m, addr_t pc)
{
    struct pc_entry found = {.pc = pc, .module = modules_find(&u->modules, pc)}, *p;
    struct module *object;

    if (!found.module) {
        u->unmapped = found;
        return &u->unmapped;
    }
    object = found.module->is_elf ? NULL : jit_code_find(&u->jit_code, &u->modules, m, pc);
    if (object) {
        found.module = object;
        jit_object_function(object->image, object->image_len, pc, &found.function);
    }
    found.has_row = module_tables_row(&u->modules, found.module, m, pc, &found.row, &found.section) == 0;
    if (hash_table_reserve_item(&u->by_pc, (void **)&u->entries, &u->cap, u->n, sizeof(struct pc_entry *)) < 0)
        return NULL;
    p = malloc(sizeof(*p));
    if (!p)
        return NULL;
    *p = found;
    u->entries[u->n] = p;
    hash_table_add(&u->by_pc, hash_mix(0, pc), (uint32_t)u->n++);
    u->has_new_entries = true;
    u->n_jit += !found.module->is_elf;
    return p;
}

/* Finds or makes the entry of a pc. NULL if out of memory or if there are too many. */
static struct pc_entry *entry_find(struct unwind *u, struct mem *m, addr_t pc)
{
    uint64_t hash = hash_mix(0, pc);
    size_t step = 0;
    uint32_t at;

    while ((at = hash_table_next(&u->by_pc, hash, &step)) != HASH_TABLE_NONE)
        if (u->entries[at]->pc == pc)
            return u->entries[at];
    return u->n < MAX_ENTRIES_PEAK ? entry_new(u, m, pc) : NULL;
}

static int read_stack_word(void *arg, uint64_t addr, uint64_t *ret)
{
    const struct stack_copy *c = arg;

    if (addr < c->addr || c->len < 8 || addr - c->addr > c->len - 8)
        return c->fallback ? mem_read_addr(c->fallback, addr, ret) : ERR_READ;
    memcpy(ret, c->bytes + (addr - c->addr), sizeof(*ret));
    return 0;
}

static bool is_known(const struct cfi_expr_env *env, unsigned reg)
{
    return env->known >> reg & 1;
}

static int compute_cfa(const struct walk *w, const struct pc_entry *p, uint64_t *ret)
{
    const struct cfi_rule *rule = &p->row.cfa;

    if (rule->kind == CFI_VAL_EXPRESSION)
        return cfi_expr_eval(p->section, rule, &w->env, NULL, ret);
    if (rule->kind != CFI_CFA_REG_OFFSET || rule->reg >= CFI_REGS || !is_known(&w->env, rule->reg))
        return ERR_READ;
    *ret = w->env.regs[rule->reg] + (uint64_t)(int64_t)rule->value;
    return 0;
}

/* Computes the value of a register in the caller. Returns ERR_READ if the value is lost. */
static int restore_reg(const struct walk *w, const struct pc_entry *p, unsigned reg, uint64_t cfa, uint64_t *ret)
{
    const struct cfi_rule *rule = &p->row.regs[reg];
    uint64_t at = cfa + (uint64_t)(int64_t)rule->value;
    int r;

    switch (rule->kind) {
    case CFI_SAME_VALUE:
        *ret = w->env.regs[reg];
        return reg != CFI_RA && is_known(&w->env, reg) ? 0 : ERR_READ;
    case CFI_OFFSET:
        return read_stack_word(w->env.arg, at, ret);
    case CFI_VAL_OFFSET:
        *ret = at;
        return 0;
    case CFI_REGISTER:
        if (rule->value < 0 || rule->value >= CFI_REGS || !is_known(&w->env, (unsigned)rule->value))
            return ERR_READ;
        *ret = w->env.regs[rule->value];
        return 0;
    case CFI_EXPRESSION:
    case CFI_VAL_EXPRESSION:
        r = cfi_expr_eval(p->section, rule, &w->env, &cfa, ret);
        return r == 0 && rule->kind == CFI_EXPRESSION ? read_stack_word(w->env.arg, *ret, ret) : r;
    default:
        return ERR_READ;
    }
}

static bool is_code(void *arg, uint64_t pc)
{
    struct walk *w = arg;

    return modules_find(&w->u->modules, pc) != NULL;
}

static bool is_signal_return(void *arg, uint64_t pc)
{
    struct walk *w = arg;
    const struct pc_entry *p = entry_find(w->u, w->m, pc - 1);

    return p && p->has_row && p->row.is_signal;
}

static struct cpu_guess make_guess(struct walk *w)
{
    return (struct cpu_guess){.is_code = is_code, .is_signal_return = is_signal_return, .arg = w, .mem = w->m};
}

/* True if the row is based on the frame pointer, which is not known: nothing has saved it since the thread called the kernel. */
static bool needs_frame_pointer(const struct walk *w, const struct pc_entry *p)
{
    return p->row.cfa.kind == CFI_CFA_REG_OFFSET && p->row.cfa.reg == REGS_BP && !is_known(&w->env, REGS_BP);
}

/* Steps to the caller by the rules of the row. */
static int step_by_row(struct walk *w, const struct pc_entry *p, uint64_t *ret_cfa)
{
    struct cpu_guess guess = make_guess(w);
    struct cfi_expr_env next;
    uint64_t cfa;
    int r;

    if (needs_frame_pointer(w, p) && cpu_find_frame_pointer(&guess, &w->env, &p->row) < 0)
        return ERR_READ;
    next = w->env;
    r = compute_cfa(w, p, &cfa);

    if (r < 0 || cfa <= w->env.regs[REGS_SP])
        return ERR_READ;
    next.known = 0;
    for (unsigned reg = 0; reg < CFI_REGS; reg++)
        if (cpu_is_callee_saved(reg) && restore_reg(w, p, reg, cfa, &next.regs[reg]) == 0)
            next.known |= 1u << reg;
    next.regs[REGS_SP] = cfa;
    next.known |= 1u << REGS_SP;
    if (!is_known(&next, CFI_RA))
        return ERR_READ;
    w->env = next;
    *ret_cfa = cfa;
    return 0;
}

/* Many programs crash in a call through a bad function pointer: go on from its caller. The pc may also be in code that
 * was just mapped, so unknown_pc asks our caller to update the modules. */
static void skip_bad_call(struct walk *w, struct native_stack *s)
{
    struct cpu_guess guess = make_guess(w);

    if (modules_find(&w->u->modules, w->env.regs[REGS_PC]))
        return;
    s->unknown_pc = true;
    if (cpu_unwind_bad_call(&guess, &w->env) == 0)
        w->pc_is_exact = false;
}

/* Steps to the caller of generated code without a row. The stack is full of return addresses of calls that are over, so
 * the walk ends unless the instructions show where the right one is. */
static int step_by_code(struct walk *w, struct pc_entry *p, bool pc_is_exact, uint64_t *ret_cfa)
{
    struct cpu_guess guess = make_guess(w);

    w->u->jit_code.missed = true;
    if (cpu_unwind_generated_code(&guess, &w->env, pc_is_exact, ret_cfa) == 0)
        return 0;
    if (p->function)
        return cpu_unwind_by_prologue(&guess, &w->env, p->function, pc_is_exact, ret_cfa);
    if (!p->code_was_read) {
        p->has_frame_pointer = cpu_has_frame_pointer(w->m, w->env.regs[REGS_PC]);
        p->code_was_read = true;
    }
    if (!p->has_frame_pointer || cpu_follow_frame_pointer(&guess, &w->env, ret_cfa) < 0)
        return ERR_READ;
    w->env.known = 1u << REGS_PC | 1u << REGS_SP | 1u << REGS_BP; /* it may have saved and changed the others */
    return 0;
}

static int step_to_caller(struct walk *w, struct pc_entry *p, uint64_t *ret_cfa)
{
    struct cpu_guess guess = make_guess(w);
    bool was_exact = w->pc_is_exact;

    if (p->has_row && p->row.is_signal) {
        w->pc_is_exact = true; /* the signal interrupted this instruction */
        *ret_cfa = w->env.regs[REGS_SP];
        return w->signals++ < MAX_SIGNALS ? cpu_unwind_signal_frame(&w->env) : ERR_READ;
    }
    w->pc_is_exact = false;
    if (p->has_row)
        return step_by_row(w, p, ret_cfa);
    return p->module->is_elf ? cpu_guess_caller(&guess, &w->env, ret_cfa) : step_by_code(w, p, was_exact, ret_cfa);
}

/* True for _start and clone: their unwind tables mark the return address as undefined. */
static bool is_outermost(const struct pc_entry *p)
{
    return p->has_row && !p->row.is_signal && p->row.regs[CFI_RA].kind == CFI_UNDEFINED;
}

static int walk_frames(struct walk *w, struct native_stack *s)
{
    while (s->n < MAX_FRAMES && w->u->n < MAX_ENTRIES_PEAK) {
        struct pc_entry *p;
        struct native_frame *f;
        uint64_t pc;

        if (w->pc_is_exact)
            skip_bad_call(w, s);
        pc = w->env.regs[REGS_PC];
        p = pc ? entry_find(w->u, w->m, pc - !w->pc_is_exact) : NULL;
        if (!p)
            return pc ? ERR_NOMEM : 0;
        if (!p->module) {
            log_often(LOG_LEVEL_DEBUG, "unwind", 0, "frame %zu: %#llx is in no module", s->n, (unsigned long long)pc);
            s->unknown_pc = true;
            return 0;
        }
        if (grow_array((void **)&s->items, &s->cap, s->n + 1, sizeof(*s->items)) < 0)
            return ERR_NOMEM;
        f = &s->items[s->n++];
        *f = (struct native_frame){.pc_entry = p, .sp = w->env.regs[REGS_SP]};
        for (size_t i = 0; i < CPU_CALLEE_SAVED; i++)
            if (is_known(&w->env, cpu_callee_saved_reg(i))) {
                f->saved[i] = w->env.regs[cpu_callee_saved_reg(i)];
                f->known |= 1u << i;
            }
        if (is_outermost(p)) {
            f->cfa = w->copy->addr + w->copy->len;
            s->complete = true;
            return 0;
        }
        if (step_to_caller(w, p, &f->cfa) < 0) {
            log_often(LOG_LEVEL_DEBUG, "unwind", p->module->start, "frame %zu: %#llx in %s: no caller found, %s",
                      s->n - 1, (unsigned long long)pc, p->module->path, p->has_row ? "bad row" : "no row");
            f->cfa = f->sp;
            return 0;
        }
    }
    return 0;
}

int unwind_stack(struct unwind *u, struct mem *m, const struct regs *regs, const struct stack_copy *copy,
                 struct native_stack *ret)
{
    struct stack_copy mine = *copy;
    struct walk w = {.u = u, .m = m, .copy = copy, .pc_is_exact = true};

    if (u->n > MAX_ENTRIES)
        entries_clear(u);
    w.env = (struct cfi_expr_env){
        .known = ((1u << CFI_REGS) - 1) & ~regs->unknown, .read_word = read_stack_word, .arg = &mine};
    memcpy(w.env.regs, regs->r, sizeof(w.env.regs));
    ret->n = 0;
    ret->complete = ret->unknown_pc = false;
    return walk_frames(&w, ret);
}

size_t unwind_identity_spans(struct unwind *u, struct mem_span *spans)
{
    u->has_new_entries = false;
    return module_identity_spans(&u->identities, spans);
}

void unwind_identity_check(struct unwind *u, size_t n)
{
    module_identity_check(&u->identities, n);
}

/* Lists the distinct modules of a stack that might have been replaced by others. */
static size_t list_modules(struct unwind *u, const struct native_stack *s, struct module **mods)
{
    size_t n = 0;

    u->round++;
    for (size_t i = 0; i < s->n && n < MAX_CHECKED; i++) {
        struct module *mod = s->items[i].pc_entry->module;

        if (mod->first_page && !mod->never_unloaded && mod->visit_round != u->round)
            mods[n++] = mod;
        mod->visit_round = u->round;
    }
    return n;
}

/* The same, without modules that were confirmed when the stack was read. */
static size_t list_unconfirmed(struct unwind *u, const struct native_stack *s, struct module **mods)
{
    size_t n = list_modules(u, s, mods), kept = 0;

    for (size_t i = 0; i < n; i++)
        if (mods[i]->stale || u->has_new_entries || !module_identity_is_confirmed(&u->identities, mods[i]))
            mods[kept++] = mods[i];
    return kept;
}

bool unwind_is_confirmed(struct unwind *u, const struct native_stack *s)
{
    struct module *mods[MAX_CHECKED];
    size_t n = list_modules(u, s, mods);
    bool all = true;

    for (size_t i = 0; i < n && n <= MODULE_IDENTITY_MAX; i++) {
        all &= module_identity_is_confirmed(&u->identities, mods[i]);
        module_identity_add(&u->identities, mods[i]);
    }
    return all;
}

bool unwind_modules_unchanged(struct unwind *u, struct mem *m, const struct native_stack *s, bool *ret_reused)
{
    struct mem_span spans[MAX_CHECKED] = {0};
    struct module *mods[MAX_CHECKED];
    size_t n = list_unconfirmed(u, s, mods), got;
    bool still = true;

    for (size_t i = 0; i < n; i++)
        spans[i] = (struct mem_span){mods[i]->start, u->first_pages[i], MODULE_PAGE};
    got = n ? mem_readv(m, spans, n) : 0;
    *ret_reused = false;
    for (size_t i = 0; i < n; i++) {
        *ret_reused |= mods[i]->address_reused;
        mods[i]->stale |= i >= got || memcmp(u->first_pages[i], mods[i]->first_page, MODULE_PAGE) != 0;
        still &= !mods[i]->stale;
    }
    return still;
}

void native_stack_free(struct native_stack *s)
{
    free(s->items);
    *s = (struct native_stack){0};
}
