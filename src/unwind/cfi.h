/*
 * Call frame information: how to restore the caller's registers at each instruction of a function (.eh_frame and
 * .debug_frame: DWARF 5, section 6.4; Linux Standard Base, "Exception Frames").
 *
 *     struct cfi_row row;
 *     if (cfi_find(&table, pc, &row) == 0 && row.cfa.kind == CFI_CFA_REG_OFFSET)
 *         cfa = regs[row.cfa.reg] + (uint64_t)(int64_t)row.cfa.value;
 */
#ifndef UNWIND_CFI_H
#define UNWIND_CFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CFI_REGS 17 /* by DWARF number; the last one is the return address */
#define CFI_RA   16

struct cfi_section {
    const unsigned char *bytes;
    size_t len;
    uint64_t addr; /* of bytes[0] in the target */
    /* Makes a part of `bytes` available, or returns false. NULL if all of it is available. */
    bool (*load)(void *arg, size_t pos, size_t len);
    void *arg;
};

struct cfi_entry {
    uint64_t start;  /* of the function */
    uint64_t offset; /* of its FDE in the section */
};

/* A lookup table from pc to FDE. */
struct cfi_table {
    struct cfi_section frame;
    struct cfi_section header; /* .eh_frame_hdr, sorted by the linker; if len is 0, `entries` is used instead */
    bool is_debug_frame;       /* .debug_frame, which encodes CIE ids and pointers differently */
    uint64_t bias;             /* .debug_frame: added to its addresses */
    size_t n_hdr_pairs;
    size_t hdr_pairs_pos; /* of the first pair in `header` */
    bool order_checked;   /* the pairs were checked to be sorted */
    struct cfi_entry *entries;
    size_t n_entries;
};

/* Register rules, with DWARF's names. */
enum cfi_rule_kind {
    CFI_SAME_VALUE,
    CFI_UNDEFINED,      /* lost; for the return address: there is no caller */
    CFI_OFFSET,         /* saved at CFA + value */
    CFI_VAL_OFFSET,     /* is CFA + value */
    CFI_REGISTER,       /* in register `value` */
    CFI_EXPRESSION,     /* saved at the address that the expression yields */
    CFI_VAL_EXPRESSION, /* is what the expression yields */
    CFI_CFA_REG_OFFSET, /* CFA only: register `reg` + value */
};

struct cfi_rule {
    uint8_t kind; /* enum cfi_rule_kind */
    uint8_t reg;
    uint16_t expr_len;
    int32_t value; /* for an expression: its position in the section */
};

/* The rules for all instructions from `start` to `end`. */
struct cfi_row {
    uint64_t start, end;
    uint64_t function; /* start of the FDE: the function, or a part of it that the compiler moved away (.cold) */
    struct cfi_rule cfa;
    struct cfi_rule regs[CFI_REGS];
    bool is_signal; /* a signal trampoline: its caller's registers are in the frame that the kernel pushed */
};

/* Makes the table of .eh_frame. Uses .eh_frame_hdr if it is given and valid, else scans all FDEs. Returns 0 or
 * ERR_NOMEM. */
int cfi_table_make(struct cfi_table *ret, const struct cfi_section *frame, const struct cfi_section *header);
/* Makes the table of .debug_frame. Returns 0 or ERR_NOMEM. */
int cfi_table_make_debug(struct cfi_table *ret, const struct cfi_section *frame, uint64_t bias);
void cfi_table_free(struct cfi_table *t);

/* The address of .eh_frame according to .eh_frame_hdr, or 0. */
uint64_t cfi_header_frame(const struct cfi_section *header);

/* Finds the row for `pc`. Returns 0 or ERR_READ. */
int cfi_find(struct cfi_table *t, uint64_t pc, struct cfi_row *ret);

#endif
