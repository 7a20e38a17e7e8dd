/*
 * A small synthetic ELF library. Its file bytes are also its image in memory (addresses equal offsets), so that it
 * serves the tests of files and those of images.
 */
#ifndef TESTS_UNIT_FAKE_ELF_H
#define TESTS_UNIT_FAKE_ELF_H

#include <stddef.h>
#include <stdint.h>

#define FAKE_ELF_DATA 0x2000 /* start of its writable data */

struct fake_symbol {
    const char *name;
    uint64_t value; /* 0: undefined */
};

struct fake_elf {
    unsigned char *bytes;
    size_t len;
    size_t dynamic, hash, symbols; /* offsets of these parts, for tests that damage them */
    size_t sections;
};

/* Dynamic symbols (found through .gnu.hash) end at the first one without a name; `local` ones are in .symtab only. */
void fake_elf_make(struct fake_elf *elf, const struct fake_symbol *dynamic, const struct fake_symbol *local,
                   size_t data_len);
void fake_elf_free(struct fake_elf *elf);

#endif
