/*
 * An ELF file in memory that a JIT compiler registered.
 */
#include "elf/jit_object.h"
#include "elf/symbols.h"
#include "fuzz.h"
#include "unwind/module_tables.h"

#include <stdlib.h>
#include <string.h>

static void look_up(struct module *mod, uint64_t pc)
{
    struct symbols_source src = {
        .root_fd = -1, .path = "[JIT]", .fd = -1, .image = mod->image, .image_size = mod->image_len};
    const struct cfi_section *section;
    struct symbols_name names[16];
    struct modules ms = {0};
    struct symbols *s;
    struct cfi_row row;

    module_tables_load_image(&ms, mod);
    module_tables_row(&ms, mod, NULL, pc, &row, &section);
    if (symbols_open(&src, &s) == 0) {
        symbols_lookup(s, pc, names, 16);
        symbols_close(s);
    }
    module_tables_free(&ms, mod);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct module mod = {.image = malloc(size + 1), .image_len = size};
    struct jit_object_section code;
    uint64_t start, offset, pc = 0x1000;
    size_t n;

    if (!mod.image)
        return 0;
    memcpy(mod.image, data, size);
    jit_object_relocate(mod.image, size);
    if (size >= JIT_OBJECT_HEADER && jit_object_headers(mod.image, size, &offset, &n))
        for (size_t i = 0; i < n; i++)
            if (jit_object_is_code(mod.image + offset + i * JIT_OBJECT_SECTION, &code))
                pc = code.addr;
    jit_object_function(mod.image, size, pc, &start);
    look_up(&mod, pc);
    free(mod.image);
    return 0;
}
