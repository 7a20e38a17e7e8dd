/*
 * A small JIT compiler for tests: runs code in anonymous memory, with and without unwind tables.
 *
 *     jit_run("bare", "truth\n", "/path/spy_jit_code.o");
 *
 * Each kind calls jit_wait, which prints the line and blocks. The frame of the generated code is full of return
 * addresses into never_called, as after calls that are over.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROOM    65536
#define DAMAGED 8

typedef int code_fn(const char *line, int (*wait)(const char *), void *stale);

/* Without .cfi directives, so the library has no unwind tables for them either. */
__asm__(".text\n"
        /* Neither frame pointer nor an epilogue behind the call: rbp points into the frame. */
        "code_bare: push %rbx; push %rbp; push %r12; sub $0x80, %rsp\n"
        "mov $16, %ecx; mov %rsp, %rax\n"
        "1: mov %rdx, (%rax); add $8, %rax; dec %ecx; jne 1b\n"
        "mov %rsp, %rbp; mov %rdi, %rbx; mov %rsi, %r12\n"
        "2: mov %rbx, %rdi; call *%r12; test %eax, %eax; jne 2b\n"
        "add $0x80, %rsp; pop %r12; pop %rbp; pop %rbx; ret\n"
        "code_bare_end:\n"
        /* A frame pointer. */
        "code_fp: push %rbp; mov %rsp, %rbp; push %rbx; push %r12; sub $0x80, %rsp\n"
        "mov $16, %ecx; mov %rsp, %rax\n"
        "1: mov %rdx, (%rax); add $8, %rax; dec %ecx; jne 1b\n"
        "mov %rdi, %rbx; mov %rsi, %r12\n"
        "2: mov %rbx, %rdi; call *%r12; test %eax, %eax; jne 2b\n"
        "add $0x80, %rsp; pop %r12; pop %rbx; pop %rbp; ret\n"
        "code_fp_end:\n"
        /* Nothing but a call, like the trampolines of -X perf in Python 3.12. */
        "code_trampoline: sub $0x18, %rsp; mov %rdx, (%rsp); mov %rdx, 8(%rsp); call *%rsi; add $0x18, %rsp; ret\n"
        "code_trampoline_end:\n");
extern const char code_bare[], code_bare_end[], code_fp[], code_fp_end[], code_trampoline[], code_trampoline_end[];
#define HIDDEN __attribute__((visibility("hidden")))
extern const char code_bare[] HIDDEN, code_bare_end[] HIDDEN, code_fp[] HIDDEN, code_fp_end[] HIDDEN,
    code_trampoline[] HIDDEN, code_trampoline_end[] HIDDEN;

/* ---- the interface to GDB ---- */

struct entry {
    struct entry *next, *prev;
    const void *symfile;
    uint64_t size;
};

struct descriptor {
    uint32_t version, action;
    struct entry *relevant, *first;
};

#ifdef LOCAL /* only in .symtab */
HIDDEN
#endif
struct descriptor __jit_debug_descriptor = {.version = 1};

static void add_entry(const void *symfile, uint64_t size)
{
    struct entry *e = calloc(1, sizeof(*e));

    *e = (struct entry){__jit_debug_descriptor.first, NULL, symfile, size};
    if (e->next)
        e->next->prev = e;
    __jit_debug_descriptor.first = __jit_debug_descriptor.relevant = e;
    __jit_debug_descriptor.action = 1;
}

/* ---- the code ---- */

__attribute__((noinline)) static int jit_wait(const char *line)
{
    volatile ssize_t result = write(1, line, strlen(line));

    if (result >= 0)
        result = poll(NULL, 0, -1);
    return result == 1;
}

__attribute__((noinline)) static void *return_address(void)
{
    return __builtin_return_address(0);
}

__attribute__((noinline)) static void *never_called(void)
{
    void *volatile at = return_address();

    return at;
}

static unsigned char *new_memory(void)
{
    return mmap(NULL, ROOM, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* The `ret` and padding in front are those of another function. */
static code_fn *copy_code(const char *from, const char *end)
{
    unsigned char *at = new_memory();

    memset(at, 0x90, 64);
    at[0] = 0xc3;
    memcpy(at + 64, from, (size_t)(end - from));
    return (code_fn *)(void *)(at + 64);
}

static unsigned char *read_object(const char *path, size_t *ret_size)
{
    unsigned char *bytes = calloc(1, ROOM);
    FILE *file = fopen(path, "rb");

    *ret_size = fread(bytes, 1, ROOM, file);
    fclose(file);
    return bytes;
}

/* Copies the sections to memory, enters their addresses as LLVM does, and finds the function jit_outer. */
static code_fn *load_object(const char *path, unsigned char **ret_object, size_t *ret_size)
{
    unsigned char *object = read_object(path, ret_size), *memory = new_memory();
    Elf64_Ehdr *eh = (void *)object;
    Elf64_Shdr *sections = (void *)(object + eh->e_shoff);
    code_fn *found = NULL;
    size_t used = 0;

    for (int i = 1; i < eh->e_shnum; i++) {
        if (!(sections[i].sh_flags & SHF_ALLOC) || !sections[i].sh_size)
            continue;
        sections[i].sh_addr = (uintptr_t)memory + used;
        if (sections[i].sh_type != SHT_NOBITS)
            memcpy(memory + used, object + sections[i].sh_offset, sections[i].sh_size);
        used += (sections[i].sh_size + 63) & ~63ul;
    }
    for (int i = 1; i < eh->e_shnum; i++) {
        const Elf64_Sym *symbols = (void *)(object + sections[i].sh_offset);
        const char *strings = (char *)object + sections[sections[i].sh_link].sh_offset;

        for (size_t k = 0; sections[i].sh_type == SHT_SYMTAB && k < sections[i].sh_size / sizeof(*symbols); k++)
            if (strcmp(strings + symbols[k].st_name, "jit_outer") == 0)
                found = (code_fn *)(void *)(sections[symbols[k].st_shndx].sh_addr + symbols[k].st_value);
    }
    *ret_object = object;
    return found;
}

/* Entries that are wrong, each in its own way, around the right one; the list ends in a cycle. */
static void add_damaged(const unsigned char *object, size_t size)
{
    Elf64_Ehdr *eh;
    unsigned char *copies[DAMAGED];

    for (int i = 0; i < DAMAGED; i++) {
        copies[i] = calloc(1, ROOM);
        memcpy(copies[i], object, size);
        eh = (void *)copies[i];
        if (i == 0)
            eh->e_shoff = UINT64_MAX - 64;
        else if (i == 1)
            eh->e_shnum = 65535;
        else if (i == 2)
            memset(copies[i] + eh->e_shoff + sizeof(Elf64_Shdr), 0xff, 2 * sizeof(Elf64_Shdr));
        else if (i == 3)
            memset(copies[i], 0xff, size);
        else if (i == 4)
            memset(copies[i] + sizeof(*eh), 0xff, size - sizeof(*eh));
        add_entry(copies[i], i == 5 ? UINT64_MAX : i == 6 ? 10 : i == 7 ? UINT64_MAX / 2 : size);
    }
    add_entry(NULL, 4096);
    add_entry((void *)~0ul, 4096);
}

static void make_cycle(void)
{
    struct entry *last = __jit_debug_descriptor.first;

    while (last->next)
        last = last->next;
    last->next = __jit_debug_descriptor.first->next;
}

static code_fn *make(const char *kind, const char *object_path)
{
    unsigned char *object;
    size_t size;
    code_fn *code;

    if (strcmp(kind, "bare") == 0)
        return copy_code(code_bare, code_bare_end);
    if (strcmp(kind, "fp") == 0)
        return copy_code(code_fp, code_fp_end);
    if (strcmp(kind, "trampoline") == 0)
        return copy_code(code_trampoline, code_trampoline_end);
    code = load_object(object_path, &object, &size);
    if (strcmp(kind, "unregistered") == 0)
        return code;
    if (strcmp(kind, "hostile") == 0)
        add_damaged(object, size);
    add_entry(object, size);
    if (strcmp(kind, "hostile") == 0) {
        add_damaged(object, size);
        make_cycle();
    }
    return code;
}

__attribute__((noinline)) int jit_run(const char *kind, const char *line, const char *object_path)
{
    code_fn *code = make(kind, object_path);
    volatile int result = code ? code(line, jit_wait, never_called()) : -1;

    return result;
}

/* Called from a loop that the JIT compiler of CPython compiles: blocks at the end of it. */
__attribute__((noinline)) int jit_step(const char *line, int left)
{
    volatile int result = left ? 0 : jit_wait(line);

    return result;
}
