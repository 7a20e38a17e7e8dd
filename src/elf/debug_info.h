/*
 * Looks up the function at an address in DWARF, with inlined functions, files and lines. Uses libdw.
 *
 *     n = debug_info_find(d, vaddr, frames, 16);   // frames[0] is the innermost, frames[n - 1] is not inlined
 */
#ifndef ELF_DEBUG_INFO_H
#define ELF_DEBUG_INFO_H

#include "elf/elf_module.h"

struct debug_info;

struct debug_frame {
    const char *name; /* the linkage name if there is one, else the name with its scopes; NULL if unknown */
    const char *file; /* as the compiler saw it; NULL if unknown */
    int line;         /* 0 if unknown */
};

/*
 * Returns NULL if the file has no debug info or too much of it. Takes ownership of `alt`, the file with the debug info
 * that dwz moved out of `m`; NULL if there is none. `m` must outlive the result.
 */
struct debug_info *debug_info_new(struct elf_module *m, struct elf_module *alt);
struct debug_info *debug_info_free(struct debug_info *d);

/* Returns the number of frames, or 0 if nothing is known. If there are more than `max`, leaves out the innermost.
 * Strings live as long as `d`. */
size_t debug_info_find(struct debug_info *d, uint64_t vaddr, struct debug_frame *ret, size_t max);

#endif
