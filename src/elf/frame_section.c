/*
 * Finds unwind sections in ELF files.
 */
#include "elf/frame_section.h"

#include "base/err.h"
#include "elf/debug_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_source(const struct frame_section_source *src, struct elf_module *ret)
{
    return elf_module_open(fcntl(src->fd, F_DUPFD_CLOEXEC, 0), ret);
}

int frame_section_find_eh_frame(const struct frame_section_source *src, uint64_t *ret_addr, uint64_t *ret_len)
{
    struct elf_module m;
    GElf_Shdr section;
    bool found;

    if (open_source(src, &m) < 0)
        return ERR_READ;
    found = elf_module_section(&m, ".eh_frame", &section) && section.sh_type != SHT_NOBITS &&
            section.sh_flags & SHF_ALLOC && section.sh_addr && section.sh_size;
    elf_module_close(&m);
    if (!found)
        return ERR_READ;
    *ret_addr = section.sh_addr;
    *ret_len = section.sh_size;
    return 0;
}

/* libelf finds a section by its index only. */
static Elf_Scn *find_section_by_name(const struct elf_module *m, const char *name, GElf_Shdr *ret)
{
    size_t n;

    if (elf_getshdrnum(m->elf, &n) < 0)
        return NULL;
    for (size_t i = 1; i < n; i++)
        if (elf_module_section_nth(m, i, ret) && strcmp(elf_module_section_name(m, ret), name) == 0)
            return elf_getscn(m->elf, i);
    return NULL;
}

static int read_compressed(Elf_Scn *scn, size_t max, unsigned char **ret, size_t *ret_len)
{
    GElf_Chdr head;
    Elf_Data *data;
    unsigned char *copy;

    if (!gelf_getchdr(scn, &head) || head.ch_size == 0 || head.ch_size > max || elf_compress(scn, 0, 0) < 0)
        return ERR_READ;
    data = elf_getdata(scn, NULL);
    if (!data || !data->d_buf || data->d_size == 0 || data->d_size > max)
        return ERR_READ;
    copy = malloc(data->d_size);
    if (!copy)
        return ERR_NOMEM;
    memcpy(copy, data->d_buf, data->d_size);
    *ret = copy;
    *ret_len = data->d_size;
    return 0;
}

static int read_debug_frame(const struct elf_module *m, size_t max, unsigned char **ret, size_t *ret_len)
{
    GElf_Shdr section;
    Elf_Scn *scn = find_section_by_name(m, ".debug_frame", &section);

    if (!scn)
        return ERR_READ;
    return section.sh_flags & SHF_COMPRESSED ? read_compressed(scn, max, ret, ret_len)
                                             : elf_module_read_section(m, &section, max, ret, ret_len);
}

int frame_section_read_debug_frame(const struct frame_section_source *src, size_t max, unsigned char **ret,
                                   size_t *ret_len)
{
    char path[DEBUG_FILE_PATH_ROOM];
    struct elf_module m, debug;
    int r;

    if (open_source(src, &m) < 0)
        return ERR_READ;
    r = read_debug_frame(&m, max, ret, ret_len);
    if (r == ERR_READ && debug_file_find(src->root_fd, src->path, &m, &debug, path) == 0) {
        r = read_debug_frame(&debug, max, ret, ret_len);
        elf_module_close(&debug);
    }
    elf_module_close(&m);
    return r;
}
