/*
 * Functions, inlined functions and lines at an address, from DWARF. Called by symbols.c for modules that have debug
 * info. Units are indexed by address once, the functions of a unit when an address in it is first asked for. libdw checks
 * what it reads; loops that damaged data could make endless are ended by a budget of steps.
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

#define BYTES_MAX  ((uint64_t)512 << 20) /* all of it is read into memory */
#define LINES_MAX  ((uint32_t)8 << 20)   /* bytes of one line program; each can become 80 in memory */
#define STEPS_MAX  ((size_t)20000000)    /* entries looked at, over the file's life */
#define UNITS_MAX  ((size_t)1 << 20)
#define DEPTH_MAX  64
#define PATH_ROOM  4096
#define RANGES_MAX 100000 /* of one entry */

struct unit {
    Dwarf_Off die;
    struct range_list functions; /* address -> offset of the function's entry */
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

static bool may_step(struct debug_info *d)
{
    return d->steps < STEPS_MAX && ++d->steps;
}

/*
 * How many bytes libdw will hold, packed sections unpacked; UINT64_MAX when that cannot be told. Asked before libdw
 * begins: the headers of sections that it unpacks are not those of the file any more.
 */
static uint64_t debug_bytes(const struct elf_module *m, Elf_Scn **ret_lines)
{
    uint64_t sum = 0;
    size_t n;

    if (elf_getshdrnum(m->elf, &n) < 0)
        return UINT64_MAX;
    for (size_t i = 1; i < n; i++) {
        GElf_Shdr s;
        GElf_Chdr packed;

        if (!elf_module_section_nth(m, i, &s) || s.sh_type == SHT_NOBITS)
            continue;
        if (strcmp(elf_module_section_name(m, &s), ".debug_line") == 0)
            *ret_lines = elf_getscn(m->elf, i);
        if (!strstr(elf_module_section_name(m, &s), "debug_"))
            continue;
        if (s.sh_flags & SHF_COMPRESSED)
            s.sh_size = gelf_getchdr(elf_getscn(m->elf, i), &packed) ? packed.ch_size : UINT64_MAX;
        sum = s.sh_size > BYTES_MAX || sum > BYTES_MAX ? UINT64_MAX : sum + s.sh_size;
    }
    return sum;
}

/*
 * libdw reads and unpacks every section it knows at once. Where variables are, and indexes that we do not use, can be
 * half of it: without bytes in the file, they are passed over. (The change is to libelf's copy of the header.)
 */
static void leave_out(const struct elf_module *m)
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

/* The ranges of an entry, each as (start, end, value). */
static void add_ranges(struct debug_info *d, Dwarf_Die *die, struct range_list *list, uint64_t value)
{
    Dwarf_Addr base, start, end;
    ptrdiff_t at = 0;

    for (int i = 0; i < RANGES_MAX && may_step(d); i++) {
        at = dwarf_ranges(die, at, &base, &start, &end);
        if (at <= 0)
            return;
        /* Functions that the linker threw away are left at 0 or 1. */
        if (start > 1 && range_list_add(list, start, end, value) < 0)
            return;
    }
}

static void index_units(struct debug_info *d)
{
    Dwarf_Off at = 0, next;
    size_t header;

    while (dwarf_nextcu(d->dwarf, at, &next, &header, NULL, NULL, NULL) == 0 && may_step(d)) {
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
 * libdw would look for the file that dwz made on its own, in our root instead of the target's, and would open whatever
 * lies there: without that file, debug info which needs it is not read.
 */
static bool open_dwarf(struct debug_info *d)
{
    bool has_link;
    GElf_Shdr section;
    Elf_Scn *unused;

    has_link = elf_module_section(d->module, ".gnu_debugaltlink", &section);
    if (has_link && (!d->alt.elf || debug_bytes(&d->alt, &unused) > BYTES_MAX))
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
    leave_out(m);
    if (alt)
        leave_out(&d->alt);
    if (!d->names || !d->files || !elf_module_section(m, ".debug_info", &section) || section.sh_type == SHT_NOBITS ||
        debug_bytes(m, &d->line_section) > BYTES_MAX || !open_dwarf(d))
        return debug_info_free(d);
    index_units(d);
    return d;
}

static bool holds_functions(int tag)
{
    return tag == DW_TAG_namespace || tag == DW_TAG_class_type || tag == DW_TAG_structure_type ||
           tag == DW_TAG_union_type || tag == DW_TAG_module || tag == DW_TAG_enumeration_type;
}

/* Walks the unit's scopes, not what is inside of functions. */
static void index_functions(struct debug_info *d, struct unit *unit, Dwarf_Die *unit_die)
{
    Dwarf_Die path[DEPTH_MAX];
    size_t depth = 0;
    int more = dwarf_child(unit_die, &path[0]);

    while (may_step(d)) {
        if (more != 0) { /* no child, or no sibling: back to the scope around */
            if (depth == 0)
                break;
            depth--;
        } else {
            int tag = dwarf_tag(&path[depth]);

            if (tag == DW_TAG_subprogram)
                add_ranges(d, &path[depth], &unit->functions, dwarf_dieoffset(&path[depth]));
            else if (holds_functions(tag) && depth + 1 < DEPTH_MAX &&
                     dwarf_child(&path[depth], &path[depth + 1]) == 0) {
                depth++;
                continue;
            }
        }
        more = dwarf_siblingof(&path[depth], &path[depth]);
    }
    range_list_sort(&unit->functions);
}

/* Whether the unit's line program is of a sane size: libdw reads all of it at once. */
static bool lines_bounded(const struct debug_info *d, Dwarf_Die *unit_die)
{
    Elf_Data *lines = d->line_section ? elf_getdata(d->line_section, NULL) : NULL; /* libdw has read and unpacked it */
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
        unit->lines_ok = lines_bounded(d, ret_die);
        index_functions(d, unit, ret_die);
    }
    return unit;
}

/* Like dwarf_haspc, with a bound. */
static bool die_holds(struct debug_info *d, Dwarf_Die *die, uint64_t vaddr)
{
    Dwarf_Addr base, start, end;
    ptrdiff_t at = 0;

    for (int i = 0; i < RANGES_MAX && may_step(d); i++) {
        at = dwarf_ranges(die, at, &base, &start, &end);
        if (at <= 0)
            return false;
        if (vaddr >= start && vaddr < end)
            return true;
    }
    return false;
}

/* The block, or the function inlined, directly in `*die` that holds the address: `*die` becomes that. */
static bool step_inward(struct debug_info *d, Dwarf_Die *die, uint64_t vaddr)
{
    Dwarf_Die child;
    int more = dwarf_child(die, &child);

    for (; more == 0 && may_step(d); more = dwarf_siblingof(&child, &child)) {
        int tag = dwarf_tag(&child);

        if ((tag == DW_TAG_lexical_block || tag == DW_TAG_inlined_subroutine || tag == DW_TAG_try_block ||
             tag == DW_TAG_catch_block || tag == DW_TAG_subprogram) &&
            die_holds(d, &child, vaddr)) {
            *die = child;
            return true;
        }
    }
    return false;
}

/* The function at `vaddr` and what is inlined there, outermost first. A function inside of another one stands alone. */
static size_t find_chain(struct debug_info *d, const struct unit *unit, uint64_t vaddr, Dwarf_Die chain[DEPTH_MAX])
{
    uint64_t offset;
    Dwarf_Die die;
    size_t n = 0;

    if (!range_list_find(&unit->functions, vaddr, &offset) || !dwarf_offdie(d->dwarf, offset, &die))
        return 0;
    chain[n++] = die;
    for (int depth = 0; depth < 4 * DEPTH_MAX && n < DEPTH_MAX && step_inward(d, &die, vaddr); depth++) {
        int tag = dwarf_tag(&die);

        if (tag == DW_TAG_subprogram)
            n = 0;
        if (tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine)
            chain[n++] = die;
    }
    return n;
}

/* Files are told as seen from the directory the compiler ran in. Some builds hide that one: then they stay as they are. */
static const char *whole_path(struct debug_info *d, Dwarf_Die *unit_die, const char *file)
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

static void set_place(struct debug_info *d, Dwarf_Die *unit_die, const char *file, int line, struct debug_frame *f)
{
    if (!file || !file[0] || strcmp(file, "???") == 0)
        return;
    f->file = whole_path(d, unit_die, file);
    f->line = f->file && line > 0 ? line : 0;
}

static void find_line(struct debug_info *d, const struct unit *unit, Dwarf_Die *unit_die, uint64_t vaddr,
                      struct debug_frame *f)
{
    Dwarf_Line *line = unit->lines_ok ? dwarf_getsrc_die(unit_die, vaddr) : NULL;
    int number = 0;

    if (!line)
        return;
    dwarf_lineno(line, &number);
    set_place(d, unit_die, dwarf_linesrc(line, NULL, NULL), number, f);
}

/* Where the inlined function is called from: the line at which its caller is. */
static void find_call(struct debug_info *d, const struct unit *unit, Dwarf_Die *unit_die, Dwarf_Die *inlined,
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
    set_place(d, unit_die, dwarf_filesrc(files, file, NULL, NULL), line < INT32_MAX ? (int)line : 0, f);
}

size_t debug_info_find(struct debug_info *d, uint64_t vaddr, struct debug_frame *ret, size_t max)
{
    Dwarf_Die chain[DEPTH_MAX], unit_die;
    struct unit *unit = find_unit(d, vaddr, &unit_die);
    struct debug_frame line = {NULL, NULL, 0};
    size_t n;

    if (!unit || max == 0)
        return 0;
    find_line(d, unit, &unit_die, vaddr, &line);
    n = find_chain(d, unit, vaddr, chain);
    if (n == 0) {
        ret[0] = line;
        return line.file ? 1 : 0;
    }
    /* With too little room the inner ones are left out: their callers are where the time goes as well. */
    for (size_t i = n, out = 0; i-- > 0;) {
        struct debug_frame f = line;

        if (i + 1 < n) {
            f = (struct debug_frame){NULL, NULL, 0};
            find_call(d, unit, &unit_die, &chain[i + 1], &f);
        }
        if (i >= max)
            continue;
        f.name = die_names_get(d->names, &unit_die, &chain[i]);
        ret[out++] = f;
    }
    return n < max ? n : max;
}
