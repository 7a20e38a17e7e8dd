/*
 * unwind/cfi* on real libraries: each row must equal that of elfutils, and be the same through the header's table as
 * through a scan of all entries. Thousands of addresses in each library, all addresses in small ones.
 */
#include "elf/elf_module.h"
#include "test.h"
#include "unwind/cfi.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <unistd.h>

#define MAX_PCS  100000 /* per library */
#define MAX_ROWS 200    /* per function */

static const char *const libraries[] = {
    "/proc/self/exe",       "/lib*/ld-linux-x86-64.so.2", "/lib/*/libc.so.6",          "/lib/*/libm.so.6",
    "/lib/*/libgcc_s.so.1", "/lib/*/libcrypto.so.*",      "/usr/lib/*/libstdc++.so.6", "/usr/bin/python3",
    FIXTURES "/plain.so",   FIXTURES "/no-header.so",
};
static const int saved[] = {3, 6, 12, 13, 14, 15, CFI_RA};

struct library {
    const char *path;
    struct elf_module module;
    struct cfi_section frame, header;
    unsigned char *frame_bytes, *header_bytes;
    struct cfi_table by_scan, by_header;
    Dwarf *dwarf;
    Dwarf_CFI *theirs;
    size_t pcs, functions;
};

static bool load(struct library *l, const char *name, struct cfi_section *ret, unsigned char **ret_bytes)
{
    GElf_Shdr section;
    size_t len;

    if (!elf_module_section(&l->module, name, &section) ||
        elf_module_read_section(&l->module, &section, (size_t)1 << 28, ret_bytes, &len) < 0)
        return false;
    *ret = (struct cfi_section){.bytes = *ret_bytes, .len = len, .addr = section.sh_addr};
    return true;
}

/* Without a rule for rbx, elfutils considers it lost (0.188: its table of callee-saved registers has another
 * register there). */
static bool same_rule(const struct cfi_rule *rule, const Dwarf_Op *ops, size_t n, bool undefined)
{
    int64_t offset = n > 1 && ops[1].atom == DW_OP_plus_uconst ? (int64_t)ops[1].number : 0;

    switch (rule->kind) {
    case CFI_SAME_VALUE:
        return n == 0 && !undefined;
    case CFI_UNDEFINED:
        return n == 0 && undefined;
    case CFI_OFFSET:
        return n >= 1 && ops[0].atom == DW_OP_call_frame_cfa && n == (offset ? 2 : 1) && offset == rule->value;
    case CFI_VAL_OFFSET:
        return n >= 2 && ops[0].atom == DW_OP_call_frame_cfa && ops[n - 1].atom == DW_OP_stack_value &&
               offset == rule->value;
    case CFI_REGISTER:
        return n == 1 && ops[0].atom == DW_OP_regx && (int64_t)ops[0].number == rule->value;
    default:
        return n > 1;
    }
}

static bool same_cfa(const struct cfi_section *s, const struct cfi_rule *rule, const Dwarf_Op *ops, size_t n)
{
    if (rule->kind == CFI_CFA_REG_OFFSET)
        return n == 1 && ops[0].atom == DW_OP_bregx && ops[0].number == rule->reg &&
               (int64_t)ops[0].number2 == rule->value;
    return n >= 1 && rule->kind == CFI_VAL_EXPRESSION && s->bytes[rule->value] == ops[0].atom;
}

static bool same_row(const struct library *l, const struct cfi_section *s, uint64_t pc, const struct cfi_row *row,
                     uint64_t bias)
{
    Dwarf_Frame *frame = NULL;
    Dwarf_Op *ops, room[3];
    Dwarf_Addr start, end; /* elfutils' start is that of the last restored state, not of the row */
    size_t n;
    bool is_signal, same;

    if (dwarf_cfi_addrframe(l->theirs, pc - bias, &frame) < 0)
        return false;
    same = dwarf_frame_info(frame, &start, &end, &is_signal) == CFI_RA && is_signal == row->is_signal &&
           end + bias == row->end;
    same = same && dwarf_frame_cfa(frame, &ops, &n) == 0 && same_cfa(s, &row->cfa, ops, n);
    for (size_t i = 0; same && i < sizeof(saved) / sizeof(saved[0]); i++)
        same = dwarf_frame_register(frame, saved[i], room, &ops, &n) == 0 &&
               same_rule(&row->regs[saved[i]], ops, n,
                         ops == room && (saved[i] != 3 || row->regs[3].kind != CFI_SAME_VALUE));
    free(frame);
    return same;
}

static bool check_pc(struct library *l, struct cfi_table *t, uint64_t pc, uint64_t bias, struct cfi_row *row)
{
    struct cfi_row other;
    bool good = cfi_find(t, pc, row) == 0;

    good = good && row->start <= pc && pc < row->end && same_row(l, &t->frame, pc, row, bias);
    if (good && l->by_header.n_hdr_pairs)
        good = cfi_find(&l->by_header, pc, &other) == 0 && memcmp(row, &other, sizeof(other)) == 0;
    if (!good && l->pcs < 100)
        fprintf(stderr, "    %s: %#" PRIx64 " differs: %" PRIx64 " %" PRIx64 " cfa %d %d\n", l->path, pc, row->start,
                row->end, row->cfa.kind, (int)row->cfa.value);
    l->pcs++;
    return good;
}

/* All rows of one function. */
static bool check_function(struct library *l, struct cfi_table *t, uint64_t start, uint64_t bias)
{
    struct cfi_row row;
    uint64_t pc = start;

    l->functions++;
    for (size_t i = 0; i < MAX_ROWS; i++) {
        if (!check_pc(l, t, pc, bias, &row) || !check_pc(l, t, row.end - 1, bias, &row))
            return false;
        pc = row.end;
        if (cfi_find(t, pc, &row) < 0 || row.function != start)
            return true; /* the end of it */
    }
    return true;
}

static void check_table(struct library *l, struct cfi_table *t, uint64_t bias)
{
    size_t step = t->n_entries / (MAX_PCS / 10) + 1, wrong = 0;

    for (size_t i = 0; i < t->n_entries && l->pcs < MAX_PCS; i += step)
        wrong += !check_function(l, t, t->entries[i].start, bias);
    if (test_now.update) /* for manual runs: how much was compared */
        printf("# %s: %zu addresses in %zu functions\n", l->path, l->pcs, l->functions);
    if (!CHECK(wrong == 0 && l->pcs > 8))
        fprintf(stderr, "    %s: %zu of %zu functions\n", l->path, wrong, l->functions);
}

static void check_library(const char *path)
{
    struct library l = {.path = path};
    bool has_header;

    if (!CHECK_INT(elf_module_open(open(path, O_RDONLY | O_CLOEXEC), &l.module), 0))
        return;
    CHECK(load(&l, ".eh_frame", &l.frame, &l.frame_bytes));
    has_header = load(&l, ".eh_frame_hdr", &l.header, &l.header_bytes);
    l.theirs = dwarf_getcfi_elf(l.module.elf);
    if (CHECK(l.theirs != NULL)) {
        CHECK_INT(cfi_table_make(&l.by_scan, &l.frame, NULL), 0);
        if (has_header) {
            CHECK_INT(cfi_table_make(&l.by_header, &l.frame, &l.header), 0);
            CHECK(l.by_header.n_hdr_pairs && cfi_header_frame(&l.header) == l.frame.addr);
        }
        check_table(&l, &l.by_scan, 0);
        dwarf_cfi_end(l.theirs);
    }
    cfi_table_free(&l.by_scan);
    cfi_table_free(&l.by_header);
    free(l.frame_bytes);
    free(l.header_bytes);
    elf_module_close(&l.module);
}

static void test_libraries(void)
{
    size_t n = 0;

    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
        char real[PATH_MAX];
        glob_t found;

        if (glob(libraries[i], 0, NULL, &found) == 0) {
            check_library(realpath(found.gl_pathv[0], real) ? real : found.gl_pathv[0]);
            n++;
        }
        globfree(&found);
    }
    CHECK(n >= 4); /* at least this program, our two libraries, and one more */
}

/* .debug_frame with a load bias, as in a library. */
static void check_debug(const char *path)
{
    struct library l = {.path = path};
    struct cfi_table table;

    if (!CHECK_INT(elf_module_open(open(path, O_RDONLY | O_CLOEXEC), &l.module), 0))
        return;
    CHECK(load(&l, ".debug_frame", &l.frame, &l.frame_bytes));
    l.dwarf = dwarf_begin_elf(l.module.elf, DWARF_C_READ, NULL);
    l.theirs = l.dwarf ? dwarf_getcfi(l.dwarf) : NULL;
    if (CHECK(l.theirs != NULL)) {
        CHECK_INT(cfi_table_make_debug(&table, &l.frame, 0x7f0000000000), 0);
        check_table(&l, &table, 0x7f0000000000);
        cfi_table_free(&table);
    }
    dwarf_end(l.dwarf);
    free(l.frame_bytes);
    elf_module_close(&l.module);
}

static void test_debug_frames(void)
{
    check_debug(FIXTURES "/debug.so");
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_libraries);
    TEST_RUN(test_debug_frames);
    return test_finish("test_cfi_real");
}
