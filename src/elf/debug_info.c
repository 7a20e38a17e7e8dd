/*
 * Looks up functions, inlined functions and lines in DWARF. Indexes the units of a file at once, and the functions and
 * lines of a unit at the first lookup in it. libdw validates what it reads; a step budget ends loops that damaged data
 * would make endless.
 */
#include "elf/debug_info.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/intern.h"
#include "elf/die_name.h"
#include "elf/line_table.h"
#include "elf/range_list.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX     ((uint64_t)512 << 20) /* of debug sections, which libdw reads into memory */
#define LINES_MAX     ((size_t)8 << 20)     /* bytes of one line program; each may take 16 bytes in memory */
#define LINES_BUDGET  ((size_t)1 << 29)     /* bytes of line programs read in one file, over all lookups */
#define STEPS_BUDGET  ((size_t)20000000)    /* DIEs and ranges visited in one file, over all lookups */
#define UNITS_MAX     ((size_t)1 << 20)
#define UNITS_AT_ONCE 8 /* units that are indexed before their pages are dropped; each takes up to 64 KiB */
#define DEPTH_MAX     64
#define PATH_ROOM     4096
#define RANGES_MAX    100000 /* of one DIE */

struct unit {
    Dwarf_Off die;
    struct range_list functions; /* address -> offset of the function's DIE */
    struct line_table lines;
    bool indexed;
};

struct debug_info {
    const struct elf_module *module;
    struct elf_module alt;
    Dwarf *dwarf, *alt_dwarf;
    struct line_sections line_sections;
    struct unit *units;
    size_t n_units, cap_units;
    struct range_list unit_ranges; /* address -> index of the unit */
    struct die_names *names;
    struct intern *files;
    size_t steps, line_bytes;
};

struct debug_info *debug_info_free(struct debug_info *d)
{
    if (!d)
        return NULL;
    for (size_t i = 0; i < d->n_units; i++) {
        range_list_clear(&d->units[i].functions);
        line_table_clear(&d->units[i].lines);
    }
    free(d->units);
    range_list_clear(&d->unit_ranges);
    die_names_free(d->names);
    intern_free(d->files);
    if (d->dwarf)
        dwarf_end(d->dwarf);
    if (d->alt_dwarf)
        dwarf_end(d->alt_dwarf);
    elf_module_close(&d->alt);
    free(d);
    return NULL;
}

static bool take_step(struct debug_info *d)
{
    return d->steps < STEPS_BUDGET && ++d->steps;
}

/* A file is mapped. Without this, reading the headers of all units would bring all of them into memory, because the
 * kernel maps 16 pages at each page fault. */
static void drop_pages(const struct debug_info *d)
{
    elf_module_drop_pages(d->module);
    elf_module_drop_pages(&d->alt);
}

/*
 * The number of bytes that libdw will hold in memory, after decompression; UINT64_MAX if unknown or too many. Call it
 * before libdw opens the file, because libdw changes the headers of sections that it decompresses.
 */
static uint64_t debug_section_bytes(const struct elf_module *m)
{
    uint64_t sum = 0;
    size_t n;

    if (elf_getshdrnum(m->elf, &n) < 0)
        return UINT64_MAX;
    for (size_t i = 1; i < n; i++) {
        GElf_Shdr s;
        GElf_Chdr compressed;

        if (!elf_module_section_nth(m, i, &s) || s.sh_type == SHT_NOBITS)
            continue;
        if (!strstr(elf_module_section_name(m, &s), "debug_"))
            continue;
        if (s.sh_flags & SHF_COMPRESSED)
            s.sh_size = gelf_getchdr(elf_getscn(m->elf, i), &compressed) ? compressed.ch_size : UINT64_MAX;
        sum = s.sh_size > BYTES_MAX || sum > BYTES_MAX ? UINT64_MAX : sum + s.sh_size;
    }
    return sum;
}

/*
 * libdw reads and decompresses every section it knows when it opens a file. Sections that we do not use (locations of
 * variables, indexes) can be half of them. Marking them SHT_NOBITS in libelf's copy of the headers makes libdw skip
 * them.
 */
static void hide_unused_sections(const struct elf_module *m)
{
    static const char *const unused[] = {".debug_loc",      ".debug_loclists", ".debug_aranges", ".debug_frame",
                                         ".debug_macinfo",  ".debug_macro",    ".debug_names",   ".debug_pubnames",
                                         ".debug_pubtypes", ".gdb_index"};
    size_t n;

    if (elf_getshdrnum(m->elf, &n) < 0)
        return;
    for (size_t i = 1; i < n; i++) {
        GElf_Shdr s;

        if (!elf_module_section_nth(m, i, &s))
            continue;
        for (size_t k = 0; k < sizeof(unused) / sizeof(unused[0]); k++)
            if (strcmp(elf_module_section_name(m, &s), unused[k]) == 0) {
                s.sh_type = SHT_NOBITS;
                gelf_update_shdr(elf_getscn(m->elf, i), &s);
            }
    }
}

/* Adds the address ranges of a DIE to the list. */
static void add_ranges(struct debug_info *d, Dwarf_Die *die, struct range_list *list, uint64_t value)
{
    Dwarf_Addr base, start, end;
    ptrdiff_t at = 0;

    for (int i = 0; i < RANGES_MAX && take_step(d); i++) {
        at = dwarf_ranges(die, at, &base, &start, &end);
        if (at <= 0)
            return;
        /* The linker leaves discarded functions at address 0 or 1. */
        if (start > 1 && range_list_add(list, start, end, value) < 0)
            return;
    }
}

static void index_units(struct debug_info *d)
{
    Dwarf_Off at = 0, next;
    size_t header;

    while (dwarf_nextcu(d->dwarf, at, &next, &header, NULL, NULL, NULL) == 0 && take_step(d)) {
        Dwarf_Die die;

        if (next <= at || d->n_units == UNITS_MAX ||
            grow_array((void **)&d->units, &d->cap_units, d->n_units + 1, sizeof(*d->units)) < 0)
            break;
        if (dwarf_offdie(d->dwarf, at + header, &die)) {
            d->units[d->n_units] = (struct unit){.die = at + header};
            add_ranges(d, &die, &d->unit_ranges, d->n_units++);
        }
        at = next;
        if (d->n_units % UNITS_AT_ONCE == 0)
            drop_pages(d);
    }
    drop_pages(d);
    range_list_sort(&d->unit_ranges);
}

/*
 * Left alone, libdw would look for the dwz file itself, in our root instead of the target's, and open whatever is
 * there. So debug info that needs a dwz file is read only if we have that file.
 */
static bool open_dwarf(struct debug_info *d)
{
    bool has_link;
    GElf_Shdr section;

    has_link = elf_module_section(d->module, ".gnu_debugaltlink", &section);
    if (has_link && (!d->alt.elf || debug_section_bytes(&d->alt) > BYTES_MAX))
        return false;
    d->dwarf = dwarf_begin_elf(d->module->elf, DWARF_C_READ, NULL);
    if (!d->dwarf || !has_link)
        return d->dwarf != NULL;
    d->alt_dwarf = dwarf_begin_elf(d->alt.elf, DWARF_C_READ, NULL);
    if (!d->alt_dwarf)
        return false;
    dwarf_setalt(d->dwarf, d->alt_dwarf);
    return true;
}

/* Call it after libdw has decompressed the section. Its size is then not the one in the file. */
static struct line_section find_line_section(const struct elf_module *m, const char *name)
{
    size_t n;

    if (elf_getshdrnum(m->elf, &n) < 0)
        return (struct line_section){NULL, 0};
    for (size_t i = 1; i < n; i++) {
        Elf_Scn *scn = elf_getscn(m->elf, i);
        Elf_Data *data;
        GElf_Shdr s;

        if (scn && gelf_getshdr(scn, &s) && strcmp(elf_module_section_name(m, &s), name) == 0 &&
            s.sh_type != SHT_NOBITS && !(s.sh_flags & SHF_COMPRESSED) && (data = elf_rawdata(scn, NULL)) && data->d_buf)
            return (struct line_section){data->d_buf, data->d_size};
    }
    return (struct line_section){NULL, 0};
}

struct debug_info *debug_info_new(struct elf_module *m, struct elf_module *alt)
{
    struct debug_info *d = calloc(1, sizeof(*d));
    GElf_Shdr section;

    if (!d) {
        if (alt)
            elf_module_close(alt);
        return NULL;
    }
    d->module = m;
    d->alt = alt ? *alt : (struct elf_module){.fd = -1};
    d->names = die_names_new();
    d->files = intern_new();
    elf_module_map(m);
    elf_module_map(&d->alt);
    hide_unused_sections(m);
    if (alt)
        hide_unused_sections(&d->alt);
    if (!d->names || !d->files || !elf_module_section(m, ".debug_info", &section) || section.sh_type == SHT_NOBITS ||
        debug_section_bytes(m) > BYTES_MAX || !open_dwarf(d))
        return debug_info_free(d);
    d->line_sections.line = find_line_section(m, ".debug_line");
    d->line_sections.line_str = find_line_section(m, ".debug_line_str");
    d->line_sections.str = find_line_section(m, ".debug_str");
    index_units(d);
    return d;
}

static bool is_scope(int tag)
{
    return tag == DW_TAG_namespace || tag == DW_TAG_class_type || tag == DW_TAG_structure_type ||
           tag == DW_TAG_union_type || tag == DW_TAG_module || tag == DW_TAG_enumeration_type;
}

/* Walks the scopes of a unit, without entering functions. */
static void index_functions(struct debug_info *d, struct unit *unit, Dwarf_Die *unit_die)
{
    Dwarf_Die path[DEPTH_MAX];
    size_t depth = 0;
    int more = dwarf_child(unit_die, &path[0]);

    while (take_step(d)) {
        if (more != 0) { /* no child or no sibling: return to the enclosing scope */
            if (depth == 0)
                break;
            depth--;
        } else {
            int tag = dwarf_tag(&path[depth]);

            if (tag == DW_TAG_subprogram)
                add_ranges(d, &path[depth], &unit->functions, dwarf_dieoffset(&path[depth]));
            else if (is_scope(tag) && depth + 1 < DEPTH_MAX && dwarf_child(&path[depth], &path[depth + 1]) == 0) {
                depth++;
                continue;
            }
        }
        more = dwarf_siblingof(&path[depth], &path[depth]);
    }
    range_list_sort(&unit->functions);
}

static const char *comp_dir_of(Dwarf_Die *unit_die)
{
    Dwarf_Attribute attr;

    return dwarf_attr(unit_die, DW_AT_comp_dir, &attr) ? dwarf_formstring(&attr) : NULL;
}

/* Leaves the table empty if the unit's line program is too large. */
static void read_lines(struct debug_info *d, Dwarf_Die *unit_die, struct line_table *ret)
{
    Dwarf_Attribute attr;
    Dwarf_Word at;
    size_t len;

    if (!dwarf_attr(unit_die, DW_AT_stmt_list, &attr) || dwarf_formudata(&attr, &at) < 0)
        return;
    len = line_table_bytes(&d->line_sections, at);
    if (len > LINES_MAX || len > LINES_BUDGET - d->line_bytes)
        return;
    d->line_bytes += len;
    line_table_read(ret, &d->line_sections, at, comp_dir_of(unit_die), d->files);
}

static struct unit *find_unit(struct debug_info *d, uint64_t vaddr, Dwarf_Die *ret_die)
{
    uint64_t index;
    struct unit *unit;

    if (!range_list_find(&d->unit_ranges, vaddr, &index) || index >= d->n_units)
        return NULL;
    unit = &d->units[index];
    if (!dwarf_offdie(d->dwarf, unit->die, ret_die))
        return NULL;
    if (!unit->indexed) {
        unit->indexed = true;
        index_functions(d, unit, ret_die);
        read_lines(d, ret_die, &unit->lines);
        drop_pages(d);
    }
    return unit;
}

/* Like dwarf_haspc, within the step budget. */
static bool die_contains(struct debug_info *d, Dwarf_Die *die, uint64_t vaddr)
{
    Dwarf_Addr base, start, end;
    ptrdiff_t at = 0;

    for (int i = 0; i < RANGES_MAX && take_step(d); i++) {
        at = dwarf_ranges(die, at, &base, &start, &end);
        if (at <= 0)
            return false;
        if (vaddr >= start && vaddr < end)
            return true;
    }
    return false;
}

/* Sets `*die` to its child, a block or an inlined function, that contains the address. Returns false if there is
 * none. */
static bool descend(struct debug_info *d, Dwarf_Die *die, uint64_t vaddr)
{
    Dwarf_Die child;
    int more = dwarf_child(die, &child);

    for (; more == 0 && take_step(d); more = dwarf_siblingof(&child, &child)) {
        int tag = dwarf_tag(&child);

        if ((tag == DW_TAG_lexical_block || tag == DW_TAG_inlined_subroutine || tag == DW_TAG_try_block ||
             tag == DW_TAG_catch_block || tag == DW_TAG_subprogram) &&
            die_contains(d, &child, vaddr)) {
            *die = child;
            return true;
        }
    }
    return false;
}

/* Lists the function at `vaddr` and the functions inlined there, outermost first. A nested function starts a new
 * chain. */
static size_t find_inline_chain(struct debug_info *d, const struct unit *unit, uint64_t vaddr,
                                Dwarf_Die chain[DEPTH_MAX])
{
    uint64_t offset;
    Dwarf_Die die;
    size_t n = 0;

    if (!range_list_find(&unit->functions, vaddr, &offset) || !dwarf_offdie(d->dwarf, offset, &die))
        return 0;
    chain[n++] = die;
    for (int depth = 0; depth < 4 * DEPTH_MAX && n < DEPTH_MAX && descend(d, &die, vaddr); depth++) {
        int tag = dwarf_tag(&die);

        if (tag == DW_TAG_subprogram)
            n = 0;
        if (tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine)
            chain[n++] = die;
    }
    return n;
}

/* Makes a file name absolute by the directory the compiler ran in. Some builds remove that directory; then the name
 * stays relative. */
static const char *absolute_path(struct debug_info *d, Dwarf_Die *unit_die, const char *file)
{
    const char *dir = comp_dir_of(unit_die);
    char path[PATH_ROOM];

    if (file[0] == '/' || !dir || dir[0] != '/')
        return file;
    while (strncmp(file, "./", 2) == 0)
        file += 2;
    if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
        return file;
    return intern_str(d->files, path);
}

static void set_source(struct debug_info *d, Dwarf_Die *unit_die, const char *file, int line, struct debug_frame *f)
{
    if (!file || !file[0])
        return;
    f->file = absolute_path(d, unit_die, file);
    f->line = f->file && line > 0 ? line : 0;
}

static void set_line(struct debug_info *d, const struct unit *unit, Dwarf_Die *unit_die, uint64_t vaddr,
                     struct debug_frame *f)
{
    uint64_t file;
    int line;

    if (line_table_find(&unit->lines, vaddr, &file, &line))
        set_source(d, unit_die, line_table_file(&unit->lines, file), line, f);
}

/* Sets the position of a caller to where the inlined function is called. */
static void set_call_site(struct debug_info *d, const struct unit *unit, Dwarf_Die *unit_die, Dwarf_Die *inlined,
                          struct debug_frame *f)
{
    Dwarf_Word file = 0, line = 0;
    Dwarf_Attribute attr;

    if (!dwarf_attr(inlined, DW_AT_call_file, &attr) || dwarf_formudata(&attr, &file) < 0)
        return;
    if (dwarf_attr(inlined, DW_AT_call_line, &attr))
        dwarf_formudata(&attr, &line);
    set_source(d, unit_die, line_table_file(&unit->lines, file), line < INT32_MAX ? (int)line : 0, f);
}

size_t debug_info_find(struct debug_info *d, uint64_t vaddr, struct debug_frame *ret, size_t max)
{
    Dwarf_Die chain[DEPTH_MAX], unit_die;
    struct unit *unit = find_unit(d, vaddr, &unit_die);
    struct debug_frame line = {NULL, NULL, 0};
    size_t n;

    if (!unit || max == 0)
        return 0;
    set_line(d, unit, &unit_die, vaddr, &line);
    n = find_inline_chain(d, unit, vaddr, chain);
    if (n == 0) {
        ret[0] = line;
        return line.file ? 1 : 0;
    }
    /* If there are too many, leave out the innermost: the time counts for their callers anyway. */
    for (size_t i = n, out = 0; i-- > 0;) {
        struct debug_frame f = line;

        if (i + 1 < n) {
            f = (struct debug_frame){NULL, NULL, 0};
            set_call_site(d, unit, &unit_die, &chain[i + 1], &f);
        }
        if (i >= max)
            continue;
        f.name = die_names_get(d->names, &unit_die, &chain[i]);
        ret[out++] = f;
    }
    drop_pages(d);
    return n < max ? n : max;
}
