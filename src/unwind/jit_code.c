/*
 * Reads the list of generated code and the ELF files of its entries. The target may change the list meanwhile, and may
 * be hostile: the number of entries and all sizes are bounded, and cycles are detected. A file is read when an address
 * needs it.
 */
#include "unwind/jit_code.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/log.h"
#include "elf/jit_object.h"
#include "target/image.h"
#include "unwind/module_tables.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DESCRIPTOR  "__jit_debug_descriptor"
#define VERSION     1
#define MAX_ENTRIES 16384
#define MAX_OBJECTS 1024
#define MAX_FILE    ((uint64_t)16 << 20)
#define MAX_BYTES   ((uint64_t)64 << 20) /* of all files */
#define MAX_HEADERS ((size_t)16 << 20)   /* bytes of section headers read in one update */

/* struct jit_descriptor and struct jit_code_entry, as GDB documents them. */
struct descriptor {
    uint32_t version, action;
    addr_t relevant, first;
};

struct code_entry {
    addr_t next, prev, file;
    uint64_t len;
};

static void object_free(struct jit_code *j, struct modules *ms, struct jit_entry *e)
{
    if (!e->object)
        return;
    j->n_objects--;
    j->bytes -= e->len;
    e->object = module_free(ms, e->object);
}

void jit_code_free(struct jit_code *j, struct modules *ms)
{
    for (size_t i = 0; i < j->n; i++)
        object_free(j, ms, &j->entries[i]);
    free(j->entries);
    *j = (struct jit_code){0};
}

/* ---- the list ---- */

/* Finds the descriptor of a module: exported as in libLLVM, or local as in llvmlite. */
static addr_t find_descriptor(const struct modules *ms, const struct module *mod, struct mem *m)
{
    struct proc_map map = {
        .start = mod->start, .end = mod->end, .path = mod->path, .inode = mod->inode, .device = mod->device};
    struct image img;
    uint64_t value;
    addr_t at;

    if (image_open(m, &map, &img) == 0 && image_symbol(m, &img, DESCRIPTOR, &at) == 0)
        return at;
    if (mod->path[0] != '/' || !ms->files.find_symbol ||
        ms->files.find_symbol(ms->files.arg, mod, DESCRIPTOR, &value) < 0)
        return 0;
    return mod->bias + value;
}

/* Sets the range of the code that a file describes. */
static bool read_code_range(struct mem *m, struct jit_entry *e, size_t *budget)
{
    unsigned char header[JIT_OBJECT_HEADER], *sections;
    struct jit_object_section code;
    uint64_t offset;
    size_t n;

    if (e->len < sizeof(header) || e->len > MAX_FILE || mem_read(m, e->file, header, sizeof(header)) < 0 ||
        !jit_object_headers(header, e->len, &offset, &n) || n * JIT_OBJECT_SECTION > *budget)
        return false;
    *budget -= n * JIT_OBJECT_SECTION;
    sections = malloc(n * JIT_OBJECT_SECTION);
    if (!sections)
        return false;
    if (mem_read(m, e->file + offset, sections, n * JIT_OBJECT_SECTION) == 0)
        for (size_t i = 0; i < n; i++)
            if (jit_object_is_code(sections + i * JIT_OBJECT_SECTION, &code)) {
                if (!e->end || code.addr < e->start)
                    e->start = code.addr;
                if (code.addr + code.len > e->end)
                    e->end = code.addr + code.len;
            }
    free(sections);
    return e->end != 0;
}

/* Adds the entries of one list. Brent's algorithm detects a cycle: `mark` is set at each power of two. */
static void read_list(struct jit_code *j, struct mem *m, addr_t descriptor, size_t *budget)
{
    struct descriptor d;
    struct code_entry entry;
    addr_t mark = 0;

    if (mem_read(m, descriptor, &d, sizeof(d)) < 0 || d.version != VERSION)
        return;
    for (size_t i = 0; d.first && d.first != mark && i < MAX_ENTRIES && j->n < MAX_ENTRIES; i++) {
        struct jit_entry e = {0};

        if ((i & (i - 1)) == 0)
            mark = d.first;
        if (mem_read(m, d.first, &entry, sizeof(entry)) < 0)
            return;
        d.first = entry.next;
        e.file = entry.file;
        e.len = entry.len;
        if (!read_code_range(m, &e, budget))
            continue;
        if (grow_array((void **)&j->entries, &j->cap, j->n + 1, sizeof(*j->entries)) < 0)
            return;
        j->entries[j->n++] = e;
    }
}

static void read_lists(struct jit_code *j, struct modules *ms, struct mem *m)
{
    size_t budget = MAX_HEADERS;

    for (size_t i = 0; i < ms->n; i++) {
        struct module *mod = ms->items[i];

        if (!mod->is_elf)
            continue;
        if (!mod->tried_jit_descriptor) {
            mod->tried_jit_descriptor = true;
            mod->jit_descriptor = find_descriptor(ms, mod, m);
            if (mod->jit_descriptor)
                log_debug("unwind", "%s: %s at %#llx", mod->path, DESCRIPTOR, (unsigned long long)mod->jit_descriptor);
        }
        if (mod->jit_descriptor)
            read_list(j, m, mod->jit_descriptor, &budget);
    }
    j->was_read = true;
    log_often(LOG_LEVEL_DEBUG, "unwind", j->n, "%zu objects of generated code are registered", j->n);
}

/* ---- objects ---- */

/* Reads the file of an entry. NULL if it cannot be read, or if there is no room. */
static unsigned char *read_file(struct mem *m, const struct jit_entry *e)
{
    unsigned char *bytes = malloc(e->len);

    if (bytes && mem_read(m, e->file, bytes, e->len) == 0)
        return bytes;
    free(bytes);
    return NULL;
}

static void add_code(struct module *mod)
{
    uint64_t offset;
    size_t n;

    if (!jit_object_headers(mod->image, mod->image_len, &offset, &n))
        return;
    for (size_t i = 0; i < n && mod->n_code < MODULE_RANGES; i++) {
        struct jit_object_section code;

        if (jit_object_is_code(mod->image + offset + i * JIT_OBJECT_SECTION, &code))
            mod->code[mod->n_code++] = (struct module_range){code.addr, code.addr + code.len};
    }
}

static void load(struct jit_code *j, struct modules *ms, struct mem *m, struct jit_entry *e)
{
    struct module *mod;

    e->tried = true;
    if (j->n_objects >= MAX_OBJECTS || j->bytes > MAX_BYTES - e->len || !(mod = calloc(1, sizeof(*mod))))
        return;
    mod->path = strdup("[JIT]");
    mod->image = read_file(m, e);
    if (!mod->path || !mod->image) {
        module_free(ms, mod);
        return;
    }
    mod->start = e->start;
    mod->end = e->end;
    mod->image_len = e->len;
    e->hash = hash_bytes(mod->image, e->len);
    jit_object_relocate(mod->image, e->len);
    add_code(mod);
    module_tables_load_image(ms, mod);
    e->object = mod;
    j->n_objects++;
    j->bytes += e->len;
}

static bool contains_code(const struct module *mod, addr_t pc)
{
    for (size_t i = 0; i < mod->n_code; i++)
        if (pc >= mod->code[i].start && pc < mod->code[i].end)
            return true;
    return false;
}

struct module *jit_code_find(struct jit_code *j, struct modules *ms, struct mem *m, addr_t pc)
{
    struct module *named = NULL;

    if (!j->was_read)
        read_lists(j, ms, m);
    for (size_t i = 0; i < j->n; i++) {
        struct jit_entry *e = &j->entries[i];
        const struct cfi_section *section;
        struct cfi_row row;

        if (pc < e->start || pc >= e->end)
            continue;
        if (!e->tried)
            load(j, ms, m, e);
        if (e->object && module_tables_row(ms, e->object, m, pc, &row, &section) == 0)
            return e->object;
        if (e->object && !named && contains_code(e->object, pc))
            named = e->object;
    }
    return named;
}

/* ---- updates ---- */

static bool is_same(const struct jit_entry *a, const struct jit_entry *b)
{
    return a->file == b->file && a->len == b->len && a->start == b->start && a->end == b->end;
}

/* True if the file of a loaded entry is unchanged. */
static bool is_unchanged(struct mem *m, const struct jit_entry *e)
{
    unsigned char *bytes = read_file(m, e);
    bool same = bytes && hash_bytes(bytes, e->len) == e->hash;

    free(bytes);
    return same;
}

/* Moves an object to the entry of the new list that it belongs to. Returns false if there is none. */
static bool keep_object(struct jit_code *fresh, struct mem *m, struct jit_entry *old)
{
    if (!is_unchanged(m, old))
        return false;
    for (size_t i = 0; i < fresh->n; i++)
        if (is_same(&fresh->entries[i], old) && !fresh->entries[i].tried) {
            fresh->entries[i] = *old;
            fresh->n_objects++;
            fresh->bytes += old->len;
            old->object = NULL;
            return true;
        }
    return false;
}

bool jit_code_update(struct jit_code *j, struct modules *ms, struct mem *m)
{
    struct jit_code fresh = {0};
    bool changed;

    if (!j->missed && !j->n_objects)
        return false;
    read_lists(&fresh, ms, m);
    changed = fresh.n != j->n;
    for (size_t i = 0; i < j->n; i++) {
        changed |= i < fresh.n && !is_same(&fresh.entries[i], &j->entries[i]);
        if (j->entries[i].object)
            changed |= !keep_object(&fresh, m, &j->entries[i]);
    }
    jit_code_free(j, ms);
    *j = fresh;
    return changed;
}
