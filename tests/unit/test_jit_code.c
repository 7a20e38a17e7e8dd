/*
 * elf/jit_object.c, unwind/jit_code.c and cpu_unwind_by_prologue: code that a JIT compiler registers with GDB, on
 * synthetic memory.
 */
#include "base/err.h"
#include "cost.h"
#include "elf/jit_object.h"
#include "fake_elf.h"
#include "fake_module.h"
#include "test.h"
#include "unwind/unwind.h"

#define BASE  0x400000ull /* a program with tables: its only function has no caller */
#define LIB   0x7f0000ull /* a library with __jit_debug_descriptor */
#define MADE  0x900000ull /* JIT-compiled code */
#define HEAP  0xa00000ull
#define STACK 0x10000000ull
#define ROOM  0x1000

#define FIRST      (BASE + FAKE_MODULE_CODE)
#define WITH_TABLE (MADE + 0x1000) /* CFA is rsp + 64 */
#define BY_NAME    (MADE + 0x1100) /* a symbol, but no unwind table */
#define CODE_LEN   0x200
#define DESCRIPTOR (LIB + FAKE_ELF_DATA)

enum { NONE, TEXT, FRAME, RELA, SYMTAB, STRTAB, NAMES, N_SECTIONS };

static const char names[] = "\0.eh_frame\0made_a\0made_b";

struct object {
    unsigned char bytes[4096];
    size_t len;
    size_t offset[N_SECTIONS];
};

static size_t put(struct object *o, const void *bytes, size_t len)
{
    size_t at = (o->len + 7) & ~7ull;

    memcpy(o->bytes + at, bytes, len);
    o->len = at + len;
    return at;
}

/* An object file as LLVM registers it: its sections have addresses, its symbols and tables are not relocated. */
static void object_make(struct object *o)
{
    struct fake_cfi frame = {.at = MADE + 0x8000};
    Elf64_Sym symbols[] = {{0},
                           {.st_info = STT_SECTION, .st_shndx = TEXT},
                           {.st_name = 11, .st_info = STT_FUNC, .st_shndx = TEXT, .st_size = 0x100},
                           {.st_name = 18, .st_info = STT_FUNC, .st_shndx = TEXT, .st_value = 0x100, .st_size = 0x100}};
    Elf64_Ehdr eh = {.e_type = ET_REL,
                     .e_machine = EM_X86_64,
                     .e_shentsize = sizeof(Elf64_Shdr),
                     .e_shnum = N_SECTIONS,
                     .e_shstrndx = NAMES};
    Elf64_Rela rela = {.r_info = ELF64_R_INFO(1, R_X86_64_PC32)};
    size_t fde;

    memset(o, 0, sizeof(*o));
    o->len = sizeof(eh);
    fake_cfi_cie(&frame, &(struct fake_cie){.letters = "zR"});
    fde = fake_cfi_fde(&frame, WITH_TABLE, 0x100, "\x0e\x40", 2);
    memset(frame.bytes + fde + 8, 0, 4); /* its start: the relocation enters it */
    rela.r_offset = fde + 8;
    o->offset[FRAME] = put(o, frame.bytes, frame.len);
    o->offset[RELA] = put(o, &rela, sizeof(rela));
    o->offset[SYMTAB] = put(o, symbols, sizeof(symbols));
    o->offset[NAMES] = put(o, names, sizeof(names));
    Elf64_Shdr sections[N_SECTIONS] = {
        [TEXT] = {.sh_type = SHT_NOBITS,
                  .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                  .sh_addr = WITH_TABLE,
                  .sh_size = CODE_LEN},
        [FRAME] = {.sh_name = 1,
                   .sh_type = SHT_PROGBITS,
                   .sh_flags = SHF_ALLOC,
                   .sh_addr = MADE + 0x8000,
                   .sh_offset = o->offset[FRAME],
                   .sh_size = frame.len},
        [RELA] = {.sh_type = SHT_RELA,
                  .sh_offset = o->offset[RELA],
                  .sh_size = sizeof(rela),
                  .sh_link = SYMTAB,
                  .sh_info = FRAME},
        [SYMTAB] = {.sh_type = SHT_SYMTAB,
                    .sh_offset = o->offset[SYMTAB],
                    .sh_size = sizeof(symbols),
                    .sh_link = STRTAB},
        [STRTAB] = {.sh_type = SHT_STRTAB, .sh_offset = o->offset[NAMES], .sh_size = sizeof(names)},
        [NAMES] = {.sh_type = SHT_STRTAB, .sh_offset = o->offset[NAMES], .sh_size = sizeof(names)},
    };
    eh.e_shoff = put(o, sections, sizeof(sections));
    memcpy(eh.e_ident, ELFMAG, SELFMAG);
    eh.e_ident[EI_CLASS] = ELFCLASS64;
    eh.e_ident[EI_DATA] = ELFDATA2LSB;
    memcpy(o->bytes, &eh, sizeof(eh));
}

static Elf64_Ehdr *header(struct object *o)
{
    return (Elf64_Ehdr *)(void *)o->bytes;
}

static Elf64_Rela *relocation(struct object *o)
{
    return (Elf64_Rela *)(void *)(o->bytes + o->offset[RELA]);
}

/* ---- one object ---- */

static void test_relocate(void)
{
    struct object *o = calloc(1, sizeof(*o));
    struct jit_object_section found;
    uint64_t start = 0;
    int32_t value;

    object_make(o);
    CHECK(!jit_object_function(o->bytes, o->len, BY_NAME, &start));
    jit_object_relocate(o->bytes, o->len);
    CHECK(jit_object_function(o->bytes, o->len, WITH_TABLE + 0xff, &start) && start == WITH_TABLE);
    CHECK(jit_object_function(o->bytes, o->len, BY_NAME, &start) && start == BY_NAME);
    CHECK(!jit_object_function(o->bytes, o->len, BY_NAME + 0x100, &start));
    CHECK(jit_object_section(o->bytes, o->len, ".eh_frame", &found) && found.addr == MADE + 0x8000);
    CHECK(!jit_object_section(o->bytes, o->len, ".debug_frame", &found));
    memcpy(&value, o->bytes + found.offset + relocation(o)->r_offset, sizeof(value));
    CHECK(value == (int32_t)(WITH_TABLE - (found.addr + relocation(o)->r_offset)));
    CHECK(header(o)->e_type == ET_EXEC);
    jit_object_relocate(o->bytes, o->len); /* nothing is left to do */
    CHECK(jit_object_function(o->bytes, o->len, BY_NAME, &start) && start == BY_NAME);
    free(o);
}

/* Every kind of relocation, and those that must not be applied. */
static void test_relocations(void)
{
    static const struct {
        unsigned type, size; /* 0: it is not applied */
        uint64_t value;
    } kinds[] = {{R_X86_64_64, 8, WITH_TABLE + 5},
                 {R_X86_64_32, 4, WITH_TABLE + 5},
                 {R_X86_64_32S, 4, WITH_TABLE + 5},
                 {R_X86_64_PC32, 4, WITH_TABLE + 5 - (MADE + 0x8010)},
                 {R_X86_64_PC64, 8, WITH_TABLE + 5 - (MADE + 0x8010)},
                 {R_X86_64_GOTPCREL, 0, 0},
                 {R_X86_64_NONE, 0, 0}};
    static const uint64_t outside[] = {UINT64_MAX, UINT64_MAX - 3, 1 << 20};
    struct object *o = calloc(1, sizeof(*o)), *before = calloc(1, sizeof(*o));

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        uint64_t value = 0, old = 0;

        object_make(o);
        memcpy(&old, o->bytes + o->offset[FRAME] + 0x10, sizeof(old));
        *relocation(o) = (Elf64_Rela){.r_offset = 0x10, .r_info = ELF64_R_INFO(1, kinds[i].type), .r_addend = 5};
        jit_object_relocate(o->bytes, o->len);
        memcpy(&value, o->bytes + o->offset[FRAME] + 0x10, sizeof(value));
        if (!CHECK(memcmp(&value, &kinds[i].value, kinds[i].size) == 0 && (kinds[i].size || value == old)))
            fprintf(stderr, "    kind %zu\n", i);
    }
    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]) + 2; i++) {
        object_make(o);
        if (i < sizeof(outside) / sizeof(outside[0]))
            relocation(o)->r_offset = outside[i];
        else
            relocation(o)->r_info = ELF64_R_INFO(i & 1 ? 1000 : 0, R_X86_64_64); /* no such symbol; undefined */
        *before = *o;
        jit_object_relocate(o->bytes, o->len);
        CHECK(memcmp(o->bytes + o->offset[FRAME], before->bytes + o->offset[FRAME], 64) == 0);
    }
    free(o);
    free(before);
}

/* Every byte changed, and every length: reads and writes stay inside. Run with sanitizers. */
static void test_damaged(void)
{
    struct object *o = calloc(1, sizeof(*o));
    struct jit_object_section found;
    uint64_t start;

    object_make(o);
    for (size_t i = 0; i < o->len; i++)
        for (int bit = 0; bit <= 8; bit++) {
            unsigned char *copy;
            size_t len = bit == 8 ? i : o->len;

            object_make(o);
            if (bit < 8)
                o->bytes[i] ^= (unsigned char)(1 << bit);
            copy = malloc(len + 1);
            memcpy(copy, o->bytes, len);
            copy = realloc(copy, len ? len : 1); /* so that a sanitizer notices the first byte too much */
            jit_object_relocate(copy, len);
            jit_object_section(copy, len, ".eh_frame", &found);
            jit_object_function(copy, len, BY_NAME, &start);
            free(copy);
        }
    free(o);
}

/* ---- a process ---- */

struct fixture {
    struct fake_mem *m;
    struct unwind *u;
    struct object object;
    struct regs regs;
    unsigned char bytes[ROOM];
    struct stack_copy copy;
    struct native_stack stack;
};

static void update(struct fixture *w)
{
    struct proc_maps maps = fake_module_maps("400000-408000 r-xp 00000000 08:01 11 /bin/a\n"
                                             "7f0000-7f4000 r-xp 00000000 08:01 12 /lib/jit.so\n"
                                             "900000-910000 rwxp 00000000 00:00 0\n"
                                             "a00000-a40000 rw-p 00000000 00:00 0\n");
    bool changed;

    CHECK_INT(unwind_update(w->u, &w->m->mem, &maps, &changed), 0);
    proc_maps_free(&maps);
}

static void put_entry(struct fixture *w, addr_t at, addr_t next, addr_t file, uint64_t len)
{
    uint64_t entry[] = {next, 0, file, len};

    fake_mem_put_bytes(w->m, at, entry, sizeof(entry));
}

static void put_descriptor(struct fixture *w, uint32_t version, addr_t first)
{
    struct {
        uint32_t version, action;
        uint64_t relevant, first;
    } d = {version, 0, 0, first};

    fake_mem_put_bytes(w->m, DESCRIPTOR, &d, sizeof(d));
}

static void put_library(struct fixture *w)
{
    static const struct fake_symbol dynamic[] = {{"__jit_debug_descriptor", FAKE_ELF_DATA}, {0}}, local[] = {{0}};
    struct fake_elf elf;

    fake_elf_make(&elf, dynamic, local, 0x1000);
    fake_mem_add(w->m, LIB, 0x4000);
    fake_mem_put_bytes(w->m, LIB, elf.bytes, elf.len);
    fake_elf_free(&elf);
}

static void put_program(struct fixture *w)
{
    struct fake_cfi frame = {.at = BASE + FAKE_MODULE_FRAME};
    uint64_t start = FIRST;
    size_t offset;

    fake_module_put(w->m, BASE);
    memset(fake_mem_at(w->m, FIRST, 0x100), 0xe8, 0x100); /* each address looks like one after a call */
    fake_cfi_cie(&frame, &(struct fake_cie){0});
    offset = fake_cfi_fde(&frame, start, 0x100, "\x07\x10", 2);
    fake_cfi_end(&frame);
    fake_module_tables(w->m, BASE, &frame, &start, &offset, 1);
}

static struct fixture *fixture_new(void)
{
    struct fixture *w = calloc(1, sizeof(*w));

    w->m = fake_mem_new();
    w->u = unwind_new();
    fake_mem_add(w->m, MADE, 0x10000);
    memset(fake_mem_at(w->m, MADE, 0x10000), 0xe8, 0x10000);
    fake_mem_add(w->m, HEAP, 0x40000);
    put_program(w);
    put_library(w);
    object_make(&w->object);
    fake_mem_put_bytes(w->m, HEAP + 0x1000, w->object.bytes, w->object.len);
    put_entry(w, HEAP, 0, HEAP + 0x1000, w->object.len);
    put_descriptor(w, 1, HEAP);
    update(w);
    w->copy = (struct stack_copy){.addr = STACK, .bytes = w->bytes, .len = ROOM};
    w->regs.r[REGS_SP] = STACK;
    return w;
}

static void fixture_free(struct fixture *w)
{
    native_stack_free(&w->stack);
    unwind_free(w->u);
    mem_close(&w->m->mem);
    free(w);
}

static void word(struct fixture *w, size_t at, uint64_t value)
{
    memcpy(w->bytes + at, &value, sizeof(value));
}

/* Walks from `pc`. Returns the offset of the end of the first frame if its caller is the outermost function, else 0. */
static uint64_t walk(struct fixture *w, uint64_t pc)
{
    w->regs.r[REGS_PC] = pc;
    CHECK_INT(unwind_stack(w->u, &w->m->mem, &w->regs, &w->copy, &w->stack), 0);
    CHECK(w->stack.complete == (w->stack.n == 2));
    return w->stack.n == 2 ? w->stack.items[0].cfa - STACK : 0;
}

/* Return addresses of calls that are over; only one of them is the caller's. */
static void put_stale(struct fixture *w, size_t at)
{
    for (size_t i = 0; i < ROOM; i += 8)
        word(w, i, FIRST + 9);
    word(w, at, FIRST + 0x20);
}

static bool returns_to_caller(struct fixture *w, uint64_t pc)
{
    return walk(w, pc) && w->stack.items[1].pc_entry->pc == FIRST + 0x1f;
}

static void test_registered(void)
{
    struct fixture *w = fixture_new();

    put_stale(w, 56);
    CHECK(returns_to_caller(w, WITH_TABLE + 0x10) && w->stack.items[0].cfa == STACK + 64);
    CHECK(w->stack.items[0].pc_entry->has_row && !w->stack.items[0].pc_entry->module->is_elf);
    CHECK_STR(w->stack.items[0].pc_entry->module->path, "[JIT]");
    CHECK(walk(w, MADE + 0x2000) == 0); /* code that nothing describes */
    CHECK(!w->stack.items[0].pc_entry->module->image);
    /* The object is gone. */
    put_descriptor(w, 1, 0);
    update(w);
    CHECK(walk(w, WITH_TABLE + 0x10) == 0);
    /* It is back. */
    put_descriptor(w, 1, HEAP);
    update(w);
    CHECK(returns_to_caller(w, WITH_TABLE + 0x10));
    update(w);
    CHECK(returns_to_caller(w, WITH_TABLE + 0x10));
    fixture_free(w);
}

/* Another object takes the place of the first: the same entry, address and length. */
static void test_replaced(void)
{
    struct fixture *w = fixture_new();

    put_stale(w, 56);
    CHECK(returns_to_caller(w, WITH_TABLE + 0x10));
    relocation(&w->object)->r_addend = 0x100; /* the unwind table is that of the second function */
    fake_mem_put_bytes(w->m, HEAP + 0x1000, w->object.bytes, w->object.len);
    update(w);
    CHECK(walk(w, WITH_TABLE + 0x10) == 0);
    CHECK(returns_to_caller(w, BY_NAME + 0x10));
    /* Newer entries come first, and the first one that has a table counts. */
    put_entry(w, HEAP + 0x100, HEAP, HEAP + 0x3000, w->object.len);
    relocation(&w->object)->r_addend = 0;
    fake_mem_put_bytes(w->m, HEAP + 0x3000, w->object.bytes, w->object.len);
    put_descriptor(w, 1, HEAP + 0x100);
    update(w);
    CHECK(returns_to_caller(w, WITH_TABLE + 0x10));
    CHECK(returns_to_caller(w, BY_NAME + 0x10));
    fixture_free(w);
}

/* Lists that do not end, or lead nowhere. */
static void test_hostile_lists(void)
{
    struct fixture *w = fixture_new();
    double begin = cost_seconds();

    put_stale(w, 56);
    put_descriptor(w, 2, HEAP); /* another version */
    CHECK(walk(w, WITH_TABLE + 0x10) == 0);
    put_descriptor(w, 1, 0xdeadbeef000);
    update(w);
    CHECK(walk(w, WITH_TABLE + 0x10) == 0);
    put_descriptor(w, 1, HEAP + 0x40000 - 8);
    update(w);
    CHECK(walk(w, WITH_TABLE + 0x10) == 0);
    put_entry(w, HEAP, HEAP, HEAP + 0x1000, w->object.len); /* a cycle of one */
    put_descriptor(w, 1, HEAP);
    update(w);
    CHECK(returns_to_caller(w, WITH_TABLE + 0x10));
    for (addr_t at = 0; at < 0x800; at += 32) /* 64 entries without a file, then a cycle into their middle */
        put_entry(w, HEAP + at, HEAP + at + 32, at % 3 ? 0 : HEAP, UINT64_MAX - at);
    put_entry(w, HEAP + 0x800, HEAP + 0x400, HEAP + 0x1000, w->object.len);
    update(w);
    CHECK(returns_to_caller(w, WITH_TABLE + 0x10));
    for (addr_t at = 0x4000; at < 0x3ffe0; at += 32) /* thousands of entries for one file */
        put_entry(w, HEAP + at, HEAP + at + 32, HEAP + 0x1000, w->object.len);
    put_descriptor(w, 1, HEAP + 0x4000);
    update(w);
    CHECK(returns_to_caller(w, WITH_TABLE + 0x10));
    CHECK(walk(w, WITH_TABLE + CODE_LEN) == 0);
    fake_mem_put(w->m, HEAP + 0x1000, 0); /* and the file is invalid */
    update(w);
    CHECK(walk(w, WITH_TABLE + 0x10) == 0);
    CHECK(cost_seconds() - begin < COST_MAX);
    fixture_free(w);
}

/* Files with every bit changed. */
static void test_hostile_files(void)
{
    struct fixture *w = fixture_new();

    put_stale(w, 56);
    walk(w, WITH_TABLE + 0x10);
    for (size_t i = 0; i < w->object.len; i++) {
        object_make(&w->object);
        w->object.bytes[i] ^= (unsigned char)(1 << i % 8);
        fake_mem_put_bytes(w->m, HEAP + 0x1000, w->object.bytes, w->object.len);
        put_entry(w, HEAP, 0, HEAP + 0x1000, i % 16 ? w->object.len : i);
        update(w);
        walk(w, WITH_TABLE + 0x10);
        walk(w, BY_NAME + 0x10);
    }
    put_entry(w, HEAP, 0, HEAP + 0x1000, UINT64_MAX);
    update(w);
    CHECK(walk(w, WITH_TABLE + 0x10) == 0);
    fixture_free(w);
}

/* ---- a function with a name, but without a table ---- */

static void put_code(struct fixture *w, addr_t at, const char *code, size_t len)
{
    memset(fake_mem_at(w->m, BY_NAME, 0x100), 0x99, 0x100);
    fake_mem_put_bytes(w->m, at, code, len);
}

#define CODE(w, at, text) put_code(w, at, text, sizeof(text) - 1)

static void test_prologue(void)
{
    static const struct {
        const char *code;
        size_t len, at; /* `at`: of the return address */
    } prologues[] = {
        {"\x55\x41\x57\x41\x56\x41\x55\x41\x54\x53\x48\x83\xec\x18", 14, 0x48}, /* six pushes and sub $0x18, %rsp */
        {"\x48\x81\xec\x88\x02\x00\x00", 7, 0x288},
        {"\x50", 1, 8},
        {"\xf3\x0f\x1e\xfa\x53\x48\x83\xec\x10", 9, 0x18},
        {"\x55\x48\x89\xe5\x53\x48\x83\xec\x10", 9, 0x408}, /* a frame pointer: rbp is at 0x400 */
    };
    struct fixture *w = fixture_new();

    for (size_t i = 0; i < sizeof(prologues) / sizeof(prologues[0]); i++) {
        put_code(w, BY_NAME, prologues[i].code, prologues[i].len);
        w->regs.r[REGS_BP] = STACK + 0x400;
        put_stale(w, prologues[i].at);
        update(w);
        if (!CHECK(returns_to_caller(w, BY_NAME + 0x20) && w->stack.items[0].cfa == STACK + prologues[i].at + 8))
            fprintf(stderr, "    prologue %zu\n", i);
        CHECK(!w->stack.items[0].pc_entry->has_row && w->stack.items[0].pc_entry->function == BY_NAME);
    }
    /* In the middle of it: after two of the pushes. */
    put_code(w, BY_NAME, prologues[0].code, prologues[0].len);
    put_stale(w, 16);
    CHECK(returns_to_caller(w, BY_NAME + 3));
    put_stale(w, 0x48);
    word(w, 0x48, 42); /* no return address where one must be */
    CHECK(walk(w, BY_NAME + 0x20) == 0);
    fixture_free(w);
}

/* Without a frame at its start, a function may set one up later. Only its caller's call instruction proves more. */
static void test_no_prologue(void)
{
    static const uint64_t start = BY_NAME;
    struct fixture *w = fixture_new();
    int32_t offset = (int32_t)(BY_NAME - (FIRST + 0x80));

    put_stale(w, 0);
    CODE(w, BY_NAME + 0x20, "\x48\x01\xd8");
    CHECK(walk(w, BY_NAME + 0x20) == 0);
    word(w, 0, FIRST + 0x80);
    CHECK(walk(w, BY_NAME + 0x20) == 0);
    fake_mem_put_bytes(w->m, FIRST + 0x80 - 4, &offset, 4); /* call BY_NAME */
    CHECK(walk(w, BY_NAME + 0x20) == 8);
    fake_mem_put_bytes(w->m, FIRST + 0x80 - 5, "\xff\xd0\xff\xd0\xff", 5);
    fake_mem_put_bytes(w->m, FIRST + 0x80 - 2, "\xff\xd0", 2);
    CHECK(walk(w, BY_NAME + 0x20) == 0);
    fake_mem_put_bytes(w->m, FIRST + 0x60, "\x48\xb8", 2); /* movabs $BY_NAME, %rax */
    fake_mem_put_bytes(w->m, FIRST + 0x62, &start, 8);
    CHECK(walk(w, BY_NAME + 0x20) == 8);
    fixture_free(w);
}

/* The frame is partly popped, and a jump follows instead of `ret`. */
static void test_tail_call(void)
{
    struct fixture *w = fixture_new();

    put_stale(w, 0x20);
    CODE(w, BY_NAME, "\x53\x48\x83\xec\x18");
    fake_mem_put_bytes(w->m, BY_NAME + 0x20, "\x48\x83\xc4\x18\x5b\xe9\x01\x02\x03\x04", 10);
    CHECK(returns_to_caller(w, BY_NAME + 0x1f));
    CHECK(walk(w, BY_NAME + 0x20) == 0);
    CHECK(walk(w, BY_NAME + 0x24) == 0);
    CHECK(walk(w, BY_NAME + 0x25) == 0);
    fake_mem_put_bytes(w->m, BY_NAME + 0x25, "\xc3", 1);
    CHECK(returns_to_caller(w, BY_NAME + 0x20));
    put_stale(w, 8);
    CHECK(returns_to_caller(w, BY_NAME + 0x24));
    fixture_free(w);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_relocate);
    TEST_RUN(test_relocations);
    TEST_RUN(test_damaged);
    TEST_RUN(test_registered);
    TEST_RUN(test_replaced);
    TEST_RUN(test_hostile_lists);
    TEST_RUN(test_hostile_files);
    TEST_RUN(test_prologue);
    TEST_RUN(test_no_prologue);
    TEST_RUN(test_tail_call);
    return test_finish("test_jit_code");
}
