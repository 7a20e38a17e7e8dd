/*
 * Applies the relocations of an object file that a JIT compiler has loaded into its own process. Each relocation is
 * bounded by its section, and their number by the size of the file. Nothing is aligned, so everything is copied.
 */
#include "elf/jit_object.h"

#include <elf.h>
#include <string.h>

_Static_assert(sizeof(Elf64_Ehdr) == JIT_OBJECT_HEADER && sizeof(Elf64_Shdr) == JIT_OBJECT_SECTION, "64-bit ELF");

struct object {
    unsigned char *bytes;
    size_t len;
    uint64_t headers; /* offset of the section headers */
    size_t n;
    size_t budget; /* relocations that may still be applied: sections of a hostile file can overlap */
};

bool jit_object_headers(const unsigned char header[JIT_OBJECT_HEADER], uint64_t len, uint64_t *ret_offset,
                        size_t *ret_n)
{
    Elf64_Ehdr eh;

    memcpy(&eh, header, sizeof(eh));
    if (memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 || eh.e_ident[EI_CLASS] != ELFCLASS64 ||
        eh.e_ident[EI_DATA] != ELFDATA2LSB || eh.e_machine != EM_X86_64 || eh.e_shentsize != sizeof(Elf64_Shdr) ||
        eh.e_shoff > len || eh.e_shnum * sizeof(Elf64_Shdr) > len - eh.e_shoff)
        return false;
    *ret_offset = eh.e_shoff;
    *ret_n = eh.e_shnum;
    return eh.e_shnum > 0;
}

bool jit_object_is_code(const unsigned char section[JIT_OBJECT_SECTION], struct jit_object_section *ret)
{
    Elf64_Shdr sh;

    memcpy(&sh, section, sizeof(sh));
    if (!(sh.sh_flags & SHF_ALLOC) || !(sh.sh_flags & SHF_EXECINSTR) || !sh.sh_addr || !sh.sh_size ||
        sh.sh_size > UINT64_MAX - sh.sh_addr)
        return false;
    *ret = (struct jit_object_section){.addr = sh.sh_addr, .len = sh.sh_size};
    return true;
}

static bool open_object(unsigned char *bytes, size_t len, struct object *ret)
{
    *ret = (struct object){.bytes = bytes, .len = len, .budget = len / sizeof(Elf64_Rela)};
    return len >= JIT_OBJECT_HEADER && jit_object_headers(bytes, len, &ret->headers, &ret->n);
}

static bool section_nth(const struct object *o, size_t i, Elf64_Shdr *ret)
{
    if (i >= o->n)
        return false;
    memcpy(ret, o->bytes + o->headers + i * sizeof(*ret), sizeof(*ret));
    return true;
}

/* True if the file contains the bytes of the section. */
static bool has_bytes(const struct object *o, const Elf64_Shdr *sh)
{
    return sh->sh_type != SHT_NOBITS && sh->sh_offset <= o->len && sh->sh_size <= o->len - sh->sh_offset;
}

/* Finds the symbol table. A valid file has only one. */
static bool find_symbols(const struct object *o, Elf64_Shdr *ret)
{
    for (size_t i = 1; section_nth(o, i, ret); i++)
        if (ret->sh_type == SHT_SYMTAB && has_bytes(o, ret))
            return true;
    return false;
}

static void relocate_symbols(const struct object *o, const Elf64_Shdr *table)
{
    for (uint64_t at = 0; table->sh_size - at >= sizeof(Elf64_Sym); at += sizeof(Elf64_Sym)) {
        Elf64_Shdr section;
        Elf64_Sym sym;

        memcpy(&sym, o->bytes + table->sh_offset + at, sizeof(sym));
        if (sym.st_shndx == SHN_UNDEF || !section_nth(o, sym.st_shndx, &section))
            continue;
        sym.st_value += section.sh_addr;
        memcpy(o->bytes + table->sh_offset + at, &sym, sizeof(sym));
    }
}

/* Symbols of other modules are unknown, but no table refers to them. */
static bool symbol_value(const struct object *o, const Elf64_Shdr *table, uint64_t i, uint64_t *ret)
{
    Elf64_Sym sym;

    if (i >= table->sh_size / sizeof(sym))
        return false;
    memcpy(&sym, o->bytes + table->sh_offset + i * sizeof(sym), sizeof(sym));
    *ret = sym.st_value;
    return sym.st_shndx != SHN_UNDEF && sym.st_shndx != SHN_COMMON;
}

static void apply(const struct object *o, const Elf64_Shdr *section, const Elf64_Shdr *symbols, const Elf64_Rela *rela)
{
    uint64_t type = ELF64_R_TYPE(rela->r_info), value;
    size_t size = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;

    if ((size == 4 && type != R_X86_64_PC32 && type != R_X86_64_32 && type != R_X86_64_32S) ||
        rela->r_offset > section->sh_size || size > section->sh_size - rela->r_offset ||
        !symbol_value(o, symbols, ELF64_R_SYM(rela->r_info), &value))
        return;
    value += (uint64_t)rela->r_addend;
    if (type == R_X86_64_PC32 || type == R_X86_64_PC64)
        value -= section->sh_addr + rela->r_offset;
    memcpy(o->bytes + section->sh_offset + rela->r_offset, &value, size); /* little-endian */
}

/* The code is already relocated where it was loaded, and not read from here. */
static void apply_all(struct object *o, const Elf64_Shdr *relocations)
{
    Elf64_Shdr section, symbols;

    if (!section_nth(o, relocations->sh_info, &section) || !section_nth(o, relocations->sh_link, &symbols) ||
        section.sh_flags & (SHF_EXECINSTR | SHF_COMPRESSED) || !has_bytes(o, &section) || !has_bytes(o, &symbols))
        return;
    for (uint64_t at = 0; relocations->sh_size - at >= sizeof(Elf64_Rela) && o->budget > 0; at += sizeof(Elf64_Rela)) {
        Elf64_Rela rela;

        memcpy(&rela, o->bytes + relocations->sh_offset + at, sizeof(rela));
        apply(o, &section, &symbols, &rela);
        o->budget--;
    }
}

void jit_object_relocate(unsigned char *bytes, size_t len)
{
    struct object o;
    Elf64_Shdr sh;
    Elf64_Ehdr eh;

    if (!open_object(bytes, len, &o))
        return;
    memcpy(&eh, bytes, sizeof(eh));
    if (eh.e_type != ET_REL)
        return;
    if (find_symbols(&o, &sh))
        relocate_symbols(&o, &sh);
    for (size_t i = 1; o.budget > 0 && section_nth(&o, i, &sh); i++)
        if (sh.sh_type == SHT_RELA && has_bytes(&o, &sh))
            apply_all(&o, &sh);
    eh.e_type = ET_EXEC;
    memcpy(bytes, &eh, sizeof(eh));
}

bool jit_object_function(const unsigned char *bytes, size_t len, uint64_t pc, uint64_t *ret_start)
{
    struct object o;
    Elf64_Shdr sh;

    if (!open_object((unsigned char *)bytes, len, &o) || !find_symbols(&o, &sh))
        return false;
    for (uint64_t at = 0; sh.sh_size - at >= sizeof(Elf64_Sym); at += sizeof(Elf64_Sym)) {
        Elf64_Sym sym;

        memcpy(&sym, bytes + sh.sh_offset + at, sizeof(sym));
        if (ELF64_ST_TYPE(sym.st_info) == STT_FUNC && sym.st_shndx != SHN_UNDEF && pc >= sym.st_value &&
            pc - sym.st_value < sym.st_size) {
            *ret_start = sym.st_value;
            return true;
        }
    }
    return false;
}

static bool has_name(const struct object *o, const Elf64_Shdr *strings, const Elf64_Shdr *sh, const char *name)
{
    size_t len = strlen(name) + 1;

    return sh->sh_name <= strings->sh_size && len <= strings->sh_size - sh->sh_name &&
           memcmp(o->bytes + strings->sh_offset + sh->sh_name, name, len) == 0;
}

bool jit_object_section(const unsigned char *bytes, size_t len, const char *name, struct jit_object_section *ret)
{
    struct object o;
    Elf64_Shdr sh, strings;
    Elf64_Ehdr eh;

    if (!open_object((unsigned char *)bytes, len, &o))
        return false;
    memcpy(&eh, bytes, sizeof(eh));
    if (!section_nth(&o, eh.e_shstrndx, &strings) || !has_bytes(&o, &strings))
        return false;
    for (size_t i = 1; section_nth(&o, i, &sh); i++)
        if (has_name(&o, &strings, &sh, name) && has_bytes(&o, &sh) && sh.sh_size) {
            *ret = (struct jit_object_section){.addr = sh.sh_addr, .offset = sh.sh_offset, .len = sh.sh_size};
            return true;
        }
    return false;
}
