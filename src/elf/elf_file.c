/*
 * A minimal ELF parser for symbol lookup. Fuzzed.
 */
#include "elf/elf_file.h"

#include "base/err.h"

#include <elf.h>
#include <string.h>

static const void *bytes_at(const struct elf_file *f, uint64_t at, uint64_t len)
{
    return at <= f->len && len <= f->len - at ? f->bytes + at : NULL;
}

bool elf_file_valid(const struct elf_file *f)
{
    const Elf64_Ehdr *eh = bytes_at(f, 0, sizeof(*eh));

    return eh && memcmp(eh->e_ident, ELFMAG, SELFMAG) == 0 && eh->e_ident[EI_CLASS] == ELFCLASS64 &&
           eh->e_ident[EI_DATA] == ELFDATA2LSB;
}

/* Copies the header, because nothing guarantees its alignment. */
static bool section_nth(const struct elf_file *f, size_t i, Elf64_Shdr *ret)
{
    Elf64_Ehdr eh;
    const void *at;

    memcpy(&eh, f->bytes, sizeof(eh));
    if (i >= eh.e_shnum || eh.e_shentsize != sizeof(*ret))
        return false;
    at = bytes_at(f, eh.e_shoff, (uint64_t)eh.e_shnum * sizeof(*ret));
    if (!at)
        return false;
    memcpy(ret, (const char *)at + i * sizeof(*ret), sizeof(*ret));
    return true;
}

/* True if the string at `at` of a string table is `name`. Compares only that many bytes, so an unterminated table does
 * not cost time. */
static bool string_equals(const struct elf_file *f, const Elf64_Shdr *table, uint64_t at, const char *name)
{
    size_t len = strlen(name) + 1;

    if (at > table->sh_size || len > table->sh_size - at || !bytes_at(f, table->sh_offset, table->sh_size))
        return false;
    return memcmp(f->bytes + table->sh_offset + at, name, len) == 0;
}

static bool find_in_table(const struct elf_file *f, const Elf64_Shdr *table, const char *name, addr_t *ret)
{
    Elf64_Shdr strings;
    const unsigned char *symbols = bytes_at(f, table->sh_offset, table->sh_size);

    if (!symbols || !section_nth(f, table->sh_link, &strings))
        return false;
    for (uint64_t i = 0; i < table->sh_size / sizeof(Elf64_Sym); i++) {
        Elf64_Sym sym;

        memcpy(&sym, symbols + i * sizeof(sym), sizeof(sym));
        if (sym.st_shndx == SHN_UNDEF || !sym.st_value)
            continue;
        if (string_equals(f, &strings, sym.st_name, name)) {
            *ret = sym.st_value;
            return true;
        }
    }
    return false;
}

int elf_file_symbol(const struct elf_file *f, const char *name, addr_t *ret)
{
    Elf64_Shdr section;
    bool searched[2] = {false, false}; /* a valid file has one table of each type; more would only cost time */

    if (!elf_file_valid(f))
        return ERR_READ;
    for (size_t i = 0; section_nth(f, i, &section); i++) {
        bool *was_searched = &searched[section.sh_type == SHT_DYNSYM];

        if ((section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM) || *was_searched)
            continue;
        *was_searched = true;
        if (find_in_table(f, &section, name, ret))
            return 0;
    }
    return ERR_READ;
}

unsigned int elf_file_gnu_hash(const char *name)
{
    unsigned int h = 5381;

    for (; *name; name++)
        h = h * 33 + (unsigned char)*name;
    return h;
}
