/*
 * Matches Python frames up to 3.10 to the native frames that run them.
 */
#include "sample/eval_frames.h"

#include "base/err.h"
#include "base/grow.h"
#include "unwind/cpu.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FRAME_BYTES ((addr_t)8192) /* searched per native frame; the eval function has a few hundred bytes */
#define MAX_GUESSES     64

void eval_frames_free(struct eval_frames *ef)
{
    free(ef->keys);
    free(ef->evals);
    free(ef->candidate);
    *ef = (struct eval_frames){0};
}

static const struct pc_entry *place_of(const struct native *n, size_t i)
{
    return n->stack.items[i].pc_entry;
}

static bool in_interpreter(const struct native *n, size_t i)
{
    return place_of(n, i)->module->start == n->names.interpreter;
}

static bool has_eval_name(const struct native *n, size_t i)
{
    const struct native_chain *c = native_frame_names(n, i);

    for (size_t k = 0; k < c->n; k++)
        if (c->items[k].is_eval)
            return true;
    return false;
}

/* True when the function saved a register of its caller at `at`. */
static bool is_saved_slot(const struct pc_entry *p, addr_t cfa, addr_t at)
{
    for (unsigned reg = 0; p->has_row && reg < CFI_REGS; reg++)
        if (p->row.regs[reg].kind == CFI_OFFSET && cfa + (addr_t)(int64_t)p->row.regs[reg].value == at)
            return true;
    return false;
}

/* A callee-saved register belongs to the function once it has saved the caller's value. */
static bool is_own_register(const struct pc_entry *p, size_t k)
{
    return p->has_row && p->row.regs[cpu_callee_saved_reg(k)].kind != CFI_SAME_VALUE;
}

/* The part of the native frame to search: what was copied, aligned. Both ends lie within the copy, so nothing can
 * overflow. */
static addr_t search_begin(const struct native *n, const struct native_frame *nf)
{
    return nf->sp > n->copy.addr ? (nf->sp + 7) & ~7ull : (n->copy.addr + 7) & ~7ull;
}

static addr_t search_end(const struct native *n, const struct native_frame *nf)
{
    addr_t end = nf->cfa - nf->sp < MAX_FRAME_BYTES ? nf->cfa : nf->sp + MAX_FRAME_BYTES;

    return end < n->copy.addr + n->copy.len ? end : n->copy.addr + n->copy.len;
}

/* True if the function has something of its own in a register whose value is not known: the registers of a sleeping thread are
 * known only from the frame on whose callee has saved them. */
static bool lacks_register(const struct native *n, size_t i)
{
    const struct native_frame *nf = &n->stack.items[i];

    for (size_t k = 0; k < CPU_CALLEE_SAVED; k++)
        if (!(nf->known >> k & 1) && is_own_register(nf->pc_entry, k))
            return true;
    return false;
}

bool eval_frames_lack_registers(const struct native *n)
{
    bool any_named = false, named = false, other = false;

    for (size_t i = 0; i < n->stack.n; i++) {
        bool is_named = in_interpreter(n, i) && has_eval_name(n, i);

        any_named |= is_named;
        named |= is_named && lacks_register(n, i);
        other |= in_interpreter(n, i) && lacks_register(n, i);
    }
    return any_named ? named : other;
}

static bool holds_address(const struct native *n, size_t i, addr_t frame)
{
    const struct native_frame *nf = &n->stack.items[i];
    addr_t end = search_end(n, nf);
    uint64_t word;

    for (size_t k = 0; k < CPU_CALLEE_SAVED; k++)
        if (nf->saved[k] == frame && is_own_register(nf->pc_entry, k))
            return true;
    for (addr_t at = search_begin(n, nf); at < end; at += 8)
        if (native_word(n, at, &word) && word == frame && !is_saved_slot(nf->pc_entry, nf->cfa, at))
            return true;
    return false;
}

static int compare_addr(const void *a, const void *b)
{
    addr_t x = ((const struct eval_frames_key *)a)->addr, y = ((const struct eval_frames_key *)b)->addr;

    return x < y ? -1 : x > y;
}

static int sort_frames(struct eval_frames *ef, const struct frames *f)
{
    if (grow_array((void **)&ef->keys, &ef->cap_keys, f->n + 1, sizeof(*ef->keys)) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < f->n; i++)
        ef->keys[i] = (struct eval_frames_key){f->items[i].addr, i};
    qsort(ef->keys, f->n, sizeof(*ef->keys), compare_addr);
    return 0;
}

/* The Python frame whose address is `word`, or EVAL_FRAMES_NONE. */
static size_t find_frame(const struct eval_frames *ef, size_t n_frames, addr_t word)
{
    struct eval_frames_key key = {word, 0}, *found = bsearch(&key, ef->keys, n_frames, sizeof(key), compare_addr);

    return found ? found->frame : EVAL_FRAMES_NONE;
}

/* The outermost of the first `limit` Python frames whose address native frame `i` holds, or EVAL_FRAMES_NONE. */
static size_t outermost_frame_held(const struct eval_frames *ef, const struct native *n, size_t n_frames, size_t i,
                                   size_t limit)
{
    const struct native_frame *nf = &n->stack.items[i];
    addr_t end = search_end(n, nf);
    size_t best = EVAL_FRAMES_NONE, found;
    uint64_t word;

    for (size_t k = 0; k < CPU_CALLEE_SAVED; k++) {
        found = is_own_register(nf->pc_entry, k) ? find_frame(ef, n_frames, nf->saved[k]) : EVAL_FRAMES_NONE;
        if (found < limit && (best == EVAL_FRAMES_NONE || found > best))
            best = found;
    }
    for (addr_t at = search_begin(n, nf); at < end; at += 8) {
        found = native_word(n, at, &word) ? find_frame(ef, n_frames, word) : EVAL_FRAMES_NONE;
        if (found < limit && (best == EVAL_FRAMES_NONE || found > best) && !is_saved_slot(nf->pc_entry, nf->cfa, at))
            best = found;
    }
    return best;
}

static void clear(size_t *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        at[i] = EVAL_FRAMES_NONE;
}

/* The usual case: as many eval frames as Python frames, and each holds the address of its own. */
static bool match_one_to_one(const struct eval_frames *ef, const struct native *n, const struct frames *f, size_t *at)
{
    if (ef->n_evals != f->n)
        return false;
    for (size_t i = 0; i < f->n; i++) {
        if (!holds_address(n, ef->evals[i], f->items[i].addr) && !lacks_register(n, ef->evals[i]))
            return false;
        at[i] = ef->evals[i];
    }
    return true;
}

/* Starts at the root. An eval frame gets the outermost remaining Python frame whose address it holds. Skips Python frames that
 * no eval frame holds (C code can push one) and eval frames without a Python frame (just entered, or of another coroutine
 * below). A frame of what `is_eval`, not only may be the eval function, may hold an address in a register that is not known: it
 * gets the next Python frame. Returns the number of matches. */
static size_t match_by_address(const struct eval_frames *ef, const struct native *n, const struct frames *f,
                               bool is_eval, size_t *at)
{
    size_t left = f->n, matched = 0;

    clear(at, f->n);
    for (size_t j = ef->n_evals; j > 0 && left > 0; j--) {
        size_t found = outermost_frame_held(ef, n, f->n, ef->evals[j - 1], left);

        if (found == EVAL_FRAMES_NONE && is_eval && lacks_register(n, ef->evals[j - 1]))
            found = left - 1;
        if (found == EVAL_FRAMES_NONE)
            continue;
        at[found] = ef->evals[j - 1];
        left = found;
        matched++;
    }
    return matched;
}

/* Matches by position only. In a complete stack the outermost eval frame runs the outermost Python frame, and an inner
 * eval frame may not have its frame yet. In a truncated stack the innermost ones match. */
static void match_by_count(const struct eval_frames *ef, const struct native *n, const struct frames *f, size_t *at)
{
    size_t skip = n->stack.complete && ef->n_evals > f->n ? ef->n_evals - f->n : 0;

    clear(at, f->n);
    for (size_t i = 0; i < f->n && skip + i < ef->n_evals; i++)
        at[i] = ef->evals[skip + i];
}

static bool saves_same_registers(const struct pc_entry *a, const struct pc_entry *b)
{
    if (!a->has_row || !b->has_row)
        return false;
    for (unsigned reg = 0; reg < CFI_REGS; reg++)
        if (a->row.regs[reg].kind != b->row.regs[reg].kind || a->row.regs[reg].value != b->row.regs[reg].value)
            return false;
    return true;
}

/* In a stripped binary, a cold part of the eval function has no name. It saves the same registers, and lies between
 * the eval frames around it. */
static void match_cold_parts(const struct native *n, const struct frames *f, size_t *at)
{
    const struct pc_entry *known = NULL;
    size_t from = 0;

    for (size_t g = 0; g < f->n && !known; g++)
        known = at[g] != EVAL_FRAMES_NONE ? place_of(n, at[g]) : NULL;
    for (size_t g = 0; known && g < f->n; g++) {
        size_t to = n->stack.n;

        for (size_t k = g + 1; k < f->n && to == n->stack.n; k++)
            to = at[k] != EVAL_FRAMES_NONE ? at[k] : to;
        for (size_t i = from; at[g] == EVAL_FRAMES_NONE && i < to; i++)
            if (in_interpreter(n, i) && !has_eval_name(n, i) && saves_same_registers(place_of(n, i), known) &&
                holds_address(n, i, f->items[g].addr))
                at[g] = i;
        if (at[g] != EVAL_FRAMES_NONE)
            from = at[g] + 1;
    }
}

/* Lists the native frames of the function that starts at `function`; 0: of the function with the name of the eval
 * function. */
static int list_eval_frames(struct eval_frames *ef, const struct native *n, addr_t function)
{
    ef->n_evals = 0;
    for (size_t i = 0; i < n->stack.n; i++) {
        const struct pc_entry *p = place_of(n, i);

        if (!in_interpreter(n, i) || !(function ? p->has_row && p->row.function == function : has_eval_name(n, i)))
            continue;
        if (grow_array((void **)&ef->evals, &ef->cap_evals, ef->n_evals + 1, sizeof(*ef->evals)) < 0)
            return ERR_NOMEM;
        ef->evals[ef->n_evals++] = i;
    }
    return 0;
}

static bool function_was_tried(const struct native *n, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (in_interpreter(n, k) && place_of(n, k)->row.function == place_of(n, i)->row.function)
            return true;
    return false;
}

/* No function has the name of the eval function, so take the one that holds the most Python frames. Its caller may
 * hold the same ones: then the inner function wins. */
static int match_by_guess(struct eval_frames *ef, const struct native *n, const struct frames *f, size_t *at)
{
    size_t best = 0, guesses = 0;

    if (grow_array((void **)&ef->candidate, &ef->cap_candidate, f->n + 1, sizeof(*ef->candidate)) < 0)
        return ERR_NOMEM;
    for (size_t i = 0; i < n->stack.n && guesses < MAX_GUESSES; i++) {
        size_t matched;

        if (!in_interpreter(n, i) || !place_of(n, i)->has_row || function_was_tried(n, i))
            continue;
        if (list_eval_frames(ef, n, place_of(n, i)->row.function) < 0)
            return ERR_NOMEM;
        guesses++;
        matched = match_by_address(ef, n, f, false, ef->candidate);
        if (matched <= best)
            continue;
        best = matched;
        memcpy(at, ef->candidate, f->n * sizeof(*at));
    }
    return 0;
}

int eval_frames_match(struct eval_frames *ef, const struct native *n, const struct frames *f, size_t *at)
{
    clear(at, f->n);
    if (list_eval_frames(ef, n, 0) < 0)
        return ERR_NOMEM;
    if (match_one_to_one(ef, n, f, at))
        return 0;
    if (sort_frames(ef, f) < 0)
        return ERR_NOMEM;
    if (ef->n_evals) {
        if (!match_by_address(ef, n, f, true, at))
            match_by_count(ef, n, f, at);
    } else if (match_by_guess(ef, n, f, at) < 0) {
        return ERR_NOMEM;
    }
    match_cold_parts(n, f, at);
    return 0;
}
