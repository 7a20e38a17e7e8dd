/*
 * Symbolizes the addresses of one module (the program, a library, the vdso): functions with file and line, including
 * inlined ones. Uses, best first, a separate debug file inside the target's root, .symtab, .gnu_debugdata and .dynsym;
 * DWARF for lines and inlined functions. Reads each of them only when first needed.
 *
 *     struct symbols_source src = {.root_fd = root, .path = "/usr/lib/libz.so.1", .fd = fd};
 *     struct symbols_name names[16];
 *     if (symbols_open(&src, &s) == 0)
 *         n = symbols_lookup(s, pc - bias, names, 16);
 *
 * A `struct symbols` is not thread-safe. Files may be damaged or hostile, and may change while they are read.
 */
#ifndef ELF_SYMBOLS_H
#define ELF_SYMBOLS_H

#include "elf/cython.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symbols;

struct symbols_source {
    int root_fd;       /* the target's root directory; -1 means ours. Must stay open until symbols_close */
    const char *path;  /* of the module, as the target sees it */
    int fd;            /* of the module's file; owned by symbols_open, also on failure. -1 if there is none */
    const void *image; /* used if fd is -1: the bytes of the module, such as the vdso's. Copied. May be NULL */
    size_t image_size;
};

struct symbols_name {
    const char *name;        /* demangled, valid UTF-8, never NULL; for a Cython function, the Python name */
    const char *file;        /* source file as the compiler saw it, or the .pyx of a Cython function; NULL if unknown */
    int line;                /* 0 if unknown */
    bool inlined;            /* into the next function in the list */
    bool is_helper;          /* code that Cython adds to each module */
    enum cython_layer layer; /* CYTHON_NONE unless this is a function of a .pyx */
};

/* Returns 0, ERR_NOMEM, or ERR_READ if it is not a 64-bit little-endian ELF file. With neither fd nor image the result
 * is a module without symbols. */
int symbols_open(const struct symbols_source *src, struct symbols **ret);
struct symbols *symbols_close(struct symbols *s);

/*
 * Lists the functions at `vaddr`, innermost first: inlined functions, then the function that contains them. Returns
 * their number, or 0 if there is no symbol. If there are more than `max`, leaves out the innermost. `vaddr` is an
 * address in the ELF file (pc - load bias). For a frame that made a call, pass an address inside the call instruction,
 * not the return address. Strings live as long as `s`.
 */
size_t symbols_lookup(struct symbols *s, uint64_t vaddr, struct symbols_name *ret, size_t max);

/*
 * Finds the function at `vaddr` by its symbol alone, without file, line and inlined functions. Faster, because it reads
 * no debug info. Returns false if there is no symbol.
 */
bool symbols_function(struct symbols *s, uint64_t vaddr, struct symbols_name *ret);

/* True if symbols_lookup need not read from files any more: all symbols are in memory, and there is no debug info. */
bool symbols_in_memory(const struct symbols *s);

/* True if two adjacent frames belong to one call of a Cython function. Show only `inner` then. */
bool symbols_same_call(const struct symbols_name *outer, const struct symbols_name *inner);

#endif
