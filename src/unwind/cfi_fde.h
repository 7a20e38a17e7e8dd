/*
 * The entries of .eh_frame and .debug_frame: a CIE is what several functions share, an FDE is one function, or a part of
 * one that lies apart.
 */
#ifndef UNWIND_CFI_FDE_H
#define UNWIND_CFI_FDE_H

#include "unwind/cfi.h"

struct cfi_cie {
    uint64_t code_align;
    int64_t data_align;
    unsigned pointer_encoding;
    bool has_augmentation_data, is_signal;
    size_t program, end;
};

struct cfi_fde {
    struct cfi_cie cie;
    uint64_t start, size;
    uint64_t bias; /* what to add to addresses in its program */
    size_t program, end;
};

/* The FDE at `offset` of the section; false for a CIE, for the end, and for what is broken. */
bool cfi_fde_read(const struct cfi_table *t, uint64_t offset, struct cfi_fde *ret);

/* Where the entry behind that at `offset` begins; false when there is no more. */
bool cfi_fde_next(const struct cfi_table *t, size_t offset, size_t *ret);

/* Runs the programs of an FDE and its CIE up to `pc`, which is in it. ERR_READ when they make no sense. */
int cfi_program_row(const struct cfi_section *s, const struct cfi_fde *f, uint64_t pc, struct cfi_row *ret);

#endif
