/*
 * Reads ELF files with libelf. libelf checks headers and sections against the size of the file; every section that this
 * file returns is checked again.
 */
#include "elf/elf_module.h"

#include "base/err.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTIONS_MAX 100000 /* enough for -ffunction-sections with -r; a linked file has about 40 */
#define SHORT_STRING 256    /* most names are shorter */
#define NOTES_MAX    4096   /* bytes of one section or segment; a build ID takes 36 */

/* Moves `m` to `ret`, or closes it and returns ERR_READ if it is not a 64-bit little-endian ELF file. */
static int finish_open(struct elf_module *m, struct elf_module *ret)
{
    const char *ident;
    size_t len;

    ident = m->elf ? elf_getident(m->elf, &len) : NULL;
    if (!ident || elf_kind(m->elf) != ELF_K_ELF || len < EI_NIDENT || ident[EI_CLASS] != ELFCLASS64 ||
        ident[EI_DATA] != ELFDATA2LSB) {
        elf_module_close(m);
        return ERR_READ;
    }
    *ret = *m;
    return 0;
}

int elf_module_open(int fd, struct elf_module *ret)
{
    struct elf_module m = {.fd = fd};
    struct stat st;

    elf_version(EV_CURRENT);
    if (fd < 0)
        return ERR_READ;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        m.size = (uint64_t)st.st_size;
        m.elf = elf_begin(fd, ELF_C_READ, NULL);
    }
    return finish_open(&m, ret);
}

int elf_module_open_image(void *image, size_t size, struct elf_module *ret)
{
    struct elf_module m = {.fd = -1, .image = image, .size = size};

    elf_version(EV_CURRENT);
    m.elf = size > EI_NIDENT ? elf_memory(image, size) : NULL;
    return finish_open(&m, ret);
}

/* Private and writable: libelf changes the headers of the sections that it decompresses. */
void elf_module_map(struct elf_module *m)
{
    struct elf_module map = {.fd = -1, .size = m->size, .mapped = true};
    void *bytes = m->image ? MAP_FAILED : mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_PRIVATE, m->fd, 0);

    if (bytes == MAP_FAILED)
        return;
    map.image = bytes;
    map.elf = elf_memory(bytes, m->size);
    if (finish_open(&map, &map) < 0)
        return;
    elf_module_close(m);
    *m = map;
}

/* Keeps the section headers, which libelf changes in place. */
void elf_module_drop_pages(const struct elf_module *m)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start, end;
    GElf_Ehdr header;
    size_t n;

    if (!m->mapped || !gelf_getehdr(m->elf, &header) || elf_getshdrnum(m->elf, &n) < 0 || header.e_shoff > m->size ||
        n > m->size / sizeof(Elf64_Shdr))
        return;
    start = header.e_shoff & ~(page - 1);
    end = (header.e_shoff + n * sizeof(Elf64_Shdr) + page - 1) & ~(page - 1);
    madvise(m->image, start, MADV_DONTNEED);
    if (end < m->size)
        madvise(m->image + end, m->size - end, MADV_DONTNEED);
}

void elf_module_close(struct elf_module *m)
{
    if (m->elf)
        elf_end(m->elf);
    if (m->fd >= 0)
        close(m->fd);
    if (m->mapped)
        munmap(m->image, m->size);
    else
        free(m->image);
    *m = (struct elf_module){.fd = -1};
}

int elf_module_read(const struct elf_module *m, uint64_t at, void *buf, size_t len)
{
    size_t done = 0;

    if (at > m->size || len > m->size - at)
        return ERR_READ;
    if (m->image) {
        memcpy(buf, m->image + at, len);
        return 0;
    }
    while (done < len) {
        ssize_t n = pread(m->fd, (char *)buf + done, len - done, (off_t)(at + done));

        if (n <= 0)
            return ERR_READ;
        done += (size_t)n;
    }
    return 0;
}

bool elf_module_section_nth(const struct elf_module *m, size_t i, GElf_Shdr *ret)
{
    Elf_Scn *scn = i < SECTIONS_MAX ? elf_getscn(m->elf, i) : NULL;

    if (!scn || !gelf_getshdr(scn, ret) || ret->sh_size > UINT64_MAX - ret->sh_addr)
        return false;
    if (ret->sh_type == SHT_NOBITS)
        return true;
    return ret->sh_offset <= m->size && ret->sh_size <= m->size - ret->sh_offset;
}

const char *elf_module_section_name(const struct elf_module *m, const GElf_Shdr *section)
{
    size_t names;
    const char *name = NULL;

    if (elf_getshdrstrndx(m->elf, &names) == 0)
        name = elf_strptr(m->elf, names, section->sh_name);
    return name ? name : "";
}

bool elf_module_section(const struct elf_module *m, const char *name, GElf_Shdr *ret)
{
    size_t n;

    if (elf_getshdrnum(m->elf, &n) < 0)
        return false;
    for (size_t i = 1; i < n && i < SECTIONS_MAX; i++) {
        GElf_Shdr section;

        if (elf_module_section_nth(m, i, &section) && strcmp(elf_module_section_name(m, &section), name) == 0) {
            *ret = section;
            return true;
        }
    }
    return false;
}

int elf_module_read_section(const struct elf_module *m, const GElf_Shdr *section, size_t max, unsigned char **ret,
                            size_t *ret_len)
{
    unsigned char *bytes;

    if (section->sh_type == SHT_NOBITS || section->sh_size == 0 || section->sh_size > max)
        return ERR_READ;
    bytes = malloc(section->sh_size);
    if (!bytes)
        return ERR_NOMEM;
    if (elf_module_read(m, section->sh_offset, bytes, section->sh_size) < 0) {
        free(bytes);
        return ERR_READ;
    }
    *ret = bytes;
    *ret_len = section->sh_size;
    return 0;
}

bool elf_module_read_string(const struct elf_module *m, const GElf_Shdr *strings, uint64_t at, char *ret, size_t room)
{
    uint64_t most = room - 1;

    if (at >= strings->sh_size || strings->sh_type != SHT_STRTAB)
        return false;
    if (most > strings->sh_size - at)
        most = strings->sh_size - at;
    for (size_t len = SHORT_STRING;; len = (size_t)most) {
        if (len > most)
            len = (size_t)most;
        if (elf_module_read(m, strings->sh_offset + at, ret, len) < 0)
            return false;
        ret[len] = '\0';
        if (len == most || memchr(ret, '\0', len))
            return true;
    }
}

/* Leaves `ret` unchanged if the notes hold no build ID. */
static void find_build_id(const struct elf_module *m, uint64_t at, uint64_t len, struct build_id *ret)
{
    unsigned char notes[NOTES_MAX];

    if (len <= sizeof(notes) && elf_module_read(m, at, notes, len) == 0)
        build_id_from_notes(notes, len, ret);
}

/*
 * Searches sections first, because the program headers of a debug file point to bytes that it does not contain. Does
 * not use dwelf_elf_gnu_build_id(), which pulls all of libdwfl into a static program, and with elfutils 0.196 also
 * dlopen().
 */
struct build_id elf_module_build_id(const struct elf_module *m)
{
    struct build_id id = {.len = 0};
    GElf_Shdr section;
    GElf_Phdr segment;
    size_t n;

    if (elf_getshdrnum(m->elf, &n) == 0)
        for (size_t i = 1; i < n && i < SECTIONS_MAX && !id.len; i++)
            if (elf_module_section_nth(m, i, &section) && section.sh_type == SHT_NOTE)
                find_build_id(m, section.sh_offset, section.sh_size, &id);
    if (elf_getphdrnum(m->elf, &n) == 0)
        for (size_t i = 0; i < n && i < INT_MAX && !id.len; i++)
            if (gelf_getphdr(m->elf, (int)i, &segment) && segment.p_type == PT_NOTE)
                find_build_id(m, segment.p_offset, segment.p_filesz, &id);
    return id;
}
