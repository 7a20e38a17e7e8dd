/*
 * Loads the unwind tables of modules. Copies .eh_frame in chunks, on demand, because it can take hundreds of megabytes
 * in a large program. The tables of all modules share one memory limit; beyond it, a pc has no row.
 */
#include "unwind/module_tables.h"

#include "base/err.h"
#include "base/log.h"
#include "elf/jit_object.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK           ((size_t)16 * 1024)
#define MAX_HDR         ((uint64_t)64 * 1024 * 1024) /* 8 million functions */
#define MAX_EH_FRAME    ((uint64_t)1024 * 1024 * 1024)
#define MAX_DEBUG_FRAME ((size_t)256 * 1024 * 1024)
#define MAX_TOTAL       ((uint64_t)512 * 1024 * 1024) /* of all modules */

static bool reserve_bytes(struct modules *ms, struct module *mod, uint64_t len)
{
    if (len > MAX_TOTAL || ms->table_bytes > MAX_TOTAL - len)
        return false;
    ms->table_bytes += len;
    mod->table_bytes += len;
    return true;
}

/* How many of the `len` bytes at `at` lie in one segment of the module, and so are in memory. */
static uint64_t mapped_len(const struct module *mod, addr_t at, uint64_t len)
{
    for (size_t i = 0; i < mod->n_segments; i++) {
        uint64_t room = mod->segments[i].end - at;

        if (at >= mod->segments[i].start && at < mod->segments[i].end)
            return len < room ? len : room;
    }
    return 0;
}

/* True if the module is still mapped. Call it after reading from its memory: another one may have taken its place. */
static bool is_still_mapped(const struct module *mod, struct mem *m)
{
    unsigned char page[MODULE_PAGE];

    return !mod->first_page || mod->never_unloaded ||
           (mem_read(m, mod->start, page, sizeof(page)) == 0 && memcmp(page, mod->first_page, sizeof(page)) == 0);
}

/* cfi_section.load: reads the missing chunks of .eh_frame. */
static bool load_chunks(void *arg, size_t pos, size_t len)
{
    struct module *mod = arg;
    const struct cfi_section *s = &mod->eh_table.frame;

    for (size_t i = pos / CHUNK; i * CHUNK < pos + len; i++) {
        size_t n = s->len - i * CHUNK < CHUNK ? s->len - i * CHUNK : CHUNK;

        if (mod->chunk_loaded[i])
            continue;
        if (!reserve_bytes(mod->owner, mod, n) ||
            mem_read(mod->mem, s->addr + i * CHUNK, mod->eh_frame_bytes + i * CHUNK, n) < 0 ||
            !is_still_mapped(mod, mod->mem))
            return false;
        mod->chunk_loaded[i] = true;
    }
    return true;
}

static bool alloc_eh_frame(struct module *mod, addr_t at, uint64_t len, struct cfi_section *ret)
{
    len = mapped_len(mod, at, len);
    if (len > MAX_EH_FRAME)
        len = MAX_EH_FRAME;
    /* calloc maps fresh pages, so chunks that are never read use no memory. */
    mod->eh_frame_bytes = len ? calloc(1, len) : NULL;
    mod->chunk_loaded = mod->eh_frame_bytes ? calloc(len / CHUNK + 1, sizeof(*mod->chunk_loaded)) : NULL;
    if (!mod->chunk_loaded)
        return false;
    *ret = (struct cfi_section){.bytes = mod->eh_frame_bytes, .len = len, .addr = at, .load = load_chunks, .arg = mod};
    mod->eh_table.frame = *ret;
    return true;
}

static bool make_eh_table(struct modules *ms, struct module *mod, const struct cfi_section *frame,
                          const struct cfi_section *header)
{
    return cfi_table_make(&mod->eh_table, frame, header) == 0 &&
           (mod->eh_table.n_hdr_pairs || mod->eh_table.n_entries) &&
           reserve_bytes(ms, mod, mod->eh_table.n_entries * sizeof(struct cfi_entry));
}

/* Finds .eh_frame through .eh_frame_hdr in memory, as the dynamic linker does. */
static bool load_from_hdr(struct modules *ms, struct module *mod, struct mem *m)
{
    uint64_t len = mod->eh_frame_hdr ? mapped_len(mod, mod->eh_frame_hdr, mod->eh_frame_hdr_len) : 0;
    struct cfi_section header = {.len = len, .addr = mod->eh_frame_hdr}, frame;
    addr_t at;

    if (!len || len > MAX_HDR || !reserve_bytes(ms, mod, len))
        return false;
    header.bytes = mod->hdr_bytes = malloc(len);
    if (!header.bytes || mem_read(m, mod->eh_frame_hdr, mod->hdr_bytes, len) < 0 || !is_still_mapped(mod, m))
        return false;
    at = cfi_header_frame(&header);
    return at && alloc_eh_frame(mod, at, UINT64_MAX, &frame) && make_eh_table(ms, mod, &frame, &header);
}

static bool has_file(const struct module *mod)
{
    return mod->is_elf && mod->path[0] == '/';
}

static bool load_from_file(struct modules *ms, struct module *mod)
{
    struct cfi_section frame;
    uint64_t addr, len;

    return has_file(mod) && ms->files.find_eh_frame && ms->files.find_eh_frame(ms->files.arg, mod, &addr, &len) == 0 &&
           alloc_eh_frame(mod, addr + mod->bias, len, &frame) && make_eh_table(ms, mod, &frame, NULL);
}

static void free_eh_frame(struct modules *ms, struct module *mod)
{
    cfi_table_free(&mod->eh_table);
    free(mod->hdr_bytes);
    free(mod->eh_frame_bytes);
    free(mod->chunk_loaded);
    mod->hdr_bytes = mod->eh_frame_bytes = NULL;
    mod->chunk_loaded = NULL;
    ms->table_bytes -= mod->table_bytes;
    mod->table_bytes = 0;
}

static void load_eh_frame(struct modules *ms, struct module *mod, struct mem *m)
{
    bool made = load_from_hdr(ms, mod, m);

    if (!made) {
        free_eh_frame(ms, mod);
        made = load_from_file(ms, mod);
    }
    mod->tried_eh_frame = is_still_mapped(mod, m); /* if not, retry next time */
    log_debug("unwind", "%s: %s, %zu entries", mod->path,
              !made            ? "no .eh_frame"
              : mod->hdr_bytes ? ".eh_frame by its header in memory"
                               : ".eh_frame by the file",
              mod->eh_table.n_hdr_pairs + mod->eh_table.n_entries);
    if (!made || !mod->tried_eh_frame)
        free_eh_frame(ms, mod);
}

static void load_debug_frame(struct modules *ms, struct module *mod)
{
    struct cfi_section frame = {.addr = 0};
    size_t len;

    mod->tried_debug_frame = true;
    if (!has_file(mod) || !ms->files.read_debug_frame)
        return;
    if (ms->files.read_debug_frame(ms->files.arg, mod, MAX_DEBUG_FRAME, &mod->debug_frame_bytes, &len) == 0 &&
        reserve_bytes(ms, mod, len)) {
        frame.bytes = mod->debug_frame_bytes;
        frame.len = len;
        cfi_table_make_debug(&mod->debug_table, &frame, mod->bias);
        reserve_bytes(ms, mod, mod->debug_table.n_entries * sizeof(struct cfi_entry));
    }
    log_debug("unwind", "%s: .debug_frame, %zu entries", mod->path, mod->debug_table.n_entries);
}

void module_tables_load_image(struct modules *ms, struct module *mod)
{
    struct jit_object_section found;
    struct cfi_section frame;

    mod->tried_eh_frame = mod->tried_debug_frame = true;
    if (jit_object_section(mod->image, mod->image_len, ".eh_frame", &found)) {
        frame = (struct cfi_section){.bytes = mod->image + found.offset, .len = found.len, .addr = found.addr};
        make_eh_table(ms, mod, &frame, NULL);
    }
    if (jit_object_section(mod->image, mod->image_len, ".debug_frame", &found)) {
        frame = (struct cfi_section){.bytes = mod->image + found.offset, .len = found.len};
        cfi_table_make_debug(&mod->debug_table, &frame, 0);
        reserve_bytes(ms, mod, mod->debug_table.n_entries * sizeof(struct cfi_entry));
    }
}

int module_tables_row(struct modules *ms, struct module *mod, struct mem *m, addr_t pc, struct cfi_row *ret,
                      const struct cfi_section **ret_section)
{
    if (!mod->is_elf && !mod->image)
        return ERR_READ;
    mod->owner = ms;
    mod->mem = m;
    if (!mod->tried_eh_frame)
        load_eh_frame(ms, mod, m);
    *ret_section = &mod->eh_table.frame;
    if (cfi_find(&mod->eh_table, pc, ret) == 0)
        return 0; /* the common case, which opens no file */
    if (!mod->tried_debug_frame)
        load_debug_frame(ms, mod);
    *ret_section = &mod->debug_table.frame;
    return cfi_find(&mod->debug_table, pc, ret);
}

void module_tables_free(struct modules *ms, struct module *mod)
{
    free_eh_frame(ms, mod);
    cfi_table_free(&mod->debug_table);
    free(mod->debug_frame_bytes);
    mod->debug_frame_bytes = NULL;
}
