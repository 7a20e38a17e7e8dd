/*
 * The build ID that linkers put into programs and libraries: files with equal IDs have equal code. Every offset is
 * bounds-checked.
 */
#ifndef ELF_BUILD_ID_H
#define ELF_BUILD_ID_H

#include "elf/elf_file.h"

#define BUILD_ID_MAX 32
/* The first bytes of a file that suffice to find its build ID: linkers place the note right after the program
 * headers. */
#define BUILD_ID_HEAD 4096

struct build_id {
    unsigned char bytes[BUILD_ID_MAX];
    size_t len; /* 0 if there is none */
};

/* Finds the build ID in the bytes of a PT_NOTE segment. Returns 0 or ERR_READ. */
int build_id_from_notes(const unsigned char *notes, size_t len, struct build_id *ret);

/* Finds the build ID in a file, or in its first bytes. Returns 0 or ERR_READ. */
int build_id_from_file(const struct elf_file *f, struct build_id *ret);

bool build_id_equal(const struct build_id *a, const struct build_id *b);

/* Hexadecimal digits, or "none". */
struct build_id_text {
    char text[2 * BUILD_ID_MAX + 1];
};
struct build_id_text build_id_show(const struct build_id *id);

#endif
