/*
 * Call frame information: how to get from a function's frame to its caller's, at each of its instructions (.eh_frame
 * and .debug_frame: DWARF 5, 6.4; Linux Standard Base, "Exception Frames"). Pure: bytes in, one row out.
 *
 *     struct cfi_row row;
 *     if (cfi_find(&table, pc, &row) == 0) …    // row.cfa, row.regs
 */
#ifndef UNWIND_CFI_H
#define UNWIND_CFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CFI_REGS 17 /* by DWARF number; the last is the return address */
#define CFI_RA   16

/* A section, and the address that its first byte has in the target. */
struct cfi_section {
    const unsigned char *bytes;
    size_t len;
    uint64_t at;
    /* Sees to it that this part of `bytes` is there; false: it cannot be had. NULL: all of it is. */
    bool (*load)(void *arg, size_t pos, size_t len);
    void *arg;
};

struct cfi_entry {
    uint64_t start;
    uint64_t offset; /* of its FDE */
};

/* The FDEs of a module, found by a binary search. */
struct cfi_table {
    struct cfi_section frame;
    struct cfi_section header; /* .eh_frame_hdr, sorted by the linker; len 0: `entries` instead */
    bool is_debug;             /* .debug_frame: its ids and offsets are other ones */
    uint64_t bias;             /* .debug_frame: what to add to its addresses */
    size_t n_header;           /* pairs in the header */
    size_t header_pairs;       /* where they begin */
    bool checked;              /* they are in order */
    struct cfi_entry *entries;
    size_t n_entries;
};

enum cfi_kind {
    CFI_SAME,       /* as in the callee */
    CFI_UNDEFINED,  /* lost; for the return address: there is no caller */
    CFI_AT_CFA,     /* saved at CFA + value */
    CFI_IS_CFA,     /* CFA + value */
    CFI_REG,        /* in register `value` */
    CFI_AT_EXPR,    /* saved where the expression says */
    CFI_IS_EXPR,    /* what the expression says */
    CFI_REG_OFFSET, /* CFA only: register `reg` + value */
};

struct cfi_rule {
    uint8_t kind;
    uint8_t reg;
    uint16_t expr_len;
    int32_t value; /* an expression's place in the section */
};

/* Good for all instructions from `start` to `end`. */
struct cfi_row {
    uint64_t start, end;
    uint64_t function; /* where the function begins, or the part of it that lies apart */
    struct cfi_rule cfa;
    struct cfi_rule regs[CFI_REGS];
    bool is_signal; /* the frame that the kernel makes for a signal handler */
};

/* Makes the table of a section: by the header if that is usable, else by a pass over all FDEs. 0 or ERR_NOMEM. */
int cfi_table_make(struct cfi_table *ret, const struct cfi_section *frame, const struct cfi_section *header);
int cfi_table_make_debug(struct cfi_table *ret, const struct cfi_section *frame, uint64_t bias);
void cfi_table_free(struct cfi_table *t);

/* Where .eh_frame is, as .eh_frame_hdr says; 0: it does not. */
uint64_t cfi_header_frame(const struct cfi_section *header);

/* The row of an instruction; ERR_READ when there is none. */
int cfi_find(struct cfi_table *t, uint64_t pc, struct cfi_row *ret);

#endif
