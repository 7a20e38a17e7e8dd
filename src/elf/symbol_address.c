/*
 * Searches .symtab by name, from start to end: it has no hash table.
 */
#include "elf/symbol_address.h"

#include "base/err.h"
#include "elf/elf_module.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES ((size_t)256 << 20)

static bool find_tables(const struct elf_module *m, GElf_Shdr *ret_symbols, GElf_Shdr *ret_strings)
{
    size_t n;

    if (elf_getshdrnum(m->elf, &n) < 0)
        return false;
    for (size_t i = 1; i < n; i++)
        if (elf_module_section_nth(m, i, ret_symbols) && ret_symbols->sh_type == SHT_SYMTAB)
            return elf_module_section_nth(m, ret_symbols->sh_link, ret_strings);
    return false;
}

static int find(const unsigned char *symbols, size_t symbols_len, const unsigned char *strings, size_t strings_len,
                const char *name, uint64_t *ret)
{
    size_t len = strlen(name) + 1;

    for (size_t at = 0; symbols_len - at >= sizeof(Elf64_Sym); at += sizeof(Elf64_Sym)) {
        Elf64_Sym sym;

        memcpy(&sym, symbols + at, sizeof(sym));
        if (sym.st_shndx == SHN_UNDEF || !sym.st_value || sym.st_name >= strings_len ||
            len > strings_len - sym.st_name || memcmp(strings + sym.st_name, name, len) != 0)
            continue;
        *ret = sym.st_value;
        return 0;
    }
    return ERR_READ;
}

int symbol_address_find(int fd, const char *name, uint64_t *ret)
{
    unsigned char *symbols = NULL, *strings = NULL;
    GElf_Shdr symbols_header, strings_header;
    size_t symbols_len, strings_len;
    struct elf_module m;
    int r = elf_module_open(fcntl(fd, F_DUPFD_CLOEXEC, 0), &m);

    if (r < 0)
        return r;
    if (!find_tables(&m, &symbols_header, &strings_header))
        r = ERR_READ;
    if (r == 0)
        r = elf_module_read_section(&m, &symbols_header, MAX_BYTES, &symbols, &symbols_len);
    if (r == 0)
        r = elf_module_read_section(&m, &strings_header, MAX_BYTES, &strings, &strings_len);
    if (r == 0)
        r = find(symbols, symbols_len, strings, strings_len, name, ret);
    free(symbols);
    free(strings);
    elf_module_close(&m);
    return r;
}
