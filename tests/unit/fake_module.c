/*
 * Places the bytes of ELF files in synthetic memory. A failure aborts the test.
 */
#include "fake_module.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void put_header(struct fake_mem *m, addr_t at, size_t n)
{
    Elf64_Ehdr eh = {.e_type = ET_DYN,
                     .e_machine = EM_X86_64,
                     .e_version = EV_CURRENT,
                     .e_phoff = sizeof(eh),
                     .e_ehsize = sizeof(eh),
                     .e_phentsize = sizeof(Elf64_Phdr),
                     .e_phnum = (Elf64_Half)n};

    memcpy(eh.e_ident, ELFMAG, SELFMAG);
    eh.e_ident[EI_CLASS] = ELFCLASS64;
    eh.e_ident[EI_DATA] = ELFDATA2LSB;
    eh.e_ident[EI_VERSION] = EV_CURRENT;
    fake_mem_put_bytes(m, at, &eh, sizeof(eh));
}

void fake_module_phdr(struct fake_mem *m, addr_t at, size_t i, const Elf64_Phdr *phdr)
{
    Elf64_Ehdr *eh = fake_mem_at(m, at, sizeof(*eh));

    if (i >= eh->e_phnum)
        eh->e_phnum = (Elf64_Half)(i + 1);
    fake_mem_put_bytes(m, at + sizeof(*eh) + i * sizeof(*phdr), phdr, sizeof(*phdr));
}

void fake_module_put(struct fake_mem *m, addr_t at)
{
    Elf64_Phdr load = {
        .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = FAKE_MODULE_SIZE, .p_memsz = FAKE_MODULE_SIZE};

    fake_mem_add(m, at, FAKE_MODULE_SIZE);
    put_header(m, at, 1);
    fake_module_phdr(m, at, 0, &load);
}

void fake_module_tables(struct fake_mem *m, addr_t at, const struct fake_cfi *frame, const uint64_t *starts,
                        const size_t *offsets, size_t n)
{
    static struct fake_cfi header;
    Elf64_Phdr phdr = {.p_type = PT_GNU_EH_FRAME, .p_vaddr = FAKE_MODULE_HEADER, .p_offset = FAKE_MODULE_HEADER};

    fake_cfi_header(&header, at + FAKE_MODULE_HEADER, 0x1b, frame, starts, offsets, n);
    phdr.p_filesz = phdr.p_memsz = header.len;
    fake_module_phdr(m, at, 1, &phdr);
    fake_mem_put_bytes(m, at + FAKE_MODULE_HEADER, header.bytes, header.len);
    fake_mem_put_bytes(m, at + FAKE_MODULE_FRAME, frame->bytes, frame->len);
}

static unsigned char *read_file(const char *path, size_t *ret_len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    unsigned char *bytes;

    if (fd < 0 || fstat(fd, &st) < 0 || !(bytes = malloc((size_t)st.st_size)) ||
        read(fd, bytes, (size_t)st.st_size) != st.st_size) {
        fprintf(stderr, "fake_module: %s cannot be read\n", path);
        abort();
    }
    close(fd);
    *ret_len = (size_t)st.st_size;
    return bytes;
}

size_t fake_module_map(struct fake_mem *m, addr_t at, const char *path)
{
    size_t len, end = 0;
    unsigned char *bytes = read_file(path, &len);
    Elf64_Ehdr eh;
    Elf64_Phdr ph;

    memcpy(&eh, bytes, sizeof(eh));
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < eh.e_phnum; i++) {
            memcpy(&ph, bytes + eh.e_phoff + i * sizeof(ph), sizeof(ph));
            if (ph.p_type != PT_LOAD)
                continue;
            if (pass)
                fake_mem_put_bytes(m, at + ph.p_vaddr, bytes + ph.p_offset, ph.p_filesz);
            else if (ph.p_vaddr + ph.p_memsz > end)
                end = (ph.p_vaddr + ph.p_memsz + 4095) & ~4095ull;
        }
        if (!pass)
            fake_mem_add(m, at, end);
    }
    free(bytes);
    return end;
}

struct proc_maps fake_module_maps(const char *text)
{
    struct proc_maps maps;
    char *copy = strdup(text);

    if (!copy || proc_maps_parse(copy, &maps) < 0)
        abort();
    return maps;
}
