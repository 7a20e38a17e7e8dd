/*
 * Maps and memory -> modules. Called by unwind.c when a process is first unwound, and when an address is in none.
 */
#include "unwind/modules.h"

#include "base/err.h"
#include "base/grow.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES MODULE_PAGE
#define MAX_PHDRS    64
#define MAX_SECTION  ((uint64_t)256 * 1024 * 1024)
#define MAX_MODULES  65536

static struct module *module_free(struct module *mod, void (*free_user)(void *user))
{
    if (!mod)
        return NULL;
    if (free_user && mod->user)
        free_user(mod->user);
    cfi_table_free(&mod->table);
    free(mod->frame_bytes);
    free(mod->header_bytes);
    free(mod->first_page);
    free(mod->path);
    free(mod);
    return NULL;
}

void modules_free(struct modules *ms)
{
    for (size_t i = 0; i < ms->n; i++)
        module_free(ms->items[i], ms->free_user);
    for (size_t i = 0; i < MODULES_GONE; i++)
        ms->gone[i] = module_free(ms->gone[i], ms->free_user);
    free(ms->items);
    ms->items = NULL;
    ms->n = ms->cap = 0;
}

static void add_range(struct module_range *ranges, size_t *n, addr_t start, addr_t end)
{
    if (*n < MODULE_RANGES && end > start)
        ranges[(*n)++] = (struct module_range){start, end};
}

static void take_phdr(struct module *mod, const Elf64_Phdr *ph)
{
    addr_t at = mod->bias + ph->p_vaddr;

    if (ph->p_type == PT_GNU_EH_FRAME) {
        mod->header_at = at;
        mod->header_len = ph->p_memsz;
    }
    if (ph->p_type != PT_LOAD || ph->p_memsz > INT64_MAX || at + ph->p_memsz < at)
        return;
    add_range(mod->segments, &mod->n_segments, at, at + ph->p_filesz);
    if (ph->p_flags & PF_X)
        add_range(mod->code, &mod->n_code, at, at + ph->p_memsz);
    if (at + ph->p_memsz > mod->end)
        mod->end = at + ph->p_memsz;
}

static bool find_bias(struct module *mod, const Elf64_Phdr *phdrs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (phdrs[i].p_type == PT_LOAD && phdrs[i].p_offset < HEADER_BYTES) {
            mod->bias = mod->start - (phdrs[i].p_vaddr - phdrs[i].p_offset);
            return true;
        }
    return false;
}

/* The ELF file whose first page is mapped at mod->start. */
static bool read_headers(struct module *mod, struct mem *m)
{
    unsigned char page[HEADER_BYTES];
    Elf64_Ehdr eh;
    Elf64_Phdr phdrs[MAX_PHDRS];

    if (mem_read(m, mod->start, page, sizeof(page)) < 0)
        return false;
    memcpy(&eh, page, sizeof(eh));
    if (memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 || eh.e_ident[EI_CLASS] != ELFCLASS64 ||
        eh.e_phentsize != sizeof(Elf64_Phdr) || eh.e_phnum == 0 || eh.e_phnum > MAX_PHDRS ||
        eh.e_phoff > sizeof(page) - eh.e_phnum * sizeof(Elf64_Phdr))
        return false;
    memcpy(phdrs, page + eh.e_phoff, eh.e_phnum * sizeof(Elf64_Phdr));
    if (!find_bias(mod, phdrs, eh.e_phnum))
        return false;
    for (size_t i = 0; i < eh.e_phnum; i++)
        take_phdr(mod, &phdrs[i]);
    mod->is_elf = true;
    return true;
}

/* Another library can take the place of one that was unloaded, and so can another file of the same name. */
static void keep_first_page(struct module *mod, struct mem *m, const struct proc_map *map)
{
    if (map->path[0] != '/' || map->writable || !(mod->first_page = malloc(MODULE_PAGE)))
        return;
    if (mem_read(m, mod->start, mod->first_page, MODULE_PAGE) < 0) {
        free(mod->first_page);
        mod->first_page = NULL;
    }
}

static bool is_unchanged(const struct module *mod, struct mem *m, const struct proc_map *map)
{
    unsigned char page[MODULE_PAGE];
    bool is_read = map->path[0] == '/' && !map->writable && mem_read(m, mod->start, page, sizeof(page)) == 0;

    if (mod->stale || is_read != (mod->first_page != NULL))
        return false;
    return !is_read || memcmp(page, mod->first_page, sizeof(page)) == 0;
}

static bool is_same_map(const struct module *mod, const struct proc_map *map)
{
    return mod->start == map->start && mod->device == map->device && mod->inode == map->inode &&
           strcmp(mod->path, map->path) == 0;
}

static struct module *same_module(const struct modules *ms, const struct proc_map *map)
{
    size_t low = 0, high = ms->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        struct module *mod = ms->items[mid];

        if (mod->start == map->start)
            return is_same_map(mod, map) ? mod : NULL;
        if (mod->start < map->start)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

static struct module *module_new(const struct proc_map *map)
{
    struct module *mod = calloc(1, sizeof(*mod));

    if (!mod)
        return NULL;
    mod->path = strdup(map->path);
    if (!mod->path)
        return module_free(mod, NULL);
    mod->start = map->start;
    mod->end = map->end;
    mod->device = map->device;
    mod->inode = map->inode;
    mod->deleted = map->deleted;
    mod->is_new = true;
    return mod;
}

static int append(struct modules *ms, struct module *mod)
{
    if (ms->n >= MAX_MODULES || grow_array((void **)&ms->items, &ms->cap, ms->n + 1, sizeof(struct module *)) < 0)
        return ERR_NOMEM;
    ms->items[ms->n++] = mod;
    return 0;
}

static bool is_inside(const struct modules *ms, const struct proc_map *map)
{
    const struct module *last = ms->n ? ms->items[ms->n - 1] : NULL;

    return last && map->start < last->end && map->start >= last->start;
}

/* Its names and tables are good still. */
static struct module *take_gone(struct modules *ms, struct mem *m, const struct proc_map *map)
{
    for (size_t i = 0; i < MODULES_GONE; i++) {
        struct module *mod = ms->gone[i];

        if (!mod || !is_same_map(mod, map) || !is_unchanged(mod, m, map))
            continue;
        ms->gone[i] = NULL;
        mod->is_new = mod->shares = true;
        return mod;
    }
    return NULL;
}

static void put_gone(struct modules *ms, struct module *mod)
{
    struct module **place = &ms->gone[ms->next_gone++ % MODULES_GONE];

    mod->stale = false;
    module_free(*place, ms->free_user);
    *place = mod;
}

static bool shares_place(const struct modules *ms, const struct module *mod)
{
    for (size_t i = 0; i < MODULES_GONE; i++)
        if (ms->gone[i] && ms->gone[i]->start < mod->end && mod->start < ms->gone[i]->end)
            return true;
    return false;
}

/* The module that begins with this map, the one that was known or a new one; NULL: none does. */
static struct module *module_of(struct modules *old, struct mem *m, const struct proc_map *map, bool *ret_nomem)
{
    bool may_be_elf = map->readable && map->offset == 0 && (map->path[0] == '/' || strncmp(map->path, "[v", 2) == 0);
    struct module *mod;

    if (!may_be_elf && !map->executable)
        return NULL;
    mod = same_module(old, map);
    if (!mod || !is_unchanged(mod, m, map))
        mod = take_gone(old, m, map);
    if (mod) {
        if (!mod->is_elf && mod->code[0].end != map->end)
            mod->end = mod->code[0].end = map->end; /* a JIT compiler's memory grows */
        return mod;
    }
    mod = module_new(map);
    *ret_nomem = !mod;
    if (mod)
        keep_first_page(mod, m, map);
    if (!mod || (may_be_elf && read_headers(mod, m)))
        return mod;
    if (!map->executable)
        return module_free(mod, NULL);
    add_range(mod->code, &mod->n_code, map->start, map->end);
    return mod;
}

int modules_update(struct modules *ms, struct mem *m, const struct proc_maps *maps, bool *ret_changed)
{
    struct modules fresh = {0};
    bool nomem = false, changed = false;

    for (size_t i = 0; i < ms->n; i++)
        ms->items[i]->kept = false;
    for (size_t i = 0; i < maps->n && !nomem; i++) {
        struct module *mod;

        if (is_inside(&fresh, &maps->items[i]))
            continue;
        mod = module_of(ms, m, &maps->items[i], &nomem);
        if (!mod)
            continue;
        changed |= mod->is_new;
        mod->is_new = false;
        mod->kept = true;
        nomem = append(&fresh, mod) < 0;
    }
    for (size_t i = 0; i < ms->n; i++)
        if (!ms->items[i]->kept) {
            changed = true;
            put_gone(ms, ms->items[i]);
        }
    for (size_t i = 0; changed && i < fresh.n; i++)
        fresh.items[i]->shares |= shares_place(ms, fresh.items[i]);
    free(ms->items);
    ms->items = fresh.items;
    ms->n = fresh.n;
    ms->cap = fresh.cap;
    *ret_changed = changed;
    return nomem ? ERR_NOMEM : 0;
}

struct module *modules_find(const struct modules *ms, addr_t pc)
{
    size_t low = 0, high = ms->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (ms->items[mid]->start <= pc)
            low = mid + 1;
        else
            high = mid;
    }
    if (!low)
        return NULL;
    for (size_t i = 0; i < ms->items[low - 1]->n_code; i++)
        if (pc >= ms->items[low - 1]->code[i].start && pc < ms->items[low - 1]->code[i].end)
            return ms->items[low - 1];
    return NULL;
}

/* A copy of what the module has in memory from `at` on, to the end of that segment or `len`. */
static unsigned char *copy_section(const struct module *mod, struct mem *m, addr_t at, uint64_t *len)
{
    unsigned char *bytes;

    for (size_t i = 0; i < mod->n_segments; i++) {
        if (at < mod->segments[i].start || at >= mod->segments[i].end)
            continue;
        if (*len > mod->segments[i].end - at)
            *len = mod->segments[i].end - at;
        bytes = *len && *len <= MAX_SECTION ? malloc(*len) : NULL;
        if (bytes && mem_read(m, at, bytes, *len) == 0)
            return bytes;
        free(bytes);
        return NULL;
    }
    return NULL;
}

/* .eh_frame_hdr begins with where .eh_frame is: always four bytes, relative to themselves, as linkers write it. */
static addr_t frame_place(const struct module *mod, const unsigned char *header, uint64_t len)
{
    int32_t relative;

    if (len < 8 || header[0] != 1 || header[1] != 0x1b)
        return 0;
    memcpy(&relative, header + 4, sizeof(relative));
    return mod->header_at + 4 + (addr_t)(int64_t)relative;
}

static void make_table(struct module *mod, struct mem *m)
{
    uint64_t header_len = mod->header_len, frame_len = UINT64_MAX;
    struct cfi_section header, frame;
    addr_t frame_at;

    if (!mod->header_at)
        return;
    mod->header_bytes = copy_section(mod, m, mod->header_at, &header_len);
    frame_at = mod->header_bytes ? frame_place(mod, mod->header_bytes, header_len) : 0;
    mod->frame_bytes = frame_at ? copy_section(mod, m, frame_at, &frame_len) : NULL;
    if (!mod->frame_bytes)
        return;
    header = (struct cfi_section){mod->header_bytes, header_len, mod->header_at};
    frame = (struct cfi_section){mod->frame_bytes, frame_len, frame_at};
    mod->has_table = cfi_table_make(&mod->table, &frame, &header) == 0;
}

/* It was still the module's own memory after the table was read. */
static bool is_there(const struct module *mod, struct mem *m)
{
    unsigned char page[MODULE_PAGE];

    return !mod->first_page || mod->fixed ||
           (mem_read(m, mod->start, page, sizeof(page)) == 0 && memcmp(page, mod->first_page, sizeof(page)) == 0);
}

const struct cfi_table *module_table(struct module *mod, struct mem *m)
{
    if (mod->tried)
        return mod->has_table ? &mod->table : NULL;
    make_table(mod, m);
    mod->tried = is_there(mod, m);
    if (!mod->tried && mod->has_table) {
        cfi_table_free(&mod->table);
        mod->has_table = false;
    }
    if (!mod->tried) {
        free(mod->frame_bytes);
        free(mod->header_bytes);
        mod->frame_bytes = mod->header_bytes = NULL;
    }
    return mod->has_table ? &mod->table : NULL;
}
