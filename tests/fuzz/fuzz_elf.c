/*
 * ELF files, and the same bytes as an image in memory.
 */
#include "elf/elf_file.h"
#include "fuzz.h"
#include "target/image.h"

#include <string.h>

#define START 0x400000ull

struct bytes_mem {
    struct mem mem;
    const uint8_t *data;
    size_t size;
};

static size_t bytes_readv(struct mem *m, const struct mem_span *spans, size_t n)
{
    const struct bytes_mem *b = (const struct bytes_mem *)m;

    for (size_t i = 0; i < n; i++) {
        addr_t at = spans[i].addr - START;

        if (at > b->size || spans[i].len > b->size - at)
            return i;
        memcpy(spans[i].buf, b->data + at, spans[i].len);
    }
    return n;
}

static struct mem *bytes_close(struct mem *m)
{
    (void)m;
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct mem_ops ops = {.readv = bytes_readv, .close = bytes_close};
    struct bytes_mem m = {{&ops}, data, size};
    struct elf_file f = {data, size};
    struct proc_map map = {.start = START, .end = START + 4096, .readable = true, .inode = 1, .path = ""};
    struct image img;
    addr_t at;

    elf_file_symbol(&f, "_PyRuntime", &at);
    elf_file_symbol(&f, "interp_head", &at);
    if (image_open(&m.mem, &map, &img) == 0)
        image_symbol(&m.mem, &img, "_PyRuntime", &at);
    return 0;
}
