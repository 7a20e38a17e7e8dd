/*
 * DWARF of one file -> the functions at an address, inlined ones too, with file and line, by libdw.
 *
 *     n = debug_info_find(d, vaddr, frames, 16);      // frames[0] is the innermost, frames[n - 1] the real function
 */
#ifndef ELF_DEBUG_INFO_H
#define ELF_DEBUG_INFO_H

#include "elf/elf_module.h"

struct debug_info;

struct debug_frame {
    const char *name; /* mangled where the compiler told that, else with its scopes; NULL when unknown */
    const char *file; /* as the compiler saw it, or NULL */
    int line;         /* 0 when unknown */
};

/*
 * NULL when there is no debug info, or more than we are willing to read. Takes over `alt` (NULL: there is none), what
 * dwz took out of it. `m` must outlive the result.
 */
struct debug_info *debug_info_new(const struct elf_module *m, struct elf_module *alt);
struct debug_info *debug_info_free(struct debug_info *d);

/* The number of frames, 0 when nothing is known. Texts live as long as `d`. */
size_t debug_info_find(struct debug_info *d, uint64_t vaddr, struct debug_frame *ret, size_t max);

#endif
