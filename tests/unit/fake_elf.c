/*
 * Builds the bytes of an ELF library from a list of symbols.
 */
#include "fake_elf.h"

#include "elf/elf_file.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define N_SECTIONS 7

static const char section_names[] = "\0.dynsym\0.dynstr\0.symtab\0.strtab\0.data\0.shstrtab";

/* Reserves `len` bytes at a multiple of 8; returns their offset. */
static size_t take(size_t *at, size_t len)
{
    size_t start = (*at + 7) & ~(size_t)7;

    *at = start + len;
    return start;
}

static size_t count(const struct fake_symbol *symbols)
{
    size_t n = 0;

    while (symbols[n].name)
        n++;
    return n;
}

static size_t names_len(const struct fake_symbol *symbols)
{
    size_t len = 1;

    for (; symbols->name; symbols++)
        len += strlen(symbols->name) + 1;
    return len;
}

/* Writes symbols from the second entry on (the first is empty), and their names. */
static void put_symbols(struct fake_elf *elf, size_t table, size_t names, const struct fake_symbol *symbols)
{
    size_t at = 1;

    for (size_t i = 0; symbols[i].name; i++) {
        Elf64_Sym sym = {.st_name = (Elf64_Word)at, .st_value = symbols[i].value, .st_info = STB_GLOBAL << 4};

        sym.st_shndx = symbols[i].value ? 5 : SHN_UNDEF;
        memcpy(elf->bytes + table + (i + 1) * sizeof(sym), &sym, sizeof(sym));
        memcpy(elf->bytes + names + at, symbols[i].name, strlen(symbols[i].name) + 1);
        at += strlen(symbols[i].name) + 1;
    }
}

/* One bucket that contains everything. */
static void put_hash(struct fake_elf *elf, const struct fake_symbol *symbols, size_t n)
{
    uint32_t head[4] = {1, 1, 1, 0}, bucket = n ? 1 : 0;
    uint64_t bloom = UINT64_MAX;

    memcpy(elf->bytes + elf->hash, head, sizeof(head));
    memcpy(elf->bytes + elf->hash + 16, &bloom, sizeof(bloom));
    memcpy(elf->bytes + elf->hash + 24, &bucket, sizeof(bucket));
    for (size_t i = 0; i < n; i++) {
        uint32_t link = (elf_file_gnu_hash(symbols[i].name) & ~1u) | (i + 1 == n);

        memcpy(elf->bytes + elf->hash + 28 + i * 4, &link, sizeof(link));
    }
}

static void put_headers(struct fake_elf *elf, size_t data_len)
{
    Elf64_Ehdr eh = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                     .e_type = ET_DYN,
                     .e_machine = EM_X86_64,
                     .e_version = EV_CURRENT,
                     .e_phoff = sizeof(eh),
                     .e_shoff = elf->sections,
                     .e_ehsize = sizeof(eh),
                     .e_phentsize = sizeof(Elf64_Phdr),
                     .e_phnum = 3,
                     .e_shentsize = sizeof(Elf64_Shdr),
                     .e_shnum = N_SECTIONS,
                     .e_shstrndx = 6};
    Elf64_Phdr ph[3] = {
        {.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = FAKE_ELF_DATA, .p_memsz = FAKE_ELF_DATA},
        {.p_type = PT_LOAD,
         .p_flags = PF_R | PF_W,
         .p_offset = FAKE_ELF_DATA,
         .p_vaddr = FAKE_ELF_DATA,
         .p_filesz = data_len,
         .p_memsz = data_len},
        {.p_type = PT_DYNAMIC, .p_offset = elf->dynamic, .p_vaddr = elf->dynamic, .p_memsz = 6 * sizeof(Elf64_Dyn)}};

    memcpy(elf->bytes, &eh, sizeof(eh));
    memcpy(elf->bytes + sizeof(eh), ph, sizeof(ph));
}

void fake_elf_make(struct fake_elf *elf, const struct fake_symbol *dynamic, const struct fake_symbol *local,
                   size_t data_len)
{
    size_t at = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr), n = count(dynamic), n_local = count(local);
    size_t symtab, strtab, dynstr, shstrtab;

    elf->symbols = take(&at, (n + 1) * sizeof(Elf64_Sym));
    dynstr = take(&at, names_len(dynamic));
    symtab = take(&at, (n_local + 1) * sizeof(Elf64_Sym));
    strtab = take(&at, names_len(local));
    elf->hash = take(&at, 28 + 4 * n);
    elf->dynamic = take(&at, 6 * sizeof(Elf64_Dyn));
    if (at > FAKE_ELF_DATA)
        abort();
    at = FAKE_ELF_DATA;
    take(&at, data_len);
    shstrtab = take(&at, sizeof(section_names));
    elf->sections = take(&at, N_SECTIONS * sizeof(Elf64_Shdr));
    elf->len = at;
    elf->bytes = calloc(1, at);
    if (!elf->bytes)
        abort();

    Elf64_Shdr sections[N_SECTIONS] = {
        {0},
        {.sh_name = 1, .sh_type = SHT_DYNSYM, .sh_offset = elf->symbols, .sh_size = (n + 1) * 24, .sh_link = 2},
        {.sh_name = 9, .sh_type = SHT_STRTAB, .sh_offset = dynstr, .sh_size = names_len(dynamic)},
        {.sh_name = 17, .sh_type = SHT_SYMTAB, .sh_offset = symtab, .sh_size = (n_local + 1) * 24, .sh_link = 4},
        {.sh_name = 25, .sh_type = SHT_STRTAB, .sh_offset = strtab, .sh_size = names_len(local)},
        {.sh_name = 33,
         .sh_type = SHT_PROGBITS,
         .sh_addr = FAKE_ELF_DATA,
         .sh_offset = FAKE_ELF_DATA,
         .sh_size = data_len},
        {.sh_name = 39, .sh_type = SHT_STRTAB, .sh_offset = shstrtab, .sh_size = sizeof(section_names)}};
    Elf64_Dyn dyn[6] = {
        {.d_tag = DT_SYMTAB, .d_un.d_val = elf->symbols},      {.d_tag = DT_STRTAB, .d_un.d_val = dynstr},
        {.d_tag = DT_STRSZ, .d_un.d_val = names_len(dynamic)}, {.d_tag = DT_GNU_HASH, .d_un.d_val = elf->hash},
        {.d_tag = DT_SYMENT, .d_un.d_val = sizeof(Elf64_Sym)}, {.d_tag = DT_NULL}};

    put_headers(elf, data_len);
    put_symbols(elf, elf->symbols, dynstr, dynamic);
    put_symbols(elf, symtab, strtab, local);
    put_hash(elf, dynamic, n);
    memcpy(elf->bytes + elf->dynamic, dyn, sizeof(dyn));
    memcpy(elf->bytes + shstrtab, section_names, sizeof(section_names));
    memcpy(elf->bytes + elf->sections, sections, sizeof(sections));
}

void fake_elf_free(struct fake_elf *elf)
{
    free(elf->bytes);
    *elf = (struct fake_elf){0};
}
