/*
 * unwind/modules.c and module_tables.c: which code belongs to which module, from synthetic maps and memory; tables in
 * every place where a real library can have them; and hostile input.
 */
#include "base/err.h"
#include "cost.h"
#include "elf/elf_file.h"
#include "elf/frame_section.h"
#include "fake_module.h"
#include "test.h"
#include "unwind/module_tables.h"

#include <fcntl.h>
#include <unistd.h>

#define BASE 0x400000ull
#define LIB  0x7f0000000000ull

static int freed; /* how many `user` values were released */

static void count_free(void *user)
{
    freed += *(int *)user;
}

static void update(struct modules *ms, struct fake_mem *m, const char *text, bool *ret_changed)
{
    struct proc_maps maps = fake_module_maps(text);
    bool changed, sorted = true;

    CHECK_INT(modules_update(ms, &m->mem, &maps, ret_changed ? ret_changed : &changed), 0);
    for (size_t i = 1; i < ms->n; i++)
        sorted &= ms->items[i - 1]->start < ms->items[i]->start;
    CHECK(sorted);
    proc_maps_free(&maps);
}

/* ---- maps and headers ---- */

#define PROGRAM "400000-401000 r--p 00000000 08:01 11 /bin/a\n401000-408000 r-xp 00001000 08:01 11 /bin/a\n"

static void test_found(void)
{
    struct fake_mem *m = fake_mem_new();
    struct modules ms = {0};

    fake_module_put(m, BASE);
    fake_module_put(m, LIB);
    update(&ms, m,
           PROGRAM "408000-409000 rw-p 00000000 00:00 0\n"
                   "500000-501000 rwxp 00000000 00:00 0\n"
                   "502000-503000 rw-p 00000000 00:00 0 [heap]\n"
                   "7f0000000000-7f0000008000 r-xp 00000000 08:01 12 /lib/b.so\n"
                   "7f0000100000-7f0000101000 r--p 00000000 08:01 13 /lib/c.dat\n"
                   "7ffff0000000-7ffff0001000 r-xp 00000000 00:00 0 [vdso]\n"
                   "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n",
           NULL);
    CHECK_INT(ms.n, 5);
    CHECK(modules_find(&ms, BASE + 0x1000) == ms.items[0] && ms.items[0]->is_elf && ms.items[0]->bias == BASE);
    CHECK(modules_find(&ms, BASE + 0x7fff) == ms.items[0]);
    CHECK(!modules_find(&ms, BASE + 0x8000));
    CHECK(!modules_find(&ms, BASE - 1));
    CHECK(modules_find(&ms, 0x500000) == ms.items[1] && !ms.items[1]->is_elf);
    CHECK(!modules_find(&ms, 0x502000));
    CHECK(modules_find(&ms, LIB) == ms.items[2]);
    CHECK_STR(ms.items[2]->path, "/lib/b.so");
    CHECK(!modules_find(&ms, LIB + 0x100000)); /* not code: it would be unreadable too */
    CHECK_STR(modules_find(&ms, 0x7ffff0000000)->path, "[vdso]");
    CHECK_STR(modules_find(&ms, 0xffffffffff600123)->path, "[vsyscall]");
    CHECK(!modules_find(&ms, UINT64_MAX) && !modules_find(&ms, 0));
    modules_free(&ms);
    CHECK(!modules_find(&ms, BASE));
    mem_close(&m->mem);
}

/* A program that is not relocated, segments with gaps between them, headers in unusual places. */
static void test_layouts(void)
{
    struct fake_mem *m = fake_mem_new();
    struct modules ms = {0};
    Elf64_Phdr low = {.p_type = PT_LOAD, .p_flags = PF_R, .p_vaddr = BASE, .p_filesz = 0x1000, .p_memsz = 0x1000};
    Elf64_Phdr code = {.p_type = PT_LOAD,
                       .p_flags = PF_R | PF_X,
                       .p_offset = 0x1000,
                       .p_vaddr = BASE + 0x201000,
                       .p_filesz = 0x100,
                       .p_memsz = 0x2000};

    fake_module_put(m, BASE);
    fake_module_phdr(m, BASE, 0, &low);
    fake_module_phdr(m, BASE, 1, &code);
    update(&ms, m,
           "400000-401000 r--p 00000000 08:01 11 /bin/a\n"
           "500000-501000 rwxp 00000000 00:00 0\n"            /* another file's, in the gap */
           "502000-503000 r--p 00000000 08:01 12 /lib/b.so\n" /* unreadable */
           "503000-504000 r-xp 00001000 08:01 12 /lib/b.so\n" /* so this is code without a file */
           "601000-602000 r-xp 00001000 08:01 11 /bin/a\n"
           "602000-603000 rw-p 00000000 00:00 0\n",
           NULL);
    CHECK_INT(ms.n, 3);
    CHECK(ms.items[0]->bias == 0 && ms.items[0]->end == BASE + 0x203000);
    CHECK(modules_find(&ms, 0x500800) == ms.items[1] && modules_find(&ms, 0x503000) == ms.items[2]);
    CHECK(!modules_find(&ms, 0x504000));
    CHECK(modules_find(&ms, 0x601000) == ms.items[0]);
    modules_free(&ms);
    /* Program headers after the first page, as some tools that edit files leave them. */
    fake_mem_put_bytes(m, BASE + 0x1800, fake_mem_at(m, BASE + sizeof(Elf64_Ehdr), 2 * sizeof(low)), 2 * sizeof(low));
    memset(fake_mem_at(m, BASE + sizeof(Elf64_Ehdr), 2 * sizeof(low)), 0, 2 * sizeof(low));
    ((Elf64_Ehdr *)fake_mem_at(m, BASE, sizeof(Elf64_Ehdr)))->e_phoff = 0x1800;
    update(&ms, m, "400000-402000 r--p 00000000 08:01 11 /bin/a\n601000-602000 r-xp 00001000 08:01 11 /bin/a\n", NULL);
    CHECK(ms.n == 1 && ms.items[0]->is_elf && modules_find(&ms, 0x601000) == ms.items[0]);
    modules_free(&ms);
    mem_close(&m->mem);
}

/* A library that is mapped only for reading is directly below one that runs: the code belongs to the latter. */
static void test_mapped_to_be_read(void)
{
    struct fake_mem *m = fake_mem_new();
    struct modules ms = {0};
    Elf64_Phdr load = {.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = 0x20000, .p_memsz = 0x20000};

    fake_module_put(m, LIB);
    fake_module_phdr(m, LIB, 0, &load);
    fake_module_put(m, LIB + 0x8000);
    update(&ms, m,
           "7f0000000000-7f0000008000 r--p 00000000 08:01 12 /lib/b.so\n"
           "7f0000008000-7f0000010000 r-xp 00000000 08:01 13 /lib/c.so\n",
           NULL);
    CHECK_INT(ms.n, 2);
    CHECK(ms.items[0]->end == LIB + 0x8000);
    CHECK(modules_find(&ms, LIB + 0x9000) == ms.items[1]);
    modules_free(&ms);
    mem_close(&m->mem);
}

/* Code that was moved to huge pages still belongs to its program. */
static void test_large_pages(void)
{
    struct fake_mem *m = fake_mem_new();
    struct modules ms = {0};

    fake_module_put(m, BASE);
    update(&ms, m,
           "400000-401000 r--p 00000000 08:01 11 /bin/a\n401000-406000 r-xp 00000000 00:00 0\n"
           "406000-408000 r-xp 00006000 08:01 11 /bin/a\n",
           NULL);
    CHECK(ms.n == 1 && modules_find(&ms, BASE + 0x3000) == ms.items[0] && ms.items[0]->is_elf);
    modules_free(&ms);
    mem_close(&m->mem);
}

#define LIBRARY "7f0000000000-7f0000008000 r-xp 00000000 08:01 12 /lib/b.so\n"

static void test_update(void)
{
    struct fake_mem *m = fake_mem_new();
    struct modules ms = {.free_user = count_free};
    struct module *program, *made;
    int one = 1;
    bool changed;

    freed = 0;
    fake_module_put(m, BASE);
    fake_module_put(m, LIB);
    update(&ms, m, PROGRAM "500000-501000 rwxp 00000000 00:00 0\n", &changed);
    CHECK(ms.n == 2 && changed && !ms.any_unloaded);
    program = ms.items[0];
    made = ms.items[1];
    program->user = &one;
    update(&ms, m, PROGRAM "500000-501000 rwxp 00000000 00:00 0\n", &changed);
    CHECK(ms.n == 2 && !changed && !ms.any_unloaded && ms.items[0] == program && ms.items[1] == made);
    /* A new library, and JIT-compiled code that has grown. */
    update(&ms, m, PROGRAM "500000-509000 rwxp 00000000 00:00 0\n" LIBRARY, &changed);
    CHECK(ms.n == 3 && changed && !ms.any_unloaded && ms.items[0] == program && ms.items[1] == made && freed == 0);
    CHECK(modules_find(&ms, 0x508fff) == made && !modules_find(&ms, 0x509000));
    /* Gone; then another file at the same address. */
    update(&ms, m, PROGRAM, &changed);
    CHECK(ms.n == 1 && changed && ms.any_unloaded && ms.items[0] == program);
    update(&ms, m, "400000-408000 r-xp 00000000 08:01 99 /bin/a\n", &changed);
    CHECK(ms.n == 1 && changed && ms.any_unloaded && ms.items[0]->inode == 99 && ms.items[0]->address_reused);
    update(&ms, m, "400000-408000 r-xp 00000000 08:01 99 /bin/b\n", &changed);
    CHECK(ms.n == 1 && changed && ms.any_unloaded);
    /* The same mapping twice, which no kernel reports. */
    update(&ms, m, "400000-408000 r-xp 00000000 08:01 99 /bin/b\n400000-408000 r-xp 00000000 08:01 99 /bin/b\n",
           &changed);
    CHECK(ms.n == 1 && !changed);
    update(&ms, m, "", &changed);
    CHECK(ms.n == 0 && changed && freed == 0);
    modules_free(&ms);
    CHECK_INT(freed, 1);
    mem_close(&m->mem);
}

/* Libraries that replace each other, and return. */
static void test_alternating_libraries(void)
{
    struct fake_mem *m = fake_mem_new();
    struct modules ms = {.free_user = count_free};
    struct module *mod;
    int one = 1;
    bool changed;
    char text[128];

    freed = 0;
    fake_module_put(m, LIB);
    update(&ms, m, LIBRARY, NULL);
    mod = ms.items[0];
    mod->user = &one;
    /* The same name, file and address, but other bytes: another library. */
    fake_mem_put(m, LIB + 0x800, 42);
    update(&ms, m, LIBRARY, &changed);
    CHECK(changed && ms.any_unloaded && ms.items[0] != mod && ms.items[0]->address_reused && !ms.items[0]->user);
    /* The first one again, with everything that was known about it. */
    fake_mem_put(m, LIB + 0x800, 0);
    update(&ms, m, LIBRARY, &changed);
    CHECK(changed && ms.items[0] == mod && mod->user == &one && mod->address_reused && freed == 0);
    update(&ms, m, "", NULL);
    update(&ms, m, LIBRARY, NULL);
    CHECK(ms.items[0] == mod);
    /* The caller saw that it is not there: it is dropped. */
    mod->stale = true;
    update(&ms, m, LIBRARY, NULL);
    CHECK(ms.items[0] != mod);
    /* Only a limited number of unloaded modules is kept. */
    for (unsigned i = 0; i < 3 * MODULES_UNLOADED; i++) {
        snprintf(text, sizeof(text), "7f0000000000-7f0000008000 r-xp 00000000 08:01 %u /lib/%u.so\n", 100 + i, i);
        update(&ms, m, text, NULL);
    }
    CHECK_INT(freed, 1);
    modules_free(&ms);
    mem_close(&m->mem);
}

/* A table that is read while another library replaces the module is neither used nor kept. */
static void test_table_of_replaced_library(void)
{
    struct fake_mem *m = fake_mem_new();
    struct modules ms = {0};
    static struct fake_cfi frame;
    uint64_t start = LIB + 0x1000;
    const struct cfi_section *section;
    struct cfi_row row;
    size_t offset;

    frame = (struct fake_cfi){.at = LIB + FAKE_MODULE_FRAME};
    fake_cfi_cie(&frame, &(struct fake_cie){0});
    offset = fake_cfi_fde(&frame, start, 0x100, "", 0);
    fake_module_put(m, LIB);
    fake_module_tables(m, LIB, &frame, &start, &offset, 1);
    update(&ms, m, LIBRARY, NULL);
    fake_mem_put(m, LIB + 0x800, 42);
    CHECK(module_tables_row(&ms, ms.items[0], &m->mem, start, &row, &section) < 0);
    CHECK_INT(ms.table_bytes, 0);
    fake_mem_put(m, LIB + 0x800, 0);
    CHECK_INT(module_tables_row(&ms, ms.items[0], &m->mem, start, &row, &section), 0);
    modules_free(&ms);
    mem_close(&m->mem);
}

/* Each impossible header: its code counts as code without a file, and nothing breaks. */
static void test_wrong_headers(void)
{
    static const struct {
        size_t at, len;
        uint64_t value;
    } wrong[] = {
        {0, 4, 0},                                                          /* not ELF */
        {EI_CLASS, 1, ELFCLASS32},                                          /* 32 bits */
        {EI_DATA, 1, ELFDATA2MSB},                                          /* the other byte order */
        {offsetof(Elf64_Ehdr, e_phnum), 2, 0},                              /* no segments */
        {offsetof(Elf64_Ehdr, e_phnum), 2, 65535},                          /* too many */
        {offsetof(Elf64_Ehdr, e_phentsize), 2, 32},                         /* of the wrong size */
        {offsetof(Elf64_Ehdr, e_phoff), 8, UINT64_MAX},                     /* nowhere */
        {offsetof(Elf64_Ehdr, e_phoff), 8, 0x100000},                       /* outside */
        {sizeof(Elf64_Ehdr), 4, PT_NOTE},                                   /* nothing to load */
        {sizeof(Elf64_Ehdr) + offsetof(Elf64_Phdr, p_offset), 8, 0x100000}, /* not this page */
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct fake_mem *m = fake_mem_new();
        struct modules ms = {0};

        fake_module_put(m, BASE);
        fake_mem_put_bytes(m, BASE + wrong[i].at, &wrong[i].value, wrong[i].len);
        update(&ms, m, PROGRAM, NULL);
        if (!CHECK(ms.n == 1 && !ms.items[0]->is_elf && ms.items[0]->start == BASE + 0x1000))
            fprintf(stderr, "    header %zu\n", i);
        modules_free(&ms);
        mem_close(&m->mem);
    }
}

/* Huge sizes and addresses. */
static void test_absurd_sizes(void)
{
    static const uint64_t numbers[] = {0, 1, 0x7fffffffffffffff, 0x8000000000000000, UINT64_MAX, 0xfffffffffffff000};
    static const size_t fields[] = {offsetof(Elf64_Phdr, p_vaddr), offsetof(Elf64_Phdr, p_filesz),
                                    offsetof(Elf64_Phdr, p_memsz)};
    static struct fake_cfi frame;
    uint64_t start = BASE + 0x1000;
    size_t offset = 0;

    frame = (struct fake_cfi){.at = BASE + FAKE_MODULE_FRAME};
    fake_cfi_cie(&frame, &(struct fake_cie){0});
    offset = fake_cfi_fde(&frame, start, 0x100, "", 0);
    fake_cfi_end(&frame);
    for (size_t i = 0; i < 2 * 3 * 6; i++) {
        struct fake_mem *m = fake_mem_new();
        struct modules ms = {0};
        const struct cfi_section *section;
        struct cfi_row row;
        size_t phdr = sizeof(Elf64_Ehdr) + i / 18 * sizeof(Elf64_Phdr);

        fake_module_put(m, BASE);
        fake_module_tables(m, BASE, &frame, &start, &offset, 1);
        fake_mem_put(m, BASE + phdr + fields[i / 6 % 3], numbers[i % 6]);
        update(&ms, m, PROGRAM "7f0000000000-7f0000001000 rwxp 00000000 00:00 0\n", NULL);
        CHECK(ms.n >= 2);
        for (size_t k = 0; k < ms.n; k++) {
            CHECK(ms.items[k]->end > ms.items[k]->start && ms.items[k]->end <= LIB + 0x1000);
            module_tables_row(&ms, ms.items[k], &m->mem, start, &row, &section);
        }
        CHECK(modules_find(&ms, LIB) == ms.items[ms.n - 1]);
        modules_free(&ms);
        CHECK_INT(ms.table_bytes, 0);
        mem_close(&m->mem);
    }
}

/* Tens of thousands of pieces of code, as JIT compilers create them. */
static void test_many(void)
{
    size_t n = 60000, len = 0, room = n * 64;
    char *text = malloc(room);
    struct fake_mem *m = fake_mem_new();
    struct modules ms = {0};
    double begin = cost_seconds();

    if (!text)
        abort();
    for (size_t i = 0; i < n; i++)
        len += (size_t)snprintf(text + len, room - len, "%zx-%zx rwxp 00000000 00:00 0\n", 0x10000 + i * 0x2000,
                                0x11000 + i * 0x2000);
    for (int i = 0; i < 3; i++)
        update(&ms, m, text, NULL);
    CHECK_INT(ms.n, n);
    for (size_t i = 0; i < n; i += 97)
        CHECK(modules_find(&ms, 0x10fff + i * 0x2000) == ms.items[i] && !modules_find(&ms, 0x11000 + i * 0x2000));
    modules_free(&ms);
    mem_close(&m->mem);
    free(text);
    CHECK(cost_seconds() - begin < COST_MAX);
}

/* ---- tables ---- */

/* A table in memory: only the used pieces are copied, and all of them are freed. */
static void test_pieces(void)
{
    struct fake_mem *m = fake_mem_new();
    struct modules ms = {0};
    const size_t size = (size_t)64 << 20, far = (size_t)48 << 20;
    Elf64_Phdr load = {.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = size, .p_memsz = size};
    static struct fake_cfi frame;
    uint64_t starts[2] = {BASE + 0x1000, BASE + 0x2000};
    size_t offsets[2];
    const struct cfi_section *section;
    struct cfi_row row;

    fake_mem_add(m, BASE, size);
    fake_module_put(m, LIB); /* for its header */
    fake_mem_put_bytes(m, BASE, fake_mem_at(m, LIB, 0x1000), 0x1000);
    fake_module_phdr(m, BASE, 0, &load);
    frame = (struct fake_cfi){.at = BASE + FAKE_MODULE_FRAME};
    fake_cfi_cie(&frame, &(struct fake_cie){0});
    offsets[0] = fake_cfi_fde(&frame, starts[0], 0x100, "\x0e\x10", 2);
    fake_cfi_fde(&frame, starts[1], 0x100, "\x0e\x20", 2);
    offsets[1] = far;
    fake_module_tables(m, BASE, &frame, starts, offsets, 2);
    /* The second is far behind, with its own CIE. */
    frame = (struct fake_cfi){.at = BASE + FAKE_MODULE_FRAME + far - 0x18};
    CHECK_INT(fake_cfi_cie(&frame, &(struct fake_cie){0}), 0);
    CHECK_INT(frame.len, 0x18);
    fake_cfi_fde(&frame, starts[1], 0x100, "\x0e\x30", 2);
    fake_mem_put_bytes(m, frame.at, frame.bytes, frame.len);
    update(&ms, m, "400000-4400000 r-xp 00000000 08:01 11 /bin/a\n", NULL);
    CHECK_INT(module_tables_row(&ms, ms.items[0], &m->mem, starts[0], &row, &section), 0);
    CHECK(row.cfa.value == 16 && section == &ms.items[0]->eh_table.frame);
    CHECK(ms.table_bytes > 0 && ms.table_bytes < 65536);
    CHECK_INT(module_tables_row(&ms, ms.items[0], &m->mem, starts[1] + 5, &row, &section), 0);
    CHECK(row.cfa.value == 48 && ms.table_bytes < 2 * 65536);
    CHECK(module_tables_row(&ms, ms.items[0], &m->mem, BASE + 0x3000, &row, &section) < 0);
    modules_free(&ms);
    CHECK_INT(ms.table_bytes, 0);
    mem_close(&m->mem);
}

/* A module whose tables exceed the memory limit, again and again: no row, and no memory. */
static void test_budget(void)
{
    struct fake_mem *m = fake_mem_new();
    struct modules ms = {.table_bytes = (uint64_t)512 << 20};
    static struct fake_cfi frame;
    uint64_t start = BASE + 0x1000;
    const struct cfi_section *section;
    struct cfi_row row;
    size_t offset;

    frame = (struct fake_cfi){.at = BASE + FAKE_MODULE_FRAME};
    fake_cfi_cie(&frame, &(struct fake_cie){0});
    offset = fake_cfi_fde(&frame, start, 0x100, "", 0);
    fake_module_put(m, BASE);
    fake_module_tables(m, BASE, &frame, &start, &offset, 1);
    update(&ms, m, PROGRAM, NULL);
    CHECK(module_tables_row(&ms, ms.items[0], &m->mem, start, &row, &section) < 0);
    CHECK(ms.table_bytes == (uint64_t)512 << 20);
    modules_free(&ms);
    ms.table_bytes -= 8192; /* room for the header, but not for the rest */
    update(&ms, m, PROGRAM, NULL);
    CHECK(module_tables_row(&ms, ms.items[0], &m->mem, start, &row, &section) < 0);
    modules_free(&ms);
    CHECK(ms.table_bytes == ((uint64_t)512 << 20) - 8192);
    mem_close(&m->mem);
}

struct opener {
    const char *path; /* NULL: there is no file */
    int root_fd, opened;
};

static int open_fixture(struct opener *o, const struct module *mod, struct frame_section_source *ret)
{
    CHECK_STR(mod->path, "/lib/split.so");
    o->opened++;
    *ret = (struct frame_section_source){.root_fd = o->root_fd, .path = mod->path};
    ret->fd = o->path ? open(o->path, O_RDONLY | O_CLOEXEC) : -1;
    return ret->fd < 0 ? ERR_READ : 0;
}

static int find_eh_frame(void *arg, const struct module *mod, uint64_t *ret_addr, uint64_t *ret_len)
{
    struct frame_section_source src;
    int r = open_fixture(arg, mod, &src);

    if (r < 0)
        return r;
    r = frame_section_find_eh_frame(&src, ret_addr, ret_len);
    close(src.fd);
    return r;
}

static int read_debug_frame(void *arg, const struct module *mod, size_t max, unsigned char **ret, size_t *ret_len)
{
    struct frame_section_source src;
    int r = open_fixture(arg, mod, &src);

    if (r < 0)
        return r;
    r = frame_section_read_debug_frame(&src, max, ret, ret_len);
    close(src.fd);
    return r;
}

static int open_descriptors(void)
{
    int n = 0;

    for (int fd = 3; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* The address of frames_many, which is the same in each of the libraries. */
static addr_t function_at(void)
{
    static unsigned char bytes[1 << 20];
    int fd = open(FIXTURES "/plain.so", O_RDONLY | O_CLOEXEC);
    ssize_t got = read(fd, bytes, sizeof(bytes));
    struct elf_file file = {bytes, got > 0 ? (size_t)got : 0};
    addr_t at = 0;

    close(fd);
    CHECK_INT(elf_file_symbol(&file, "frames_many", &at), 0);
    return at;
}

/* The CFA offset at each byte of frames_many, or -1. */
static void cfas_of(const char *path, bool has_file, int root_fd, int cfas[], size_t n, int *ret_opened)
{
    struct fake_mem *m = fake_mem_new();
    struct opener o = {.path = has_file ? path : NULL, .root_fd = root_fd};
    struct modules ms = {.files = {.find_eh_frame = find_eh_frame, .read_debug_frame = read_debug_frame, .arg = &o}};
    size_t size = fake_module_map(m, LIB, path);
    const struct cfi_section *section;
    struct cfi_row row;
    addr_t at = function_at();
    char text[128];

    snprintf(text, sizeof(text), "%llx-%llx r-xp 00000000 08:01 7 /lib/split.so\n", LIB, LIB + size);
    update(&ms, m, text, NULL);
    if (!CHECK(ms.n == 1 && ms.items[0]->is_elf))
        abort();
    for (size_t i = 0; i < n; i++) {
        int r = module_tables_row(&ms, ms.items[0], &m->mem, LIB + at + i, &row, &section);

        cfas[i] = r == 0 ? (row.cfa.reg == 7 ? row.cfa.value : 9999) : -1;
    }
    *ret_opened = o.opened;
    modules_free(&ms);
    mem_close(&m->mem);
}

/* One source, built with its tables in every place: each gives the same rows. */
static void test_table_locations(void)
{
    static const char *const variants[] = {"no-header.so", "debug.so", "packed.so", "root/lib/split.so"};
    int want[100], got[100], opened, before = open_descriptors();
    char path[4096];
    int root = open(FIXTURES "/root", O_PATH | O_DIRECTORY | O_CLOEXEC);

    cfas_of(FIXTURES "/plain.so", true, root, want, 100, &opened);
    CHECK_INT(opened, 0); /* everything is in memory */
    CHECK(want[0] == 8 && want[20] > 16 && want[99] > 16);
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        snprintf(path, sizeof(path), FIXTURES "/%s", variants[i]);
        cfas_of(path, true, root, got, 100, &opened);
        if (!CHECK(memcmp(want, got, sizeof(want)) == 0 && opened >= 1 && opened <= 2))
            fprintf(stderr, "    %s: opened %d times, %d %d\n", variants[i], opened, got[0], got[99]);
        cfas_of(path, false, root, got, 100, &opened);
        for (size_t k = 0; k < 100; k++)
            CHECK_INT(got[k], -1);
        CHECK(opened <= 2); /* once per table, not per address */
    }
    cfas_of(FIXTURES "/nothing.so", true, root, got, 100, &opened);
    CHECK(got[0] == -1 && got[99] == -1 && opened == 2);
    close(root);
    CHECK_INT(open_descriptors(), before);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_found);
    TEST_RUN(test_layouts);
    TEST_RUN(test_mapped_to_be_read);
    TEST_RUN(test_large_pages);
    TEST_RUN(test_update);
    TEST_RUN(test_alternating_libraries);
    TEST_RUN(test_table_of_replaced_library);
    TEST_RUN(test_wrong_headers);
    TEST_RUN(test_absurd_sizes);
    TEST_RUN(test_many);
    TEST_RUN(test_pieces);
    TEST_RUN(test_budget);
    TEST_RUN(test_table_locations);
    return test_finish("test_modules");
}
