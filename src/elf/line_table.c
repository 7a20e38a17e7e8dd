/*
 * Reads line programs of DWARF 2 to 5: the tables of directories and files, then the program, which computes one row
 * after the other. Rows that say nothing new are left out.
 */
#include "elf/line_table.h"

#include "base/err.h"
#include "base/grow.h"
#include "elf/dwarf_bytes.h"

#include <dwarf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMATS_MAX 16 /* parts of an entry in a table of DWARF 5; five are defined */
#define PATH_ROOM   4096

struct header {
    unsigned version, min_length, line_range, opcode_base;
    int line_base;
    unsigned char operands[256]; /* of the standard opcodes */
};

struct reader {
    struct line_table *t;
    const struct line_sections *sections;
    struct intern *names;
    struct dwarf_bytes b;
    struct header h;
    const char **dirs;
    size_t n_dirs, cap_dirs;
};

/* ---- directories and files ---- */

static const char *string_at(const struct line_section *s, uint64_t at)
{
    if (!s->bytes || at >= s->len || !memchr((const char *)s->bytes + at, '\0', s->len - at))
        return NULL;
    return (const char *)s->bytes + at;
}

static void add_dir(struct reader *r, const char *dir)
{
    if (grow_array((void **)&r->dirs, &r->cap_dirs, r->n_dirs + 1, sizeof(*r->dirs)) < 0)
        r->b.bad = true;
    else
        r->dirs[r->n_dirs++] = dir;
}

/* The name with its directory, unless it is absolute. */
static const char *full_name(struct reader *r, const char *name, uint64_t dir)
{
    char path[PATH_ROOM];

    if (!name || name[0] == '/' || !r->dirs[dir])
        return name ? intern_str(r->names, name) : NULL;
    if (snprintf(path, sizeof(path), "%s/%s", r->dirs[dir], name) >= (int)sizeof(path))
        return NULL;
    return intern_str(r->names, path);
}

static void add_file(struct reader *r, const char *name, uint64_t dir)
{
    struct line_table *t = r->t;

    if (dir >= r->n_dirs || grow_array((void **)&t->files, &t->cap_files, t->n_files + 1, sizeof(*t->files)) < 0)
        r->b.bad = true;
    if (!r->b.bad)
        t->files[t->n_files++] = full_name(r, name, dir);
}

/* Up to DWARF 4: strings, up to an empty one. Directory 0 is the compiler's; there is no file 0. */
static void read_old_tables(struct reader *r, const char *comp_dir)
{
    const char *s;

    add_dir(r, comp_dir);
    while ((s = dwarf_bytes_string(&r->b)) && *s)
        add_dir(r, s);
    add_file(r, NULL, 0);
    while ((s = dwarf_bytes_string(&r->b)) && *s) {
        uint64_t dir = dwarf_bytes_uleb(&r->b);

        dwarf_bytes_uleb(&r->b); /* time and size */
        dwarf_bytes_uleb(&r->b);
        add_file(r, s, dir);
    }
}

struct entry_value {
    const char *text; /* NULL if it is a number */
    uint64_t number;
};

static struct entry_value read_value(struct reader *r, uint64_t form)
{
    struct entry_value v = {NULL, 0};

    switch (form) {
    case DW_FORM_string:
        v.text = dwarf_bytes_string(&r->b);
        break;
    case DW_FORM_line_strp:
        v.text = string_at(&r->sections->line_str, dwarf_bytes_fixed(&r->b, 4));
        break;
    case DW_FORM_strp:
        v.text = string_at(&r->sections->str, dwarf_bytes_fixed(&r->b, 4));
        break;
    case DW_FORM_data1:
        v.number = dwarf_bytes_fixed(&r->b, 1);
        break;
    case DW_FORM_data2:
        v.number = dwarf_bytes_fixed(&r->b, 2);
        break;
    case DW_FORM_data4:
    case DW_FORM_strp_sup: /* in the dwz file; compilers do not use it here */
        v.number = dwarf_bytes_fixed(&r->b, 4);
        break;
    case DW_FORM_data8:
        v.number = dwarf_bytes_fixed(&r->b, 8);
        break;
    case DW_FORM_udata:
        v.number = dwarf_bytes_uleb(&r->b);
        break;
    case DW_FORM_data16:
        dwarf_bytes_skip(&r->b, 16);
        break;
    case DW_FORM_block:
        dwarf_bytes_skip(&r->b, dwarf_bytes_uleb(&r->b));
        break;
    default:
        r->b.bad = true;
    }
    return v;
}

/* From DWARF 5 on, a table says what its entries consist of. */
static void read_new_table(struct reader *r, bool files)
{
    uint64_t types[FORMATS_MAX], forms[FORMATS_MAX], n_formats = dwarf_bytes_fixed(&r->b, 1), count;

    for (size_t i = 0; i < n_formats && i < FORMATS_MAX; i++) {
        types[i] = dwarf_bytes_uleb(&r->b);
        forms[i] = dwarf_bytes_uleb(&r->b);
    }
    count = dwarf_bytes_uleb(&r->b);
    r->b.bad |= n_formats > FORMATS_MAX || count > r->b.end - r->b.pos;
    for (uint64_t n = 0; n < count && !r->b.bad; n++) {
        const char *name = NULL;
        uint64_t dir = 0;

        for (size_t i = 0; i < n_formats; i++) {
            struct entry_value v = read_value(r, forms[i]);

            if (types[i] == DW_LNCT_path)
                name = v.text;
            else if (types[i] == DW_LNCT_directory_index)
                dir = v.number;
        }
        if (files)
            add_file(r, name, dir);
        else
            add_dir(r, name);
    }
}

/* ---- the program ---- */

struct state {
    uint64_t vaddr, file;
    int64_t line;
    size_t first; /* row of this sequence */
};

static const struct state start_state = {.file = 1, .line = 1};

static void emit(struct reader *r, const struct state *s)
{
    struct line_table *t = r->t;
    struct line_row row = {s->vaddr, s->line > 0 && s->line < INT32_MAX ? (int)s->line : 0,
                           s->file < UINT32_MAX ? (uint32_t)s->file : UINT32_MAX};
    const struct line_row *last;

    /* Of several rows at one address, the last one counts. */
    if (t->n > s->first && t->rows[t->n - 1].vaddr == row.vaddr)
        t->n--;
    last = t->n > s->first ? &t->rows[t->n - 1] : NULL;
    if (last && last->file == row.file && last->line == row.line)
        return;
    if (grow_array((void **)&t->rows, &t->cap, t->n + 1, sizeof(*t->rows)) < 0)
        r->b.bad = true;
    else
        t->rows[t->n++] = row;
}

static void end_sequence(struct reader *r, struct state *s)
{
    struct line_table *t = r->t;

    /* The linker leaves discarded functions at address 0 or 1. */
    if (t->n > s->first && t->rows[s->first].vaddr > 1)
        range_list_add(&t->sequences, t->rows[s->first].vaddr, s->vaddr, (uint64_t)s->first << 32 | (t->n - s->first));
    else
        t->n = s->first;
    *s = start_state;
    s->first = t->n;
}

static void run_extended(struct reader *r, struct state *s)
{
    uint64_t len = dwarf_bytes_uleb(&r->b);
    size_t start = r->b.pos;

    if (r->b.bad || len == 0 || len > r->b.end - start) {
        r->b.bad = true;
        return;
    }
    switch (dwarf_bytes_fixed(&r->b, 1)) {
    case DW_LNE_end_sequence:
        end_sequence(r, s);
        break;
    case DW_LNE_set_address:
        s->vaddr = dwarf_bytes_fixed(&r->b, len - 1 < 8 ? len - 1 : 8);
        break;
    default: /* discriminators */
        break;
    }
    r->b.pos = start + len;
}

static void advance(struct reader *r, struct state *s, uint64_t operations)
{
    s->vaddr += operations * r->h.min_length;
}

static void run_standard(struct reader *r, struct state *s, unsigned opcode)
{
    switch (opcode) {
    case DW_LNS_copy:
        emit(r, s);
        break;
    case DW_LNS_advance_pc:
        advance(r, s, dwarf_bytes_uleb(&r->b));
        break;
    case DW_LNS_advance_line:
        s->line = (int32_t)((uint64_t)s->line + (uint64_t)dwarf_bytes_sleb(&r->b));
        break;
    case DW_LNS_set_file:
        s->file = dwarf_bytes_uleb(&r->b);
        break;
    case DW_LNS_const_add_pc:
        advance(r, s, (255 - r->h.opcode_base) / r->h.line_range);
        break;
    case DW_LNS_fixed_advance_pc:
        s->vaddr += dwarf_bytes_fixed(&r->b, 2);
        break;
    default: /* columns, statements, prologues */
        for (unsigned i = 0; i < r->h.operands[opcode]; i++)
            dwarf_bytes_uleb(&r->b);
    }
}

static void run(struct reader *r)
{
    struct state s = start_state;

    while (r->b.pos < r->b.end && !r->b.bad) {
        unsigned opcode = (unsigned)dwarf_bytes_fixed(&r->b, 1);

        if (opcode >= r->h.opcode_base) {
            opcode -= r->h.opcode_base;
            advance(r, &s, opcode / r->h.line_range);
            s.line = (int32_t)(s.line + r->h.line_base + (int)(opcode % r->h.line_range));
            emit(r, &s);
        } else if (opcode == 0)
            run_extended(r, &s);
        else
            run_standard(r, &s, opcode);
    }
    range_list_sort(&r->t->sequences);
}

/* ---- the whole ---- */

/* Leaves the position at the tables. Returns the position of the program. */
static size_t read_header(struct reader *r)
{
    struct dwarf_bytes *b = &r->b;
    struct header *h = &r->h;
    uint64_t len;
    size_t program;

    h->version = (unsigned)dwarf_bytes_fixed(b, 2);
    if (h->version >= 5)
        dwarf_bytes_skip(b, 2); /* sizes of addresses and segments */
    len = dwarf_bytes_fixed(b, 4);
    b->bad |= len > b->end - b->pos;
    program = b->pos + (size_t)len;
    h->min_length = (unsigned)dwarf_bytes_fixed(b, 1);
    if (h->version >= 4)
        b->bad |= dwarf_bytes_fixed(b, 1) != 1; /* operations per instruction; more only on Itanium */
    dwarf_bytes_skip(b, 1);                     /* whether a row begins a statement */
    h->line_base = (int8_t)dwarf_bytes_fixed(b, 1);
    h->line_range = (unsigned)dwarf_bytes_fixed(b, 1);
    h->opcode_base = (unsigned)dwarf_bytes_fixed(b, 1);
    for (unsigned i = 1; i < h->opcode_base; i++)
        h->operands[i] = (unsigned char)dwarf_bytes_fixed(b, 1);
    b->bad |= h->version < 2 || h->version > 5 || h->line_range == 0 || h->opcode_base == 0 || b->pos > program;
    return program;
}

static void read_all(struct reader *r, const char *comp_dir)
{
    size_t end = r->b.end, program;

    program = read_header(r);
    if (r->b.bad)
        return;
    r->b.end = program;
    if (r->h.version < 5)
        read_old_tables(r, comp_dir);
    else {
        read_new_table(r, false);
        read_new_table(r, true);
    }
    r->b.end = end;
    r->b.pos = program;
    run(r);
}

size_t line_table_bytes(const struct line_sections *s, uint64_t at)
{
    uint32_t len;

    if (!s->line.bytes || s->line.len < sizeof(len) || at > s->line.len - sizeof(len))
        return 0;
    memcpy(&len, (const char *)s->line.bytes + at, sizeof(len));
    return len <= s->line.len - sizeof(len) - at ? len + sizeof(len) : 0;
}

int line_table_read(struct line_table *t, const struct line_sections *s, uint64_t at, const char *comp_dir,
                    struct intern *names)
{
    size_t len = line_table_bytes(s, at);
    struct reader r = {t,   s,    names, {.start = s->line.bytes, .pos = (size_t)at + 4, .end = (size_t)at + len},
                       {0}, NULL, 0,     0};

    *t = (struct line_table){0};
    if (len)
        read_all(&r, comp_dir);
    free(r.dirs);
    if (!len || r.b.bad) {
        line_table_clear(t);
        return ERR_READ;
    }
    return 0;
}

void line_table_clear(struct line_table *t)
{
    free(t->rows);
    free(t->files);
    range_list_clear(&t->sequences);
    *t = (struct line_table){0};
}

bool line_table_find(const struct line_table *t, uint64_t vaddr, uint64_t *ret_file, int *ret_line)
{
    size_t low, high;
    uint64_t value;

    if (!range_list_find(&t->sequences, vaddr, &value))
        return false;
    low = (size_t)(value >> 32);
    high = low + (uint32_t)value;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (t->rows[middle].vaddr <= vaddr)
            low = middle;
        else
            high = middle;
    }
    *ret_file = t->rows[low].file;
    *ret_line = t->rows[low].line;
    return true;
}

const char *line_table_file(const struct line_table *t, uint64_t index)
{
    return index < t->n_files ? t->files[index] : NULL;
}
