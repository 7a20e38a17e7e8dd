/*
 * The walk over native frames. Called by sample/native.c for each stack, after the thread was let go. Each address is
 * looked up in the tables once: its row is kept.
 */
#include "unwind/unwind.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/hash_table.h"
#include "unwind/cfi_expr.h"
#include "unwind/cpu.h"
#include "unwind/module_tables.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FRAMES  262144
#define MAX_SIGNALS 64 /* frames of signal handlers in one stack: behind each the stack may be anywhere */
#define MAX_PLACES  32768
#define MAX_FILL    (2 * MAX_PLACES) /* one walk can add many */
#define MAX_PAGES   64

struct unwind {
    struct modules modules;
    struct module_identities marks;
    bool is_fresh; /* places were made since the marks were read: by what was in memory later */
    uint64_t round;
    unsigned char (*pages)[MODULE_PAGE]; /* for unwind_still */
    struct unwind_place **places;
    size_t n, cap;
    struct hash_table by_pc;     /* index of `places` */
    size_t n_made;               /* of them in code that a program made: it may be other code by now */
    struct unwind_place nowhere; /* for all addresses that are in no module: not kept */
};

/* Where the walk is. */
struct walk {
    struct unwind *u;
    struct mem *m;
    const struct stack_copy *copy;
    struct cfi_expr_env env;
    bool inside; /* the address is that of an instruction, not of the one behind a call */
    int signals; /* so many signal frames were passed */
};

static void places_forget(struct unwind *u)
{
    for (size_t i = 0; i < u->n; i++)
        free(u->places[i]);
    hash_table_clear(&u->by_pc);
    u->n = u->n_made = 0;
}

static void places_forget_made(struct unwind *u)
{
    for (size_t i = 0; u->n_made && i < u->n; i++)
        if (!u->places[i]->module->is_elf)
            u->places[i]->user = NULL;
}

struct unwind *unwind_new(void)
{
    struct unwind *u = calloc(1, sizeof(*u));

    if (u)
        u->pages = malloc(MAX_PAGES * sizeof(*u->pages));
    return u && u->pages ? u : unwind_free(u);
}

struct unwind *unwind_free(struct unwind *u)
{
    if (!u)
        return NULL;
    places_forget(u);
    free(u->places);
    hash_table_free(&u->by_pc);
    free(u->pages);
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

static void place_fill(struct unwind *u, struct mem *m, struct unwind_place *p)
{
    p->module = modules_find(&u->modules, p->pc);
    p->has_row = p->module && module_tables_row(&u->modules, p->module, m, p->pc, &p->row, &p->section) == 0;
}

int unwind_update(struct unwind *u, struct mem *m, const struct proc_maps *maps, bool *ret_changed)
{
    int r = modules_update(&u->modules, m, maps, ret_changed);

    /* What is known of code in a file stays true while the file is mapped. */
    if (u->modules.lost) {
        places_forget(u);
        module_identity_update(&u->marks, u->modules.items, u->modules.n);
    } else {
        places_forget_made(u);
    }
    return r;
}

/* What is in no module is not kept: it may be in one the next time. */
static struct unwind_place *place_new(struct unwind *u, struct mem *m, addr_t pc)
{
    struct unwind_place found = {.pc = pc}, *p;

    place_fill(u, m, &found);
    if (!found.module) {
        u->nowhere = found;
        return &u->nowhere;
    }
    if (hash_table_reserve_item(&u->by_pc, (void **)&u->places, &u->cap, u->n, sizeof(struct unwind_place *)) < 0)
        return NULL;
    p = malloc(sizeof(*p));
    if (!p)
        return NULL;
    *p = found;
    u->places[u->n] = p;
    hash_table_add(&u->by_pc, hash_mix(0, pc), (uint32_t)u->n++);
    u->is_fresh = true;
    u->n_made += !found.module->is_elf;
    return p;
}

/* NULL when there is no memory or no room for it. */
static struct unwind_place *place_of(struct unwind *u, struct mem *m, addr_t pc)
{
    uint64_t hash = hash_mix(0, pc);
    size_t step = 0;
    uint32_t at;

    while ((at = hash_table_next(&u->by_pc, hash, &step)) != HASH_TABLE_NONE)
        if (u->places[at]->pc == pc)
            return u->places[at];
    return u->n < MAX_FILL ? place_new(u, m, pc) : NULL;
}

static int stack_word(void *arg, uint64_t addr, uint64_t *ret)
{
    const struct stack_copy *c = arg;

    if (addr < c->at || c->len < 8 || addr - c->at > c->len - 8)
        return c->rest ? mem_read_addr(c->rest, addr, ret) : ERR_READ;
    memcpy(ret, c->bytes + (addr - c->at), sizeof(*ret));
    return 0;
}

static bool is_known(const struct cfi_expr_env *env, unsigned reg)
{
    return env->known >> reg & 1;
}

static int cfa_of(const struct walk *w, const struct unwind_place *p, uint64_t *ret)
{
    const struct cfi_rule *rule = &p->row.cfa;

    if (rule->kind == CFI_IS_EXPR)
        return cfi_expr_eval(p->section, rule, &w->env, NULL, ret);
    if (rule->kind != CFI_REG_OFFSET || rule->reg >= CFI_REGS || !is_known(&w->env, rule->reg))
        return ERR_READ;
    *ret = w->env.regs[rule->reg] + (uint64_t)(int64_t)rule->value;
    return 0;
}

/* A register in the caller; ERR_READ when it is lost. */
static int reg_of(const struct walk *w, const struct unwind_place *p, unsigned reg, uint64_t cfa, uint64_t *ret)
{
    const struct cfi_rule *rule = &p->row.regs[reg];
    uint64_t at = cfa + (uint64_t)(int64_t)rule->value;
    int r;

    switch (rule->kind) {
    case CFI_SAME:
        *ret = w->env.regs[reg];
        return reg != CFI_RA && is_known(&w->env, reg) ? 0 : ERR_READ;
    case CFI_AT_CFA:
        return stack_word(w->env.arg, at, ret);
    case CFI_IS_CFA:
        *ret = at;
        return 0;
    case CFI_REG:
        if (rule->value < 0 || rule->value >= CFI_REGS || !is_known(&w->env, (unsigned)rule->value))
            return ERR_READ;
        *ret = w->env.regs[rule->value];
        return 0;
    case CFI_AT_EXPR:
    case CFI_IS_EXPR:
        r = cfi_expr_eval(p->section, rule, &w->env, &cfa, ret);
        return r == 0 && rule->kind == CFI_AT_EXPR ? stack_word(w->env.arg, *ret, ret) : r;
    default:
        return ERR_READ;
    }
}

/* From a frame to its caller by its row. */
static int step_by_row(struct walk *w, const struct unwind_place *p, uint64_t *ret_cfa)
{
    struct cfi_expr_env next = w->env;
    uint64_t cfa;
    int r = cfa_of(w, p, &cfa);

    if (r < 0 || cfa <= w->env.regs[REGS_SP])
        return ERR_READ;
    next.known = 0;
    for (unsigned reg = 0; reg < CFI_REGS; reg++)
        if (cpu_is_saved(reg) && reg_of(w, p, reg, cfa, &next.regs[reg]) == 0)
            next.known |= 1u << reg;
    next.regs[REGS_SP] = cfa;
    next.known |= 1u << REGS_SP;
    if (!is_known(&next, CFI_RA))
        return ERR_READ;
    w->env = next;
    *ret_cfa = cfa;
    return 0;
}

static bool is_code(void *arg, uint64_t pc)
{
    struct walk *w = arg;

    return modules_find(&w->u->modules, pc) != NULL;
}

static bool ends_signal(void *arg, uint64_t pc)
{
    struct walk *w = arg;
    const struct unwind_place *p = place_of(w->u, w->m, pc - 1);

    return p && p->has_row && p->row.is_signal;
}

static struct cpu_guess guess_of(struct walk *w)
{
    return (struct cpu_guess){.is_code = is_code, .ends_signal = ends_signal, .arg = w, .mem = w->m};
}

/* A call of a bad address is where many programs crash. Code that is new may look the same: the caller of all this is
 * told, and looks at the maps again. */
static void leave_bad_call(struct walk *w, struct native_stack *s)
{
    struct cpu_guess guess = guess_of(w);

    if (modules_find(&w->u->modules, w->env.regs[REGS_PC]))
        return;
    s->unknown = true;
    if (cpu_undo_call(&guess, &w->env) == 0)
        w->inside = false;
}

static int step_to_caller(struct walk *w, const struct unwind_place *p, uint64_t *ret_cfa)
{
    struct cpu_guess guess = guess_of(w);

    if (p->has_row && p->row.is_signal) {
        w->inside = true; /* it was interrupted there, and has not called */
        *ret_cfa = w->env.regs[REGS_SP];
        return w->signals++ < MAX_SIGNALS ? cpu_signal_frame(&w->env) : ERR_READ;
    }
    if (p->has_row && step_by_row(w, p, ret_cfa) == 0) {
        w->inside = false;
        return 0;
    }
    if (p->has_row || cpu_guess_caller(&guess, &w->env, ret_cfa) < 0)
        return ERR_READ;
    w->inside = false;
    return 0;
}

/* _start, and where a thread begins: the tables say that there is no caller. */
static bool is_first(const struct unwind_place *p)
{
    return p->has_row && !p->row.is_signal && p->row.regs[CFI_RA].kind == CFI_UNDEFINED;
}

static void note_saved(const struct walk *w, struct native_frame *f)
{
    for (size_t i = 0; i < CPU_SAVED; i++)
        if (is_known(&w->env, cpu_saved_reg(i)))
            f->saved[i] = w->env.regs[cpu_saved_reg(i)];
}

static int walk_frames(struct walk *w, struct native_stack *s)
{
    while (s->n < MAX_FRAMES && w->u->n < MAX_FILL) {
        struct unwind_place *p;
        struct native_frame *f;
        uint64_t pc;

        if (w->inside)
            leave_bad_call(w, s);
        pc = w->env.regs[REGS_PC];
        p = pc ? place_of(w->u, w->m, pc - !w->inside) : NULL;
        if (!p)
            return pc ? ERR_NOMEM : 0;
        if (!p->module) {
            s->unknown = true;
            return 0;
        }
        if (grow_array((void **)&s->items, &s->cap, s->n + 1, sizeof(*s->items)) < 0)
            return ERR_NOMEM;
        f = &s->items[s->n++];
        *f = (struct native_frame){.place = p, .sp = w->env.regs[REGS_SP]};
        note_saved(w, f);
        if (is_first(p)) {
            f->cfa = w->copy->at + w->copy->len;
            s->whole = true;
            return 0;
        }
        if (step_to_caller(w, p, &f->cfa) < 0) {
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
    struct walk w = {.u = u, .m = m, .copy = copy, .inside = true};

    if (u->n > MAX_PLACES)
        places_forget(u);
    w.env = (struct cfi_expr_env){.known = (1u << CFI_REGS) - 1, .read = stack_word, .arg = &mine};
    memcpy(w.env.regs, regs->r, sizeof(w.env.regs));
    ret->n = 0;
    ret->whole = ret->unknown = false;
    return walk_frames(&w, ret);
}

size_t unwind_identity_spans(struct unwind *u, struct mem_span *spans)
{
    u->is_fresh = false;
    return module_identity_spans(&u->marks, spans);
}

void unwind_identities_check(struct unwind *u, size_t n)
{
    module_identity_check(&u->marks, n);
}

/* The modules of a stack that may be another's place, each once. */
static size_t list_modules(struct unwind *u, const struct native_stack *s, struct module **mods)
{
    size_t n = 0;

    u->round++;
    for (size_t i = 0; i < s->n && n < MAX_PAGES; i++) {
        struct module *mod = s->items[i].place->module;

        if (mod->first_page && !mod->fixed && mod->round != u->round)
            mods[n++] = mod;
        mod->round = u->round;
    }
    return n;
}

/* But for those that were seen to be there in the instant of the stack. */
static size_t list_doubtful(struct unwind *u, const struct native_stack *s, struct module **mods)
{
    size_t n = list_modules(u, s, mods), kept = 0;

    for (size_t i = 0; i < n; i++)
        if (mods[i]->stale || u->is_fresh || !module_identity_is_confirmed(&u->marks, mods[i]))
            mods[kept++] = mods[i];
    return kept;
}

bool unwind_is_confirmed(struct unwind *u, const struct native_stack *s)
{
    struct module *mods[MAX_PAGES];
    size_t n = list_modules(u, s, mods);
    bool all = true;

    for (size_t i = 0; i < n && n <= MODULE_IDENTITY_MAX; i++) {
        all &= module_identity_is_confirmed(&u->marks, mods[i]);
        module_identity_add(&u->marks, mods[i]);
    }
    return all;
}

bool unwind_still(struct unwind *u, struct mem *m, const struct native_stack *s, bool *ret_shares)
{
    struct mem_span spans[MAX_PAGES] = {0};
    struct module *mods[MAX_PAGES];
    size_t n = list_doubtful(u, s, mods), got;
    bool still = true;

    for (size_t i = 0; i < n; i++)
        spans[i] = (struct mem_span){mods[i]->start, u->pages[i], MODULE_PAGE};
    got = n ? mem_readv(m, spans, n) : 0;
    *ret_shares = false;
    for (size_t i = 0; i < n; i++) {
        *ret_shares |= mods[i]->shares;
        mods[i]->stale |= i >= got || memcmp(u->pages[i], mods[i]->first_page, MODULE_PAGE) != 0;
        still &= !mods[i]->stale;
    }
    return still;
}

void native_stack_free(struct native_stack *s)
{
    free(s->items);
    *s = (struct native_stack){0};
}
