/*
 * Builds the list of modules from the memory map and the ELF headers in memory, and keeps it up to date.
 */
#include "unwind/modules.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/log.h"
#include "unwind/module_tables.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES MODULE_PAGE
#define MAX_PHDRS    64
#define MAX_MODULES  65536
#define MAX_NESTED   8 /* modules inside the address range of another one: mapped into gaps between its segments */

struct module *module_free(struct modules *ms, struct module *mod)
{
    if (!mod)
        return NULL;
    if (ms->free_user && mod->user)
        ms->free_user(mod->user);
    module_tables_free(ms, mod);
    free(mod->first_page);
    free(mod->image);
    free(mod->path);
    free(mod);
    return NULL;
}

void modules_free(struct modules *ms)
{
    for (size_t i = 0; i < ms->n; i++)
        module_free(ms, ms->items[i]);
    for (size_t i = 0; i < MODULES_UNLOADED; i++)
        ms->unloaded[i] = module_free(ms, ms->unloaded[i]);
    free(ms->items);
    ms->items = NULL;
    ms->n = ms->cap = 0;
}

static void add_range(struct module_range *ranges, size_t *n, addr_t start, addr_t end)
{
    if (*n < MODULE_RANGES && end > start)
        ranges[(*n)++] = (struct module_range){start, end};
}

static void read_phdr(struct module *mod, const Elf64_Phdr *ph)
{
    addr_t at = mod->bias + ph->p_vaddr;

    if (ph->p_type == PT_GNU_EH_FRAME) {
        mod->eh_frame_hdr = at;
        mod->eh_frame_hdr_len = ph->p_memsz;
    }
    if (ph->p_type != PT_LOAD || ph->p_memsz > INT64_MAX || at + ph->p_memsz < at)
        return;
    add_range(mod->segments, &mod->n_segments, at, at + (ph->p_filesz < ph->p_memsz ? ph->p_filesz : ph->p_memsz));
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

/* Program headers normally follow the ELF header. Tools that edit ELF files may move them; we find them if they are in
 * the same mapping. */
static bool read_phdrs(const struct module *mod, struct mem *m, const unsigned char page[HEADER_BYTES],
                       const Elf64_Ehdr *eh, Elf64_Phdr ret[MAX_PHDRS])
{
    size_t len = eh->e_phnum * sizeof(Elf64_Phdr);

    if (eh->e_phentsize != sizeof(Elf64_Phdr) || eh->e_phnum == 0 || eh->e_phnum > MAX_PHDRS)
        return false;
    if (eh->e_phoff <= HEADER_BYTES - len) {
        memcpy(ret, page + eh->e_phoff, len);
        return true;
    }
    return eh->e_phoff < mod->end - mod->start && mem_read(m, mod->start + eh->e_phoff, ret, len) == 0;
}

/* Reads the ELF and program headers at mod->start. */
static bool read_headers(struct module *mod, struct mem *m)
{
    unsigned char page[HEADER_BYTES];
    Elf64_Ehdr eh;
    Elf64_Phdr phdrs[MAX_PHDRS];

    if (mem_read(m, mod->start, page, sizeof(page)) < 0)
        return false;
    memcpy(&eh, page, sizeof(eh));
    if (memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 || eh.e_ident[EI_CLASS] != ELFCLASS64 ||
        eh.e_ident[EI_DATA] != ELFDATA2LSB || !read_phdrs(mod, m, page, &eh, phdrs) ||
        !find_bias(mod, phdrs, eh.e_phnum))
        return false;
    for (size_t i = 0; i < eh.e_phnum; i++)
        read_phdr(mod, &phdrs[i]);
    mod->is_elf = true;
    return true;
}

static bool is_same_file(const struct module *mod, const struct proc_map *map)
{
    return mod->device == map->device && mod->inode == map->inode && strcmp(mod->path, map->path) == 0;
}

/* Cuts the module down to what is mapped. A program may map just a part of an ELF file, to read it. */
static void trim_to_maps(struct module *mod, const struct proc_maps *maps, size_t i)
{
    addr_t seen = maps->items[i].end;
    size_t n = 0;

    while (++i < maps->n && maps->items[i].start < mod->end) {
        const struct proc_map *map = &maps->items[i];

        if (is_same_file(mod, map) || (map->path[0] != '/' && map->start == seen))
            seen = map->end;
    }
    if (mod->end > seen)
        mod->end = seen;
    for (size_t k = 0; k < mod->n_code; k++) {
        struct module_range r = mod->code[k];

        if (r.end > mod->end)
            r.end = mod->end;
        add_range(mod->code, &n, r.start, r.end);
    }
    mod->n_code = n;
}

/* Finds the build ID in the first page. */
static void find_build_id(struct module *mod)
{
    struct elf_file head = {mod->first_page, MODULE_PAGE};
    const unsigned char *at;

    if (build_id_from_file(&head, &mod->id) < 0)
        return;
    at = memmem(mod->first_page, MODULE_PAGE, mod->id.bytes, mod->id.len);
    mod->id_addr = mod->start + (addr_t)(at ? at - mod->first_page : 0);
    if (!at)
        mod->id.len = 0;
}

/* Keeps a copy of the first page, to notice when another library, or a new file at the same path, replaces this one. */
static void keep_first_page(struct module *mod, struct mem *m, const struct proc_map *map)
{
    if (map->path[0] != '/' || map->writable || !(mod->first_page = malloc(MODULE_PAGE)))
        return;
    if (mem_read(m, mod->start, mod->first_page, MODULE_PAGE) < 0) {
        free(mod->first_page);
        mod->first_page = NULL;
        return;
    }
    find_build_id(mod);
}

static bool is_unchanged(const struct module *mod, struct mem *m, const struct proc_map *map)
{
    unsigned char page[MODULE_PAGE];
    bool is_read = map->path[0] == '/' && !map->writable && mem_read(m, mod->start, page, sizeof(page)) == 0;

    if (mod->stale || is_read != (mod->first_page != NULL))
        return false;
    return !is_read || memcmp(page, mod->first_page, sizeof(page)) == 0;
}

static struct module *find_known(const struct modules *ms, const struct proc_map *map)
{
    size_t low = 0, high = ms->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        struct module *mod = ms->items[mid];

        if (mod->start == map->start)
            return is_same_file(mod, map) && !mod->seen ? mod : NULL;
        if (mod->start < map->start)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

static bool contains_code(const struct module *mod, addr_t pc)
{
    for (size_t i = 0; i < mod->n_code; i++)
        if (pc >= mod->code[i].start && pc < mod->code[i].end)
            return true;
    return false;
}

/* True if `map` belongs to a module that starts before it. A mapping in a gap between that module's segments does
 * not. */
static bool is_part_of_module(const struct modules *ms, const struct proc_map *map)
{
    for (size_t i = ms->n; i > 0 && i + MAX_NESTED > ms->n; i--) {
        const struct module *mod = ms->items[i - 1];

        if (map->start >= mod->start && map->start < mod->end &&
            (is_same_file(mod, map) || contains_code(mod, map->start) || (!map->executable && map->path[0] != '/')))
            return true;
    }
    return false;
}

/* Takes back a module that was unloaded and is now mapped again: its symbols and tables are still valid. */
static struct module *revive_unloaded(struct modules *ms, struct mem *m, const struct proc_map *map)
{
    for (size_t i = 0; i < MODULES_UNLOADED; i++) {
        struct module *mod = ms->unloaded[i];

        if (!mod || mod->start != map->start || !is_same_file(mod, map) || !is_unchanged(mod, m, map))
            continue;
        ms->unloaded[i] = NULL;
        mod->is_new = mod->address_reused = true;
        return mod;
    }
    return NULL;
}

static bool overlaps_unloaded(const struct modules *ms, const struct module *mod)
{
    for (size_t i = 0; i < MODULES_UNLOADED; i++)
        if (ms->unloaded[i] && ms->unloaded[i]->start < mod->end && mod->start < ms->unloaded[i]->end)
            return true;
    return false;
}

/* Makes the module that starts with map `i`. NULL if none does, or if out of memory. */
static struct module *module_make(struct modules *ms, struct mem *m, const struct proc_maps *maps, size_t i,
                                  bool may_be_elf, bool *ret_nomem)
{
    const struct proc_map *map = &maps->items[i];
    struct module *mod = calloc(1, sizeof(*mod));

    if (mod)
        mod->path = strdup(map->path);
    *ret_nomem = !mod || !mod->path;
    if (*ret_nomem)
        return module_free(ms, mod);
    mod->start = map->start;
    mod->end = map->end;
    mod->device = map->device;
    mod->inode = map->inode;
    mod->deleted = map->deleted;
    mod->is_new = true;
    if (may_be_elf && read_headers(mod, m))
        trim_to_maps(mod, maps, i);
    else if (map->executable)
        add_range(mod->code, &mod->n_code, map->start, map->end);
    else
        return module_free(ms, mod);
    keep_first_page(mod, m, map);
    log_debug("unwind", "module %s at %#llx-%#llx, build ID %s, %s", mod->path[0] ? mod->path : "without a file",
              (unsigned long long)mod->start, (unsigned long long)mod->end, build_id_show(&mod->id).text,
              !mod->is_elf        ? "not ELF: generated code"
              : mod->eh_frame_hdr ? "has .eh_frame_hdr"
                                  : "no .eh_frame_hdr");
    return mod;
}

/* Finds or makes the module that starts with map `i`. NULL if none does, or if out of memory. */
static struct module *find_or_make(struct modules *ms, struct mem *m, const struct proc_maps *maps, size_t i,
                                   bool *ret_nomem)
{
    const struct proc_map *map = &maps->items[i];
    bool may_be_elf = map->readable && map->offset == 0 && (map->path[0] == '/' || strncmp(map->path, "[v", 2) == 0);
    struct module *mod;

    if (!may_be_elf && !map->executable)
        return NULL;
    mod = find_known(ms, map);
    if (!mod || !is_unchanged(mod, m, map))
        mod = revive_unloaded(ms, m, map);
    if (!mod)
        return module_make(ms, m, maps, i, may_be_elf, ret_nomem);
    if (!mod->is_elf)
        mod->end = mod->code[0].end = map->end; /* JIT memory may have grown */
    return mod;
}

/* Installs the new list and moves modules that are missing from it to `unloaded`. */
static void replace_list(struct modules *ms, const struct modules *fresh, bool *ret_changed)
{
    ms->any_unloaded = false;
    for (size_t i = 0; i < ms->n; i++)
        if (!ms->items[i]->seen) {
            struct module **slot = &ms->unloaded[ms->next_unloaded++ % MODULES_UNLOADED];

            log_debug("unwind", "module %s at %#llx is gone", ms->items[i]->path,
                      (unsigned long long)ms->items[i]->start);
            ms->any_unloaded = *ret_changed = true;
            ms->items[i]->stale = false;
            module_free(ms, *slot);
            *slot = ms->items[i];
        }
    for (size_t i = 0; *ret_changed && i < fresh->n; i++)
        fresh->items[i]->address_reused |= overlaps_unloaded(ms, fresh->items[i]);
    free(ms->items);
    ms->items = fresh->items;
    ms->n = fresh->n;
    ms->cap = fresh->cap;
}

int modules_update(struct modules *ms, struct mem *m, const struct proc_maps *maps, bool *ret_changed)
{
    struct modules fresh = {0};
    bool nomem = false, changed = false;

    for (size_t i = 0; i < ms->n; i++)
        ms->items[i]->seen = false;
    for (size_t i = 0; i < maps->n && fresh.n < MAX_MODULES && !nomem; i++) {
        struct module *mod;

        if (grow_array((void **)&fresh.items, &fresh.cap, fresh.n + 1, sizeof(struct module *)) < 0) {
            nomem = true;
            break;
        }
        mod = is_part_of_module(&fresh, &maps->items[i]) ? NULL : find_or_make(ms, m, maps, i, &nomem);
        if (!mod)
            continue;
        changed |= mod->is_new;
        mod->is_new = false;
        mod->seen = true;
        fresh.items[fresh.n++] = mod;
    }
    replace_list(ms, &fresh, &changed);
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
    for (size_t i = low; i > 0 && i + MAX_NESTED > low; i--)
        if (contains_code(ms->items[i - 1], pc))
            return ms->items[i - 1];
    return NULL;
}
