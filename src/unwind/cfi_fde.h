/*
 * The entries of .eh_frame and .debug_frame. An FDE describes one function or a part of it; a CIE holds what several
 * FDEs share.
 */
#ifndef UNWIND_CFI_FDE_H
#define UNWIND_CFI_FDE_H

#include "unwind/cfi.h"

struct cfi_cie {
    uint64_t code_align;
    int64_t data_align;
    unsigned pointer_encoding;
    bool has_augmentation_data, is_signal;
    size_t program, end; /* position of the initial instructions in the section */
};

struct cfi_fde {
    struct cfi_cie cie;
    uint64_t start, size; /* the instructions it describes */
    uint64_t bias;        /* added to addresses in the program */
    size_t program, end;
};

/* Reads the FDE at `offset`. Returns false for a CIE, for the terminator and for an invalid entry. */
bool cfi_fde_read(const struct cfi_table *t, uint64_t offset, struct cfi_fde *ret);

/* Sets `*ret` to the offset of the entry after the one at `offset`. Returns false at the end. */
bool cfi_fde_next(const struct cfi_table *t, size_t offset, size_t *ret);

/* Executes the instructions of the CIE and the FDE up to `pc`, which lies in the FDE. Returns 0, or ERR_READ if they
 * are invalid. */
int cfi_program_row(const struct cfi_section *s, const struct cfi_fde *f, uint64_t pc, struct cfi_row *ret);

#endif
