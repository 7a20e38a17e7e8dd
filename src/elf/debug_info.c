/*
 * Looks up functions, inlined functions and lines in DWARF. Indexes the units of a file at once, and the functions of a
 * unit at the first lookup in it. libdw validates what it reads; a step budget ends loops that damaged data would make
 * endless.
 */
#include "elf/debug_info.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/intern.h"
#include "elf/die_name.h"
#include "elf/range_list.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX    ((uint64_t)512 << 20) /* of debug sections, which libdw reads into memory */
#define LINES_MAX    ((uint32_t)8 << 20)   /* bytes of one line program; each may take 80 bytes in memory */
#define STEPS_BUDGET ((size_t)20000000)    /* DIEs and ranges visited in one file, over all lookups */
#define UNITS_MAX    ((size_t)1 << 20)
#define DEPTH_MAX    64
#define PATH_ROOM    4096
#define RANGES_MAX   100000 /* of one DIE */

struct unit {
    Dwarf_Off die;
    struct range_list functions; /* address -> offset of the function's DIE */
    bool indexed, lines_ok;
};

struct debug_info {
    const struct elf_module *module;
    struct elf_module alt;
    Dwarf *dwarf, *alt_dwarf;
    Elf_Scn *line_section;
    struct unit *units;
    size_t n_units, cap_units;
    struct range_list unit_ranges; /* address -> index of the unit */
    struct die_names *names;
    struct intern *files;
    size_t steps;
};

struct debug_info *debug_info_free(struct debug_info *d)
{
    if (!d)
        return NULL;
    for (size_t i = 0; i < d->n_units; i++)
        range_list_clear(&d->units[i].functions);
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

/*
 * The number of bytes that libdw will hold in memory, after decompression; UINT64_MAX if unknown or too many. Call it
 * before libdw opens the file, because libdw changes the headers of sections that it decompresses.
 */
static uint64_t debug_section_bytes(const struct elf_module *m, Elf_Scn **ret_lines)
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
        if (strcmp(elf_module_section_name(m, &s), ".debug_line") == 0)
            *ret_lines = elf_getscn(m->elf, i);
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
    }
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
    Elf_Scn *unused;

    has_link = elf_module_section(d->module, ".gnu_debugaltlink", &section);
    if (has_link && (!d->alt.elf || debug_section_bytes(&d->alt, &unused) > BYTES_MAX))
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

struct debug_info *debug_info_new(const struct elf_module *m, struct elf_module *alt)
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
    hide_unused_sections(m);
    if (alt)
        hide_unused_sections(&d->alt);
    if (!d->names || !d->files || !elf_module_section(m, ".debug_info", &section) || section.sh_type == SHT_NOBITS ||
        debug_section_bytes(m, &d->line_section) > BYTES_MAX || !open_dwarf(d))
        return debug_info_free(d);
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

/* True if the unit's line program is not too large: libdw decodes all of it at once. */
static bool line_program_fits(const struct debug_info *d, Dwarf_Die *unit_die)
{
    Elf_Data *lines = d->line_section ? elf_getdata(d->line_section, NULL) : NULL; /* libdw has already read it */
    Dwarf_Attribute attr;
    Dwarf_Word at;
    uint32_t len;

    if (!lines || !lines->d_buf || lines->d_size < sizeof(len) || !dwarf_attr(unit_die, DW_AT_stmt_list, &attr) ||
        dwarf_formudata(&attr, &at) < 0 || at > lines->d_size - sizeof(len))
        return false;
    memcpy(&len, (const char *)lines->d_buf + at, sizeof(len));
    return len <= LINES_MAX;
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
        unit->lines_ok = line_program_fits(d, ret_die);
        index_functions(d, unit, ret_die);
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
    Dwarf_Attribute attr;
    const char *dir = dwarf_attr(unit_die, DW_AT_comp_dir, &attr) ? dwarf_formstring(&attr) : NULL;
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
    if (!file || !file[0] || strcmp(file, "???") == 0)
        return;
    f->file = absolute_path(d, unit_die, file);
    f->line = f->file && line > 0 ? line : 0;
}

static void set_line(struct debug_info *d, const struct unit *unit, Dwarf_Die *unit_die, uint64_t vaddr,
                     struct debug_frame *f)
{
    Dwarf_Line *line = unit->lines_ok ? dwarf_getsrc_die(unit_die, vaddr) : NULL;
    int number = 0;

    if (!line)
        return;
    dwarf_lineno(line, &number);
    set_source(d, unit_die, dwarf_linesrc(line, NULL, NULL), number, f);
}

/* Sets the position of a caller to where the inlined function is called. */
static void set_call_site(struct debug_info *d, const struct unit *unit, Dwarf_Die *unit_die, Dwarf_Die *inlined,
                          struct debug_frame *f)
{
    Dwarf_Word file = 0, line = 0;
    Dwarf_Attribute attr;
    Dwarf_Files *files;
    size_t n;

    if (!unit->lines_ok || !dwarf_attr(inlined, DW_AT_call_file, &attr) || dwarf_formudata(&attr, &file) < 0 ||
        dwarf_getsrcfiles(unit_die, &files, &n) < 0 || file >= n)
        return;
    if (dwarf_attr(inlined, DW_AT_call_line, &attr))
        dwarf_formudata(&attr, &line);
    set_source(d, unit_die, dwarf_filesrc(files, file, NULL, NULL), line < INT32_MAX ? (int)line : 0, f);
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
    return n < max ? n : max;
}
