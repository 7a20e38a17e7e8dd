/*
 * The ELF file in memory with which a JIT compiler describes its code to GDB. Compilers such as LLVM register the object
 * file as it was compiled, with the address of each section filled in. Its symbols and tables are still relative to the
 * sections: jit_object_relocate changes that. Everything in the file may be wrong or hostile.
 *
 *     jit_object_relocate(bytes, len);
 *     if (jit_object_section(bytes, len, ".eh_frame", &section))
 *         use(bytes + section.offset, section.len, section.addr);
 */
#ifndef ELF_JIT_OBJECT_H
#define ELF_JIT_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JIT_OBJECT_HEADER  64 /* bytes of the ELF header */
#define JIT_OBJECT_SECTION 64 /* bytes of a section header */

struct jit_object_section {
    uint64_t addr; /* in the target */
    size_t offset; /* in the file; 0 if the file does not contain the bytes */
    size_t len;
};

/* Finds the section headers of a file of `len` bytes. Returns false if there are none. */
bool jit_object_headers(const unsigned char header[JIT_OBJECT_HEADER], uint64_t len, uint64_t *ret_offset,
                        size_t *ret_n);

/* Reads a section header if it is of code that has an address. */
bool jit_object_is_code(const unsigned char section[JIT_OBJECT_SECTION], struct jit_object_section *ret);

/* Replaces relative values by addresses, in place. Does nothing if the file is not relocatable. */
void jit_object_relocate(unsigned char *bytes, size_t len);

/* Finds the start of the function that contains `pc`, after jit_object_relocate. */
bool jit_object_function(const unsigned char *bytes, size_t len, uint64_t pc, uint64_t *ret_start);

/* Finds a section that is in the file. */
bool jit_object_section(const unsigned char *bytes, size_t len, const char *name, struct jit_object_section *ret);

#endif
