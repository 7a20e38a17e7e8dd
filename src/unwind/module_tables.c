/*
 * A module -> rows. Called by unwind.c. Of .eh_frame only the pieces that are looked at are copied from the target: the
 * tables of a large program have hundreds of megabytes. What is held of all modules together is bounded; where the
 * bound is met, addresses have no row.
 */
#include "unwind/module_tables.h"

#include "base/err.h"
#include "base/log.h"
#include "elf/frame_section.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE      ((size_t)16 * 1024)
#define MAX_HEADER ((uint64_t)64 * 1024 * 1024) /* eight million functions */
#define MAX_FRAME  ((uint64_t)1024 * 1024 * 1024)
#define MAX_DEBUG  ((size_t)256 * 1024 * 1024)
#define MAX_HELD   ((uint64_t)512 * 1024 * 1024) /* of all modules */

static bool hold(struct modules *ms, struct module *mod, uint64_t len)
{
    if (len > MAX_HELD || ms->held > MAX_HELD - len)
        return false;
    ms->held += len;
    mod->held += len;
    return true;
}

/* How much of `len` bytes at `at` is in one segment of the module's file, and so in memory. */
static uint64_t room_at(const struct module *mod, addr_t at, uint64_t len)
{
    for (size_t i = 0; i < mod->n_segments; i++) {
        uint64_t room = mod->segments[i].end - at;

        if (at >= mod->segments[i].start && at < mod->segments[i].end)
            return len < room ? len : room;
    }
    return 0;
}

/* It was still the module's own memory after something was read from it. */
static bool is_there(const struct module *mod, struct mem *m)
{
    unsigned char page[MODULE_PAGE];

    return !mod->first_page || mod->fixed ||
           (mem_read(m, mod->start, page, sizeof(page)) == 0 && memcmp(page, mod->first_page, sizeof(page)) == 0);
}

/* Copies what is not there yet of a part of .eh_frame. */
static bool load_pieces(void *arg, size_t pos, size_t len)
{
    struct module *mod = arg;
    const struct cfi_section *s = &mod->eh.frame;

    for (size_t i = pos / PIECE; i * PIECE < pos + len; i++) {
        size_t n = s->len - i * PIECE < PIECE ? s->len - i * PIECE : PIECE;

        if (mod->pieces[i])
            continue;
        if (!hold(mod->owner, mod, n) || mem_read(mod->mem, s->at + i * PIECE, mod->frame_bytes + i * PIECE, n) < 0 ||
            !is_there(mod, mod->mem))
            return false;
        mod->pieces[i] = true;
    }
    return true;
}

static bool make_frame(struct module *mod, addr_t at, uint64_t len, struct cfi_section *ret)
{
    len = room_at(mod, at, len);
    if (len > MAX_FRAME)
        len = MAX_FRAME;
    /* Pages that are not written to take no memory. */
    mod->frame_bytes = len ? calloc(1, len) : NULL;
    mod->pieces = mod->frame_bytes ? calloc(len / PIECE + 1, sizeof(*mod->pieces)) : NULL;
    if (!mod->pieces)
        return false;
    *ret = (struct cfi_section){.bytes = mod->frame_bytes, .len = len, .at = at, .load = load_pieces, .arg = mod};
    mod->eh.frame = *ret;
    return true;
}

static bool make_table(struct modules *ms, struct module *mod, const struct cfi_section *frame,
                       const struct cfi_section *header)
{
    return cfi_table_make(&mod->eh, frame, header) == 0 && (mod->eh.n_header || mod->eh.n_entries) &&
           hold(ms, mod, mod->eh.n_entries * sizeof(struct cfi_entry));
}

/* By what the loader finds: the header in memory. */
static bool make_by_header(struct modules *ms, struct module *mod, struct mem *m)
{
    uint64_t len = mod->header_at ? room_at(mod, mod->header_at, mod->header_len) : 0;
    struct cfi_section header = {.len = len, .at = mod->header_at}, frame;
    addr_t at;

    if (!len || len > MAX_HEADER || !hold(ms, mod, len))
        return false;
    header.bytes = mod->header_bytes = malloc(len);
    if (!header.bytes || mem_read(m, mod->header_at, mod->header_bytes, len) < 0 || !is_there(mod, m))
        return false;
    at = cfi_header_frame(&header);
    return at && make_frame(mod, at, UINT64_MAX, &frame) && make_table(ms, mod, &frame, &header);
}

static bool make_by_file(struct modules *ms, struct module *mod, const struct frame_section_source *src)
{
    struct cfi_section frame;
    uint64_t addr, len;

    return frame_section_find_eh(src, &addr, &len) == 0 && make_frame(mod, addr + mod->bias, len, &frame) &&
           make_table(ms, mod, &frame, NULL);
}

static void drop_eh(struct modules *ms, struct module *mod)
{
    cfi_table_free(&mod->eh);
    free(mod->header_bytes);
    free(mod->frame_bytes);
    free(mod->pieces);
    mod->header_bytes = mod->frame_bytes = NULL;
    mod->pieces = NULL;
    ms->held -= mod->held;
    mod->held = 0;
}

static int open_file(const struct modules *ms, const struct module *mod, struct frame_section_source *ret)
{
    if (!ms->files.open || !mod->is_elf || mod->path[0] != '/')
        return ERR_READ;
    *ret = (struct frame_section_source){.root_fd = ms->files.root_fd, .path = mod->path};
    ret->fd = ms->files.open(ms->files.arg, mod, &ret->path);
    log_debug("unwind", "%s: %s", mod->path, ret->fd < 0 ? "no file, or not the mapped one" : "opened for its tables");
    return ret->fd < 0 ? ERR_READ : 0;
}

static void make_eh(struct modules *ms, struct module *mod, struct mem *m)
{
    struct frame_section_source src;
    bool made = make_by_header(ms, mod, m);

    if (!made) {
        drop_eh(ms, mod);
        if (open_file(ms, mod, &src) == 0) {
            made = make_by_file(ms, mod, &src);
            close(src.fd);
        }
    }
    mod->tried_eh = is_there(mod, m); /* else another time */
    log_debug("unwind", "%s: %s, %zu entries", mod->path,
              !made               ? "no .eh_frame"
              : mod->header_bytes ? ".eh_frame by its header in memory"
                                  : ".eh_frame by the file",
              mod->eh.n_header + mod->eh.n_entries);
    if (!made || !mod->tried_eh)
        drop_eh(ms, mod);
}

static void make_debug(struct modules *ms, struct module *mod)
{
    struct frame_section_source src;
    struct cfi_section frame = {.at = 0};
    size_t len;

    mod->tried_debug = true;
    if (open_file(ms, mod, &src) < 0)
        return;
    if (frame_section_read_debug(&src, MAX_DEBUG, &mod->debug_bytes, &len) == 0 && hold(ms, mod, len)) {
        frame.bytes = mod->debug_bytes;
        frame.len = len;
        cfi_table_make_debug(&mod->debug, &frame, mod->bias);
        hold(ms, mod, mod->debug.n_entries * sizeof(struct cfi_entry));
    }
    log_debug("unwind", "%s: .debug_frame, %zu entries", mod->path, mod->debug.n_entries);
    close(src.fd);
}

int module_tables_row(struct modules *ms, struct module *mod, struct mem *m, addr_t pc, struct cfi_row *ret,
                      const struct cfi_section **ret_section)
{
    if (!mod->is_elf)
        return ERR_READ;
    mod->owner = ms;
    mod->mem = m;
    if (!mod->tried_eh)
        make_eh(ms, mod, m);
    *ret_section = &mod->eh.frame;
    if (cfi_find(&mod->eh, pc, ret) == 0)
        return 0; /* most have it there, and nothing else is opened */
    if (!mod->tried_debug)
        make_debug(ms, mod);
    *ret_section = &mod->debug.frame;
    return cfi_find(&mod->debug, pc, ret);
}

void module_tables_free(struct modules *ms, struct module *mod)
{
    drop_eh(ms, mod);
    cfi_table_free(&mod->debug);
    free(mod->debug_bytes);
    mod->debug_bytes = NULL;
}
