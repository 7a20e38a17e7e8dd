/*
 * ELF files with symbols, stubs and debug info: looks up addresses all over the file; each name must be complete.
 */
#include "elf/symbols.h"
#include "fuzz.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define MAX     8
#define NO_ROOT 1000000 /* no descriptor: never reads a debug file of this machine */

static void look(struct symbols *s, uint64_t at)
{
    struct symbols_name names[MAX];
    size_t n = symbols_lookup(s, at, names, MAX);

    if (n > MAX)
        abort();
    for (size_t i = 0; i < n; i++)
        if (!names[i].name || !names[i].name[0] || names[i].line < 0 || (names[i].line && !names[i].file) ||
            names[i].inlined != (i + 1 < n))
            abort();
}

/* Addresses that the file itself mentions, and every few bytes of the code range of the corpus libraries. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct symbols_source src = {.root_fd = NO_ROOT, .path = "/lib/x.so", .fd = -1, .image = data, .image_size = size};
    struct symbols *s;
    Elf64_Ehdr header;

    if (symbols_open(&src, &s) < 0)
        return 0;
    if (size >= sizeof(header)) {
        memcpy(&header, data, sizeof(header));
        look(s, header.e_entry);
    }
    for (uint64_t at = 0x200; at < 0x280; at += 5)
        look(s, at);
    look(s, UINT64_MAX);
    symbols_close(s);
    return 0;
}
