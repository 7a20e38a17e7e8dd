/*
 * The names of native code in one module (the program, a library, the vdso): an address -> functions with file and line.
 * The sources, best first: a separate debug file beneath the target's root, .symtab, .gnu_debugdata, .dynsym; DWARF for
 * lines and inlined functions. Everything is found and read when it is first needed.
 *
 *     struct symbols_source src = {.root_fd = root, .path = "/usr/lib/libz.so.1", .fd = fd};
 *     struct symbols_name names[16];
 *     if (symbols_open(&src, &s) == 0)
 *         n = symbols_lookup(s, pc - bias, names, 16);
 *
 * One thread at a time for each `struct symbols`. Files may be damaged, made up, or change while they are read.
 */
#ifndef ELF_SYMBOLS_H
#define ELF_SYMBOLS_H

#include "elf/cython.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symbols; /* of one module */

struct symbols_source {
    int root_fd;       /* directory beneath which the target's files are; -1: ours. Stays open until symbols_close */
    const char *path;  /* of the module, as the target sees it */
    int fd;            /* the module's file, taken over whatever the result; -1: only `image` or nothing is there */
    const void *image; /* or its bytes (the vdso, copied from memory), which are copied; NULL */
    size_t image_size;
};

struct symbols_name {
    const char *name;        /* demangled, valid UTF-8; never NULL */
    const char *file;        /* source file as the compiler saw it, or NULL */
    int line;                /* 0 when unknown */
    bool inlined;            /* this function was inlined into the next one in the list */
    bool is_cython;          /* a function of a .pyx: `name` is the Python one; so is the line, if `file` is a .pyx */
    bool is_helper;          /* code that Cython adds to each module */
    enum cython_layer layer; /* for symbols_same_call */
};

/* 0; ERR_READ when it is not an ELF file for us, ERR_NOMEM. With neither fd nor image: a module without any names. */
int symbols_open(const struct symbols_source *src, struct symbols **ret);
struct symbols *symbols_close(struct symbols *s);

/*
 * Innermost first: inlined functions, then the function itself. 0 when there is no name at all (the caller shows
 * module+offset). `vaddr` is the address in terms of the ELF file (pc - load bias); for a frame that has called another
 * one, pass the address of the call, not the one after it. With little room the innermost are left out. Strings live as
 * long as `s`.
 */
size_t symbols_lookup(struct symbols *s, uint64_t vaddr, struct symbols_name *ret, size_t max);

/*
 * The function at `vaddr` by its symbol alone, without file, line and what is inlined there: debug info, which takes
 * its time, is not read. False when it has no symbol.
 */
bool symbols_function(struct symbols *s, uint64_t vaddr, struct symbols_name *ret);

/* True when two frames that follow each other are one call of a Cython function: show `inner` alone. */
bool symbols_same_call(const struct symbols_name *outer, const struct symbols_name *inner);

const char *symbols_build_id(const struct symbols *s); /* hex or "" */

#endif
