/*
 * A thread in a synthetic process: the bytes are its registers (136), 2048 bytes of its stack, and then its program,
 * mapped at BASE. Unwinding must always end, and each frame must be in the program.
 */
#include "fuzz.h"
#include "unwind/unwind.h"

#include <stdlib.h>
#include <string.h>

#define BASE  0x400000ull
#define STACK 0x7ffc0000ull
#define ROOM  2048

struct bytes_mem {
    struct mem mem;
    const uint8_t *data;
    size_t size;
};

static size_t bytes_readv(struct mem *m, const struct mem_span *spans, size_t n)
{
    const struct bytes_mem *b = (const struct bytes_mem *)m;

    for (size_t i = 0; i < n; i++) {
        addr_t at = spans[i].addr - BASE;

        if (at > b->size || spans[i].len > b->size - at)
            return i;
        memcpy(spans[i].buf, b->data + at, spans[i].len);
    }
    return n;
}

static void walk(struct unwind *u, struct mem *m, const struct regs *regs, const struct stack_copy *copy)
{
    struct native_stack stack = {0};

    if (unwind_stack(u, m, regs, copy, &stack) == 0)
        for (size_t i = 0; i < stack.n; i++)
            if (!stack.items[i].pc_entry->module || stack.items[i].cfa < stack.items[i].sp)
                abort();
    native_stack_free(&stack);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct mem_ops ops = {.readv = bytes_readv};
    struct regs regs;
    struct stack_copy copy = {.addr = STACK, .len = ROOM};
    struct bytes_mem m = {.mem = {&ops}};
    struct proc_map maps[] = {
        {.start = BASE, .readable = true, .executable = true, .inode = 1, .path = "/bin/a"},
        {.start = STACK, .end = STACK + ROOM, .readable = true, .writable = true, .path = "[stack]"},
    };
    struct proc_maps all = {.items = maps, .n = 2};
    struct unwind *u;
    bool changed;

    if (size < sizeof(regs) + ROOM + 4096)
        return 0;
    memcpy(&regs, data, sizeof(regs));
    copy.bytes = data + sizeof(regs);
    m.data = data + sizeof(regs) + ROOM;
    m.size = size - sizeof(regs) - ROOM;
    maps[0].end = BASE + ((m.size + 4095) & ~4095ull);
    u = unwind_new();
    if (u && unwind_update(u, &m.mem, &all, &changed) == 0) {
        walk(u, &m.mem, &regs, &copy);
        unwind_update(u, &m.mem, &all, &changed);
        walk(u, &m.mem, &regs, &copy);
    }
    unwind_free(u);
    return 0;
}
