/*
 * Names PLT stubs. A stub jumps through a GOT slot, and the relocation of that slot names the function. The slot is
 * decoded from the instructions of the stub, because linkers order stubs differently.
 */
#include "elf/plt.h"

#include <string.h>

#define STUB_MAX     16
#define RELOCS_CHUNK 1024
#define RELOCS_MAX   ((size_t)1 << 22)

static bool find_plt_section(const struct elf_module *m, uint64_t vaddr, GElf_Shdr *ret)
{
    size_t n;

    if (elf_getshdrnum(m->elf, &n) < 0)
        return false;
    for (size_t i = 1; i < n; i++) {
        if (!elf_module_section_nth(m, i, ret) || ret->sh_type != SHT_PROGBITS || !(ret->sh_flags & SHF_EXECINSTR))
            continue;
        if (vaddr >= ret->sh_addr && vaddr - ret->sh_addr < ret->sh_size)
            return strncmp(elf_module_section_name(m, ret), ".plt", 4) == 0;
    }
    return false;
}

bool plt_contains(const struct elf_module *m, uint64_t vaddr)
{
    GElf_Shdr section;

    return find_plt_section(m, vaddr, &section);
}

static uint32_t word_at(const unsigned char *code)
{
    uint32_t w;

    memcpy(&w, code, sizeof(w));
    return w;
}

/* What a stub refers to: the address of a GOT slot or, if `is_index`, the index of a relocation. */
struct stub {
    uint64_t slot;
    bool is_index;
};

/* `jmp *slot(%rip)`; if the jump is in .plt.sec, `push $index`. */
static bool decode_x86_64(const unsigned char *code, size_t len, uint64_t at, struct stub *ret)
{
    for (size_t i = 0; i + 6 <= len; i++) {
        if (code[i] == 0xff && code[i + 1] == 0x35)
            return false; /* PLT0, which calls the dynamic linker */
        if (code[i] == 0xff && code[i + 1] == 0x25) {
            *ret = (struct stub){at + i + 6 + (uint64_t)(int32_t)word_at(code + i + 2), false};
            return true;
        }
        if (code[i] == 0x68) {
            *ret = (struct stub){word_at(code + i + 1), true};
            return true;
        }
    }
    return false;
}

/* `adrp x16, page; ldr x17, [x16, #offset]` */
static bool decode_aarch64(const unsigned char *code, size_t len, uint64_t at, struct stub *ret)
{
    for (size_t i = 0; i + 8 <= len; i += 4) {
        uint32_t adrp = word_at(code + i), ldr = word_at(code + i + 4);
        uint64_t page;

        if ((adrp & 0x9f00001f) != 0x90000010 || (ldr & 0xffc003ff) != 0xf9400211)
            continue;
        page = ((uint64_t)((adrp >> 5) & 0x7ffff) << 2 | ((adrp >> 29) & 3)) << 12;
        page |= page & (UINT64_C(1) << 32) ? ~((UINT64_C(1) << 33) - 1) : 0;
        *ret = (struct stub){((at + i) & ~UINT64_C(0xfff)) + page + ((ldr >> 10 & 0xfff) << 3), false};
        return true;
    }
    return false;
}

static bool decode_stub_at(const struct elf_module *m, const GElf_Shdr *section, uint64_t vaddr, struct stub *ret)
{
    uint64_t size = section->sh_entsize == 8 ? 8 : STUB_MAX;
    uint64_t offset = (vaddr - section->sh_addr) / size * size;
    size_t len = (size_t)(section->sh_size - offset < size ? section->sh_size - offset : size);
    unsigned char code[STUB_MAX];
    GElf_Ehdr header;

    if (!gelf_getehdr(m->elf, &header) || elf_module_read(m, section->sh_offset + offset, code, len) < 0)
        return false;
    switch (header.e_machine) {
    case EM_X86_64:
        return decode_x86_64(code, len, section->sh_addr + offset, ret);
    case EM_AARCH64:
        return decode_aarch64(code, len, section->sh_addr + offset, ret);
    default:
        return false;
    }
}

static bool find_reloc_in(const struct elf_module *m, const GElf_Shdr *section, const struct stub *stub,
                          Elf64_Rela *ret)
{
    Elf64_Rela relocs[RELOCS_CHUNK];
    size_t count = section->sh_size / sizeof(*relocs);

    if (stub->is_index)
        return stub->slot < count &&
               elf_module_read(m, section->sh_offset + stub->slot * sizeof(*ret), ret, sizeof(*ret)) == 0;
    for (size_t i = 0; i < count && i < RELOCS_MAX; i += RELOCS_CHUNK) {
        size_t n = count - i < RELOCS_CHUNK ? count - i : RELOCS_CHUNK;

        if (elf_module_read(m, section->sh_offset + i * sizeof(*relocs), relocs, n * sizeof(*relocs)) < 0)
            return false;
        for (size_t k = 0; k < n; k++)
            if (relocs[k].r_offset == stub->slot) {
                *ret = relocs[k];
                return true;
            }
    }
    return false;
}

/* Finds the relocation of a stub and the symbol table that it refers to. */
static bool find_reloc(const struct elf_module *m, const struct stub *stub, Elf64_Rela *ret, GElf_Shdr *ret_symbols)
{
    static const char *const names[] = {".rela.plt", ".rela.dyn"};

    for (size_t i = 0; i < (stub->is_index ? 1 : 2); i++) {
        GElf_Shdr section;

        if (elf_module_section(m, names[i], &section) && section.sh_type == SHT_RELA &&
            find_reloc_in(m, &section, stub, ret))
            return elf_module_section_nth(m, section.sh_link, ret_symbols);
    }
    return false;
}

static bool read_symbol_name(const struct elf_module *m, const GElf_Shdr *symbols, uint32_t index,
                             char ret[SYMBOL_TABLE_NAME_ROOM])
{
    Elf64_Sym sym;
    GElf_Shdr strings;

    return symbols->sh_type == SHT_DYNSYM && index < symbols->sh_size / sizeof(sym) &&
           elf_module_read(m, symbols->sh_offset + index * sizeof(sym), &sym, sizeof(sym)) == 0 &&
           elf_module_section_nth(m, symbols->sh_link, &strings) &&
           elf_module_read_string(m, &strings, sym.st_name, ret, SYMBOL_TABLE_NAME_ROOM) && ret[0] != '\0';
}

bool plt_find(const struct elf_module *m, struct symbol_table *table, uint64_t vaddr,
              char ret_name[SYMBOL_TABLE_NAME_ROOM])
{
    GElf_Shdr stubs, symbols;
    struct stub stub;
    Elf64_Rela reloc;
    uint64_t start;

    if (!find_plt_section(m, vaddr, &stubs) || !decode_stub_at(m, &stubs, vaddr, &stub) ||
        !find_reloc(m, &stub, &reloc, &symbols))
        return false;
    /* IRELATIVE relocations have no symbol: the addend is the address of the module's own IFUNC resolver. */
    if (ELF64_R_SYM(reloc.r_info) == 0)
        return table && symbol_table_find(table, (uint64_t)reloc.r_addend, &start, ret_name);
    return read_symbol_name(m, &symbols, (uint32_t)ELF64_R_SYM(reloc.r_info), ret_name);
}
