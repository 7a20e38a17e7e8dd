/*
 * Synthetic unwind tables, built byte by byte, for the tests of unwind/.
 *
 *     struct fake_cfi f = {.at = 0x2000};                          // address of the section's first byte
 *     fake_cfi_cie(&f, &(struct fake_cie){.letters = "zR"});       // CFA is rsp + 8, the return address is below
 *     fake_cfi_fde(&f, 0x1000, 0x100, "\\x41\\x0e\\x10", 3);          // a function: code from 0x1000 on, its program
 */
#ifndef TESTS_UNIT_FAKE_CFI_H
#define TESTS_UNIT_FAKE_CFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_CFI_ROOM 65536

/* A field that is 0 or NULL has the value that GCC uses. */
struct fake_cie {
    const char *letters;   /* "" as given; the data of z, P, L, R and S follow */
    unsigned encoding;     /* of addresses: 0x1b (pcrel, sdata4) */
    unsigned version;      /* 1 */
    unsigned address_size; /* 8; of version 4 and later */
    uint64_t code_align;   /* 1 */
    int64_t data_align;    /* -8 */
    uint64_t ra;           /* 16 */
    const char *program;   /* def_cfa rsp+8, offset ra-8 */
    size_t program_len;
    size_t header; /* 4: bytes of lengths and IDs; 8: the 64-bit form */
};

struct fake_cfi {
    unsigned char bytes[FAKE_CFI_ROOM];
    size_t len;
    uint64_t at;
    bool is_debug;
    struct fake_cie cie; /* the last CIE, and its offset */
    size_t cie_at;
    bool has_no_encoding; /* use encoding 0 rather than the default */
};

void fake_cfi_fixed(struct fake_cfi *f, uint64_t value, size_t size);
void fake_cfi_uleb(struct fake_cfi *f, uint64_t value);
void fake_cfi_sleb(struct fake_cfi *f, int64_t value);
void fake_cfi_bytes(struct fake_cfi *f, const void *bytes, size_t len);
/* An address in the encoding DW_EH_PE_…; `base` is for data-relative ones. */
void fake_cfi_pointer(struct fake_cfi *f, unsigned encoding, uint64_t value, uint64_t base);

/* Returns the offset of the entry. */
size_t fake_cfi_cie(struct fake_cfi *f, const struct fake_cie *cie);
size_t fake_cfi_fde(struct fake_cfi *f, uint64_t start, uint64_t size, const char *program, size_t program_len);
void fake_cfi_end(struct fake_cfi *f);

/* .eh_frame_hdr at `at` for FDEs at these offsets, in this order. `encoding` is that of the pointer to .eh_frame. */
void fake_cfi_header(struct fake_cfi *ret, uint64_t at, unsigned encoding, const struct fake_cfi *frame,
                     const uint64_t *starts, const size_t *offsets, size_t n);

#endif
