/*
 * Looks up symbols in ELF images in a target's memory. All offsets come from the target and are bounded.
 */
#include "target/image.h"

#include "base/err.h"
#include "elf/elf_file.h"
#include "target/files.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MAX_PHDRS   64
#define MAX_DYNAMIC 256
#define MAX_CHAIN   65536
#define MAX_NOTES   1024
#define PAGE        4096ull

/* The dynamic linker relocates these addresses in memory for libraries, but not for every program. */
static addr_t dynamic_addr(const struct image *img, uint64_t value)
{
    return value && value < img->bias ? img->bias + value : value;
}

static int read_dynamic(struct mem *m, struct image *img, const Elf64_Phdr *ph)
{
    Elf64_Dyn dyn[MAX_DYNAMIC];
    size_t n = ph->p_memsz / sizeof(dyn[0]);
    int r;

    if (n > MAX_DYNAMIC)
        n = MAX_DYNAMIC;
    r = mem_read(m, img->bias + ph->p_vaddr, dyn, n * sizeof(dyn[0]));
    if (r < 0)
        return r;
    for (size_t i = 0; i < n && dyn[i].d_tag != DT_NULL; i++) {
        uint64_t value = dyn[i].d_un.d_val;

        if (dyn[i].d_tag == DT_SYMTAB)
            img->symbols = dynamic_addr(img, value);
        else if (dyn[i].d_tag == DT_STRTAB)
            img->strings = dynamic_addr(img, value);
        else if (dyn[i].d_tag == DT_STRSZ)
            img->strings_size = value;
        else if (dyn[i].d_tag == DT_GNU_HASH)
            img->gnu_hash = dynamic_addr(img, value);
        else if (dyn[i].d_tag == DT_HASH)
            img->sysv_hash = dynamic_addr(img, value);
    }
    return 0;
}

static void read_build_id(struct mem *m, struct image *img, const Elf64_Phdr *ph)
{
    unsigned char notes[MAX_NOTES];

    if (!img->id.len && ph->p_memsz <= sizeof(notes) && mem_read(m, img->bias + ph->p_vaddr, notes, ph->p_memsz) == 0)
        build_id_from_notes(notes, ph->p_memsz, &img->id);
}

int image_open(struct mem *m, const struct proc_map *map, struct image *ret)
{
    struct image img = {.start = map->start, .path = map->path, .inode = map->inode, .device = map->device};
    Elf64_Ehdr eh;
    Elf64_Phdr ph[MAX_PHDRS];
    const Elf64_Phdr *dynamic = NULL;
    int r = mem_read(m, map->start, &eh, sizeof(eh));

    if (r < 0)
        return r;
    if (memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 || eh.e_ident[EI_CLASS] != ELFCLASS64 ||
        eh.e_phentsize != sizeof(ph[0]) || eh.e_phnum == 0 || eh.e_phnum > MAX_PHDRS || eh.e_phoff > 1u << 20)
        return ERR_READ;
    r = mem_read(m, map->start + eh.e_phoff, ph, eh.e_phnum * sizeof(ph[0]));
    if (r < 0)
        return r;
    for (size_t i = 0; i < eh.e_phnum; i++)
        if (ph[i].p_type == PT_LOAD && ph[i].p_offset == 0) {
            img.bias = map->start - (ph[i].p_vaddr & ~(PAGE - 1));
            break;
        }
    for (size_t i = 0; i < eh.e_phnum; i++) {
        addr_t start = img.bias + ph[i].p_vaddr;

        if (ph[i].p_type == PT_LOAD && ph[i].p_flags & PF_W && img.n_writable < IMAGE_MAX_WRITABLE)
            img.writable[img.n_writable++] = (struct image_range){start, start + ph[i].p_memsz};
        if (ph[i].p_type == PT_DYNAMIC)
            dynamic = &ph[i];
        if (ph[i].p_type == PT_NOTE)
            read_build_id(m, &img, &ph[i]);
    }
    if (dynamic)
        read_dynamic(m, &img, dynamic);
    *ret = img;
    return 0;
}

/* True if symbol number `i` is defined and has this name; sets `ret` to its address. */
static bool symbol_is(struct mem *m, const struct image *img, uint32_t i, const char *name, addr_t *ret)
{
    Elf64_Sym sym;
    char text[64];
    size_t len = strlen(name) + 1;

    if (mem_read(m, img->symbols + (addr_t)i * sizeof(sym), &sym, sizeof(sym)) < 0)
        return false;
    if (sym.st_shndx == SHN_UNDEF || !sym.st_value || sym.st_name >= img->strings_size || len > sizeof(text))
        return false;
    if (mem_read(m, img->strings + sym.st_name, text, len) < 0 || memcmp(text, name, len) != 0)
        return false;
    *ret = img->bias + sym.st_value;
    return true;
}

/* A .gnu.hash section: four words, a Bloom filter, buckets, chains. */
static int symbol_by_gnu_hash(struct mem *m, const struct image *img, const char *name, addr_t *ret)
{
    uint32_t head[4], index, link;
    unsigned int hash = elf_file_gnu_hash(name);
    addr_t buckets, chains;

    if (mem_read(m, img->gnu_hash, head, sizeof(head)) < 0 || head[0] == 0 || head[2] > 1u << 24)
        return ERR_READ;
    buckets = img->gnu_hash + sizeof(head) + (addr_t)head[2] * 8;
    chains = buckets + (addr_t)head[0] * 4;
    if (mem_read(m, buckets + (addr_t)(hash % head[0]) * 4, &index, sizeof(index)) < 0 || index < head[1])
        return ERR_READ;
    for (int n = 0; n < MAX_CHAIN; n++, index++) {
        if (mem_read(m, chains + (addr_t)(index - head[1]) * 4, &link, sizeof(link)) < 0)
            return ERR_READ;
        if ((link | 1) == (hash | 1) && symbol_is(m, img, index, name, ret))
            return 0;
        if (link & 1)
            break;
    }
    return ERR_READ;
}

/* DT_HASH: the number of chains is the number of symbols. */
static int symbol_by_sysv_hash(struct mem *m, const struct image *img, const char *name, addr_t *ret)
{
    uint32_t head[2];

    if (mem_read(m, img->sysv_hash, head, sizeof(head)) < 0)
        return ERR_READ;
    for (uint32_t i = 1; i < head[1] && i < MAX_CHAIN; i++)
        if (symbol_is(m, img, i, name, ret))
            return 0;
    return ERR_READ;
}

int image_symbol(struct mem *m, const struct image *img, const char *name, addr_t *ret)
{
    if (!img->symbols || !img->strings)
        return ERR_READ;
    if (img->gnu_hash)
        return symbol_by_gnu_hash(m, img, name, ret);
    return img->sysv_hash ? symbol_by_sysv_hash(m, img, name, ret) : ERR_READ;
}

/* True if the file is the one that is mapped: by inode or, for a core file, by build id. On overlayfs the inode in
 * maps can differ from the inode of the file, so compare the build id then as well, if there is one. */
static bool is_mapped_file(const struct files *files, const struct image *img, int fd)
{
    unsigned char head[BUILD_ID_HEAD];
    struct build_id id;
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0)
        return false;
    if (files->pid && (st.st_ino == img->inode || !img->id.len))
        return st.st_ino == img->inode;
    n = pread(fd, head, sizeof(head), 0);
    if (n <= 0 || build_id_from_file(&(struct elf_file){head, (size_t)n}, &id) < 0)
        return !img->id.len;
    return !img->id.len || build_id_equal(&id, &img->id);
}

/* Opens the file by path, or else through /proc/PID/exe, which works even if the program was deleted. */
static int open_mapped_file(const struct files *files, const struct image *img)
{
    char path[64];
    int fd = files_open(files, img->path);

    if (fd >= 0 && is_mapped_file(files, img, fd))
        return fd;
    if (fd >= 0)
        close(fd);
    if (!files->pid)
        return -1;
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)proc_live_thread(files->pid));
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && is_mapped_file(files, img, fd))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Reads the file through a mapping: pages that the search does not need are not read. */
static int find_in_file(int fd, const char *name, addr_t *ret)
{
    struct stat st;
    void *bytes;
    int r;

    if (fstat(fd, &st) < 0 || st.st_size <= 0)
        return ERR_READ;
    bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return ERR_READ;
    r = elf_file_symbol(&(struct elf_file){bytes, (size_t)st.st_size}, name, ret);
    munmap(bytes, (size_t)st.st_size);
    return r;
}

/* In the helper. */
static int run_file_symbol(struct unpack *in, struct pack *out)
{
    struct files files;
    struct image img = {0};
    const void *id;
    const char *name;
    addr_t value;
    int fd, r;

    files_unpack(in, &files);
    img.path = unpack_text(in);
    img.inode = unpack_number(in);
    id = unpack_bytes(in, &img.id.len);
    name = unpack_text(in);
    if (img.id.len > BUILD_ID_MAX || !img.path || !name) {
        files_close(&files);
        return ERR_READ;
    }
    memcpy(img.id.bytes, id, img.id.len);
    fd = open_mapped_file(&files, &img);
    r = fd < 0 ? ERR_READ : find_in_file(fd, name, &value);
    if (fd >= 0)
        close(fd);
    if (r == 0)
        pack_number(out, value);
    files_close(&files);
    return r;
}

int image_file_symbol(const struct files *files, const struct image *img, const char *name, addr_t *ret)
{
    struct helper_about about = files_about(files, img->path);
    struct helper_answer answer;
    struct pack in = {0};
    int r;

    if (!files->pid && files->root < 0)
        return ERR_READ;
    about.device = img->device;
    files_pack(&in, files);
    pack_text(&in, img->path);
    pack_number(&in, img->inode);
    pack_bytes(&in, img->id.bytes, img->id.len);
    pack_text(&in, name);
    r = helper_call(run_file_symbol, &in, &about, &answer);
    if (r == 0)
        *ret = img->bias + unpack_number(&answer.out);
    helper_answer_free(&answer);
    pack_free(&in);
    return r == 0 ? 0 : ERR_READ;
}
