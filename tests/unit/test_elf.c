/*
 * elf/ and target/image: synthetic, truncated and damaged files and images, and the executable of this test.
 */
#include "base/err.h"
#include "cost.h"
#include "elf/elf_file.h"
#include "fake_elf.h"
#include "fake_mem.h"
#include "target/files.h"
#include "target/image.h"
#include "test.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BIAS 0x7f1200000000ull

static const struct fake_symbol dynamic_symbols[] = {
    {"_PyRuntime", FAKE_ELF_DATA + 64}, {"missing", 0}, {"other", 0x500}, {"_PyRuntimeX", 0x600}, {NULL, 0}};
static const struct fake_symbol local_symbols[] = {
    {"interp_head", FAKE_ELF_DATA + 8}, {"static_one", 0x700}, {NULL, 0}};

/* Looked up by the test of this program's own symbols. */
int test_elf_known_function(int x);
int test_elf_known_function(int x)
{
    return x + 1;
}

static struct elf_file file_of(const struct fake_elf *elf)
{
    return (struct elf_file){elf->bytes, elf->len};
}

static void test_symbols(void)
{
    struct fake_elf elf;
    struct elf_file f;
    addr_t at = 1;

    fake_elf_make(&elf, dynamic_symbols, local_symbols, 256);
    f = file_of(&elf);
    CHECK(elf_file_valid(&f));
    CHECK_INT(elf_file_symbol(&f, "_PyRuntime", &at), 0);
    CHECK_INT(at, FAKE_ELF_DATA + 64);
    CHECK_INT(elf_file_symbol(&f, "interp_head", &at), 0);
    CHECK_INT(at, FAKE_ELF_DATA + 8);
    at = 77;
    CHECK_INT(elf_file_symbol(&f, "missing", &at), ERR_READ);
    CHECK_INT(elf_file_symbol(&f, "nowhere", &at), ERR_READ);
    CHECK_INT(elf_file_symbol(&f, "_PyRun", &at), ERR_READ);
    CHECK_INT(elf_file_symbol(&f, "", &at), ERR_READ);
    CHECK_INT(at, 77);
    fake_elf_free(&elf);
}

static void test_headers(void)
{
    struct fake_elf elf;
    struct elf_file f;
    addr_t at;

    fake_elf_make(&elf, dynamic_symbols, local_symbols, 256);
    f = file_of(&elf);
    for (size_t i = 0; i <= EI_DATA; i++) {
        elf.bytes[i]++;
        CHECK(!elf_file_valid(&f));
        CHECK_INT(elf_file_symbol(&f, "_PyRuntime", &at), ERR_READ);
        elf.bytes[i]--;
    }
    CHECK(elf_file_valid(&f));
    f.len = sizeof(Elf64_Ehdr) - 1;
    CHECK(!elf_file_valid(&f));
    f.len = 0;
    CHECK(!elf_file_valid(&f));
    CHECK(elf_file_gnu_hash("") == 5381 && elf_file_gnu_hash("printf") == 0x156b2bb8);
    CHECK(elf_file_gnu_hash("\xff") == 5381 * 33 + 255);
    fake_elf_free(&elf);
}

/* Looks up in a copy of the exact length; returns the number of impossible results. */
static int look_up(const unsigned char *bytes, size_t len)
{
    unsigned char *copy = malloc(len ? len : 1);
    struct elf_file f = {copy, len};
    addr_t at;
    int r, bad = 0;

    if (!copy)
        abort();
    memcpy(copy, bytes, len);
    r = elf_file_symbol(&f, "_PyRuntime", &at);
    bad += r != 0 && r != ERR_READ;
    r = elf_file_symbol(&f, "interp_head", &at);
    bad += r != 0 && r != ERR_READ;
    free(copy);
    return bad;
}

static void test_truncated(void)
{
    struct fake_elf elf;
    int bad = 0;

    fake_elf_make(&elf, dynamic_symbols, local_symbols, 64);
    for (size_t len = 0; len <= elf.len; len += len < 1024 || len > FAKE_ELF_DATA ? 1 : 61)
        bad += look_up(elf.bytes, len);
    CHECK_INT(bad, 0);
    fake_elf_free(&elf);
}

/* Damages each field of headers, sections and symbols, as words of 2, 4 and 8 bytes. */
static void test_damaged(void)
{
    static const uint64_t values[] = {0, 1, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 1ull << 63, UINT64_MAX};
    struct fake_elf elf;
    int bad = 0;

    fake_elf_make(&elf, dynamic_symbols, local_symbols, 64);
    for (size_t at = 0; at + 8 <= elf.len; at += at == 1024 ? FAKE_ELF_DATA - 1024 : 4)
        for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
            unsigned char before[8];

            memcpy(before, elf.bytes + at, 8);
            memcpy(elf.bytes + at, &values[i], i < 4 ? 2 : i < 7 ? 4 : 8);
            bad += look_up(elf.bytes, elf.len);
            memcpy(elf.bytes + at, before, 8);
        }
    CHECK_INT(bad, 0);
    fake_elf_free(&elf);
}

/* An expensive file: the maximum number of symbol tables, all the same, with unterminated names. */
static void test_slow_file(void)
{
    const size_t n_sections = 60000, names = 3 << 20, symbols = 3 << 20;
    size_t sections = sizeof(Elf64_Ehdr), len = sections + n_sections * sizeof(Elf64_Shdr) + names + symbols;
    unsigned char *bytes = calloc(1, len);
    struct elf_file f = {bytes, len};
    Elf64_Ehdr eh = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB},
                     .e_shoff = sections,
                     .e_shentsize = sizeof(Elf64_Shdr),
                     .e_shnum = (Elf64_Half)n_sections,
                     .e_shstrndx = 1};
    Elf64_Sym sym = {.st_name = 1, .st_shndx = 1, .st_value = 1};
    double begin = cost_seconds();
    addr_t at;

    if (!bytes)
        abort();
    memcpy(bytes, &eh, sizeof(eh));
    for (size_t i = 0; i < n_sections; i++) {
        Elf64_Shdr sh = {.sh_type = i > 1 ? SHT_SYMTAB : SHT_STRTAB,
                         .sh_offset = i > 1 ? len - symbols : len - symbols - names,
                         .sh_size = i > 1 ? symbols : names,
                         .sh_name = 1,
                         .sh_addr = 1,
                         .sh_link = 1};

        memcpy(bytes + sections + i * sizeof(sh), &sh, sizeof(sh));
    }
    memset(bytes + len - symbols - names, 'x', names - 1);
    for (size_t i = 0; i < symbols / sizeof(sym); i++)
        memcpy(bytes + len - symbols + i * sizeof(sym), &sym, sizeof(sym));
    CHECK_INT(elf_file_symbol(&f, "_PyRuntime", &at), ERR_READ);
    CHECK(cost_seconds() - begin < COST_MAX);
    free(bytes);
}

static struct proc_map map_of(addr_t start)
{
    return (struct proc_map){.start = start, .end = start + 0x1000, .readable = true, .inode = 1, .path = "/none"};
}

static void test_image(void)
{
    struct fake_mem *m = fake_mem_new();
    struct fake_elf elf;
    struct proc_map map = map_of(BIAS);
    struct image img;
    addr_t at = 77;

    fake_elf_make(&elf, dynamic_symbols, local_symbols, 256);
    fake_mem_add(m, BIAS, elf.len);
    fake_mem_put_bytes(m, BIAS, elf.bytes, elf.len);
    CHECK_INT(image_open(&m->mem, &map, &img), 0);
    CHECK(img.start == BIAS && img.bias == BIAS);
    CHECK_INT(img.n_writable, 1);
    CHECK(img.writable[0].start == BIAS + FAKE_ELF_DATA && img.writable[0].end == BIAS + FAKE_ELF_DATA + 256);
    CHECK_INT(image_symbol(&m->mem, &img, "_PyRuntime", &at), 0);
    CHECK_INT(at, BIAS + FAKE_ELF_DATA + 64);
    CHECK_INT(image_symbol(&m->mem, &img, "_PyRuntimeX", &at), 0);
    CHECK_INT(at, BIAS + 0x600);
    CHECK_INT(image_symbol(&m->mem, &img, "missing", &at), ERR_READ);
    CHECK_INT(image_symbol(&m->mem, &img, "interp_head", &at), ERR_READ);
    CHECK_INT(image_file_symbol(&(struct files){.pid = getpid()}, &img, "interp_head", &at),
              ERR_READ); /* no such file */
    CHECK_INT(at, BIAS + 0x600);
    map.start += 8;
    CHECK_INT(image_open(&m->mem, &map, &img), ERR_READ);
    map.start = 0x1000;
    CHECK_INT(image_open(&m->mem, &map, &img), ERR_READ);
    fake_elf_free(&elf);
    mem_close(&m->mem);
}

/* The old hash table: the symbol is found by its index. */
static void test_image_old_hash(void)
{
    struct fake_mem *m = fake_mem_new();
    struct fake_elf elf;
    struct proc_map map = map_of(BIAS);
    struct image img;
    uint32_t head[2] = {1, 5};
    uint64_t tag = DT_HASH;
    addr_t at;

    fake_elf_make(&elf, dynamic_symbols, local_symbols, 256);
    memcpy(elf.bytes + elf.hash, head, sizeof(head));
    memcpy(elf.bytes + elf.dynamic + 3 * sizeof(Elf64_Dyn), &tag, sizeof(tag));
    fake_mem_add(m, BIAS, elf.len);
    fake_mem_put_bytes(m, BIAS, elf.bytes, elf.len);
    CHECK_INT(image_open(&m->mem, &map, &img), 0);
    CHECK(img.sysv_hash && !img.gnu_hash);
    CHECK_INT(image_symbol(&m->mem, &img, "_PyRuntime", &at), 0);
    CHECK_INT(at, BIAS + FAKE_ELF_DATA + 64);
    fake_elf_free(&elf);
    mem_close(&m->mem);
}

static void test_image_damaged(void)
{
    static const uint64_t values[] = {0, 1, 0xffff, 0x80000000, 0xffffffff, 1ull << 63, UINT64_MAX, BIAS};
    struct fake_mem *m = fake_mem_new();
    struct fake_elf elf;
    struct proc_map map = map_of(BIAS);
    struct image img;
    addr_t found;
    double begin = cost_seconds();

    fake_elf_make(&elf, dynamic_symbols, local_symbols, 64);
    fake_mem_add(m, BIAS, elf.len);
    fake_mem_put_bytes(m, BIAS, elf.bytes, elf.len);
    for (size_t at = 0; at < elf.dynamic + 96; at += 4)
        for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
            fake_mem_put_bytes(m, BIAS + at, &values[i], i < 5 ? 4 : 8);
            if (image_open(&m->mem, &map, &img) == 0) {
                image_symbol(&m->mem, &img, "_PyRuntime", &found);
                image_symbol(&m->mem, &img, "nowhere", &found);
            }
            fake_mem_put_bytes(m, BIAS, elf.bytes, elf.len);
        }
    CHECK(cost_seconds() - begin < COST_MAX);
    fake_elf_free(&elf);
    mem_close(&m->mem);
}

/* This program's own file: truncated at many lengths, and complete. */
static void test_self_file(void)
{
    int fd = open("/proc/self/exe", O_RDONLY);
    struct stat st;
    struct elf_file f;
    addr_t at = 0, again = 0;

    if (fd < 0 || fstat(fd, &st) < 0)
        abort();
    f.len = (size_t)st.st_size;
    f.bytes = mmap(NULL, f.len, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    CHECK_INT(elf_file_symbol(&f, "test_elf_known_function", &at), 0);
    for (size_t part = 1; part < 64; part++) {
        struct elf_file cut = {f.bytes, f.len / 64 * part};

        elf_file_symbol(&cut, "test_elf_known_function", &again);
    }
    munmap((void *)(uintptr_t)f.bytes, f.len);
    CHECK(at != 0);
}

/* The same through maps, memory and the mapped file. */
static void test_self_image(void)
{
    struct proc_maps maps;
    struct mem *m;
    addr_t want = (addr_t)(uintptr_t)&test_elf_known_function, at = 0;
    size_t found = 0, libc = 0;
    void *by_linker = dlsym(RTLD_DEFAULT, "gnu_get_libc_version");

    CHECK_INT(mem_live_open(getpid(), &m), 0);
    CHECK_INT(proc_maps_read(getpid(), &maps), 0);
    for (size_t i = 0; i < maps.n; i++) {
        struct image img;

        if (maps.items[i].offset || !maps.items[i].inode || image_open(m, &maps.items[i], &img) < 0)
            continue;
        if (image_file_symbol(&(struct files){.pid = getpid()}, &img, "test_elf_known_function", &at) == 0)
            found += at == want;
        if (by_linker && image_symbol(m, &img, "gnu_get_libc_version", &at) == 0)
            libc += at == (addr_t)(uintptr_t)by_linker;
    }
    CHECK_INT(found, 1);
    CHECK(libc == 1 || !by_linker);
    proc_maps_free(&maps);
    mem_close(m);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_symbols);
    TEST_RUN(test_headers);
    TEST_RUN(test_truncated);
    TEST_RUN(test_damaged);
    TEST_RUN(test_slow_file);
    TEST_RUN(test_image);
    TEST_RUN(test_image_old_hash);
    TEST_RUN(test_image_damaged);
    TEST_RUN(test_self_file);
    TEST_RUN(test_self_image);
    return test_finish("test_elf");
}
