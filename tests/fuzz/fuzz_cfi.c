/*
 * Unwind tables: .eh_frame with and without its header, .debug_frame. Looks up rows at the functions that the bytes
 * name, and evaluates their expressions. An input is 16 bytes (the kind, the addresses of the sections, the length of
 * the header), the header, the frames.
 */
#include "fuzz.h"
#include "unwind/cfi_expr.h"

#include <stdlib.h>
#include <string.h>

#define MAX_LOOKS 64

struct head {
    uint32_t is_debug, frame_at, header_at, header_len;
};

static int read_word(void *arg, uint64_t addr, uint64_t *ret)
{
    (void)arg;
    *ret = addr * 0x9e3779b97f4a7c15ull;
    return addr & 1 ? -1 : 0;
}

static void evaluate(const struct cfi_section *s, const struct cfi_rule *rule)
{
    struct cfi_expr_env env = {.known = 0x1ffff, .read_word = read_word};
    uint64_t value, cfa = 0x7000;

    if (rule->kind != CFI_EXPRESSION && rule->kind != CFI_VAL_EXPRESSION)
        return;
    for (unsigned i = 0; i < CFI_REGS; i++)
        env.regs[i] = 0x1000 * i;
    cfi_expr_eval(s, rule, &env, NULL, &value);
    cfi_expr_eval(s, rule, &env, &cfa, &value);
}

static void look(struct cfi_table *t, uint64_t pc)
{
    struct cfi_row row;

    if (cfi_find(t, pc, &row) < 0)
        return;
    if (pc < row.start || pc >= row.end || row.function > row.start || row.cfa.kind == CFI_SAME_VALUE ||
        (row.cfa.kind == CFI_CFA_REG_OFFSET && row.cfa.reg >= CFI_RA))
        abort();
    evaluate(&t->frame, &row.cfa);
    for (unsigned i = 0; i < CFI_REGS; i++) {
        if (row.regs[i].kind > CFI_VAL_EXPRESSION ||
            (row.regs[i].kind == CFI_REGISTER && row.regs[i].value >= CFI_REGS))
            abort();
        evaluate(&t->frame, &row.regs[i]);
    }
    /* The rest of the function, row by row. */
    for (int i = 0; i < MAX_LOOKS && row.end > pc && cfi_find(t, row.end, &row) == 0; i++)
        pc = row.start;
}

static void look_around(struct cfi_table *t)
{
    for (size_t i = 0; i < t->n_entries && i < MAX_LOOKS; i++) {
        if (i && t->entries[i - 1].start > t->entries[i].start)
            abort();
        look(t, t->entries[i].start);
        look(t, t->entries[i].start + 20);
    }
    look(t, 0);
    look(t, t->frame.addr);
    look(t, UINT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct head head;
    struct cfi_section header, frame;
    struct cfi_table by_scan, by_header;

    if (size < sizeof(head))
        return 0;
    memcpy(&head, data, sizeof(head));
    size -= sizeof(head);
    header = (struct cfi_section){.bytes = data + sizeof(head), .len = head.header_len, .addr = head.header_at};
    if (header.len > size)
        header.len = size;
    frame = (struct cfi_section){.bytes = header.bytes + header.len, .len = size - header.len, .addr = head.frame_at};
    if (head.is_debug ? cfi_table_make_debug(&by_scan, &frame, 0x7f0000000000) : cfi_table_make(&by_scan, &frame, NULL))
        return 0;
    look_around(&by_scan);
    if (!head.is_debug && cfi_table_make(&by_header, &frame, &header) == 0) {
        cfi_header_frame(&header);
        for (size_t i = 0; i < by_scan.n_entries && i < MAX_LOOKS; i++)
            look(&by_header, by_scan.entries[i].start + 1);
        look_around(&by_header);
        cfi_table_free(&by_header);
    }
    cfi_table_free(&by_scan);
    return 0;
}
