/*
 * The interface through which JIT compilers describe their code to GDB. The program or a library has a variable
 * __jit_debug_descriptor, the head of a list; each entry has an ELF file in memory with symbols and unwind tables
 * (elf/jit_object.h). LLVM registers all code of MCJIT, so numba's; CPython registers its own from 3.15 on.
 *
 * The list is read when generated code is first seen in a stack, and again when an update could change the result.
 */
#ifndef UNWIND_JIT_CODE_H
#define UNWIND_JIT_CODE_H

#include "unwind/modules.h"

struct jit_entry {
    addr_t file; /* in the target */
    uint64_t len;
    addr_t start, end; /* all its code lies there, and maybe other code */
    bool tried;        /* the file was read */
    uint64_t hash;     /* of the file as it was read */
    struct module *object;
};

struct jit_code {
    struct jit_entry *entries; /* in the order of the list, which has the newest first */
    size_t n, cap, n_objects;
    uint64_t bytes; /* of all files that were read */
    bool was_read;  /* the list was read at least once */
    bool missed;    /* code without unwind tables was seen: it may have been registered since */
};

/* The object that describes the code at `pc`, or NULL. It has no unwind table if it is known by name only. */
struct module *jit_code_find(struct jit_code *j, struct modules *ms, struct mem *m, addr_t pc);

/* Call it after modules_update. Returns true if code was registered or unregistered; then objects may be invalid. */
bool jit_code_update(struct jit_code *j, struct modules *ms, struct mem *m);
void jit_code_free(struct jit_code *j, struct modules *ms);

#endif
