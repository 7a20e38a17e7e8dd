/*
 * The build id that linkers put into programs and libraries: equal ids, equal code. Pure, every offset is checked.
 */
#ifndef ELF_BUILD_ID_H
#define ELF_BUILD_ID_H

#include "elf/elf_file.h"

#define BUILD_ID_MAX 32
/* The start of a file that holds all we look at: header, program headers and, as linkers lay it out, the note. */
#define BUILD_ID_HEAD 4096

struct build_id {
    unsigned char bytes[BUILD_ID_MAX];
    size_t len; /* 0: none */
};

/* From the bytes of a PT_NOTE segment; ERR_READ when there is none in it. */
int build_id_from_notes(const unsigned char *notes, size_t len, struct build_id *ret);

/* From a file, or from its first bytes only; ERR_READ when it has none there. */
int build_id_from_file(const struct elf_file *f, struct build_id *ret);

bool build_id_equal(const struct build_id *a, const struct build_id *b);

/* As 40 or so hex digits; "none" without one. */
struct build_id_text {
    char text[2 * BUILD_ID_MAX + 1];
};
struct build_id_text build_id_show(const struct build_id *id);

#endif
