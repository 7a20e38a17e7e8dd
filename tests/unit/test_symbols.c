/*
 * elf/symbols and its parts, on files that tests/unit/symbols/make.sh built: the labels in them are the addresses to
 * look up, the sources say which line that is.
 */
#include "base/err.h"
#include "base/open_in_root.h"
#include "elf/cython.h"
#include "elf/demangle.h"
#include "elf/elf_module.h"
#include "elf/line_table.h"
#include "elf/perf_map.h"
#include "elf/symbols.h"
#include "test.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef FIXTURES
#error "FIXTURES: the directory of the files that were built; SOURCES: of their sources"
#endif

#define MAX 16

struct text {
    char *bytes;
    size_t len;
};

static struct text file_read(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct text t = {NULL, 0};

    if (!f)
        abort();
    fseek(f, 0, SEEK_END);
    t.len = (size_t)ftell(f);
    rewind(f);
    t.bytes = calloc(1, t.len + 1);
    if (!t.bytes || fread(t.bytes, 1, t.len, f) != t.len)
        abort();
    fclose(f);
    return t;
}

/* The address of a label in a file that has all of its symbols. */
static uint64_t site(const char *file, const char *label)
{
    char path[4096];
    struct text t;
    struct elf_file elf;
    addr_t at = 0;

    snprintf(path, sizeof(path), FIXTURES "/%s", file);
    t = file_read(path);
    elf = (struct elf_file){(const unsigned char *)t.bytes, t.len};
    CHECK_INT(elf_file_symbol(&elf, label, &at), 0);
    free(t.bytes);
    return at;
}

/* The line of a source file on which `mark` first appears. */
static int line_of(const char *source, const char *mark)
{
    char path[4096];
    struct text t;
    const char *at;
    int line = 1;

    snprintf(path, sizeof(path), SOURCES "/%s", source);
    t = file_read(path);
    at = strstr(t.bytes, mark);
    CHECK(at != NULL);
    for (const char *s = t.bytes; at && s < at; s++)
        line += *s == '\n';
    free(t.bytes);
    return line;
}

/* A module of a root below the fixtures; "" uses the fixtures themselves as the root. */
struct opened {
    int root;
    struct symbols *s;
};

static struct opened open_in(const char *root, const char *path)
{
    char dir[4096], file[8192];
    struct opened o = {-1, NULL};

    snprintf(dir, sizeof(dir), FIXTURES "/%s", root);
    snprintf(file, sizeof(file), "%s/%s", dir, path);
    o.root = open(dir, O_PATH | O_DIRECTORY);
    CHECK(o.root >= 0);
    struct symbols_source src = {.root_fd = o.root, .path = path, .fd = open(file, O_RDONLY)};
    CHECK_INT(symbols_open(&src, &o.s), 0);
    return o;
}

/* A module below our own root. */
static struct opened open_here(const char *name)
{
    char file[4096];
    struct opened o = {-1, NULL};

    snprintf(file, sizeof(file), FIXTURES "/%s", name);
    struct symbols_source src = {.root_fd = -1, .path = file, .fd = open(file, O_RDONLY)};
    CHECK_INT(symbols_open(&src, &o.s), 0);
    return o;
}

static void close_opened(struct opened *o)
{
    CHECK(symbols_close(o->s) == NULL);
    if (o->root >= 0)
        close(o->root);
}

/* The only name at an address; its line must be that of `mark` in `source`, or unknown if that is NULL. */
static void check_one(struct symbols *s, uint64_t at, const char *name, const char *source, const char *mark)
{
    struct symbols_name n[MAX];

    if (!CHECK_INT(symbols_lookup(s, at, n, MAX), 1))
        return;
    CHECK_STR(n[0].name, name);
    CHECK(!n[0].inlined);
    if (!source) {
        CHECK(n[0].file == NULL && n[0].line == 0);
        return;
    }
    CHECK(n[0].file && strstr(n[0].file, source));
    CHECK_INT(n[0].line, line_of(source, mark));
}

/* Everything that debug info provides. The addresses are those of `twin`. */
static void check_full(struct symbols *s, const char *twin)
{
    struct symbols_name n[MAX];

    CHECK_INT(symbols_lookup(s, site(twin, "site_inner"), n, MAX), 3);
    CHECK_STR(n[0].name, "inner");
    CHECK_STR(n[1].name, "middle");
    CHECK_STR(n[2].name, "fixture_outer");
    CHECK(n[0].inlined && n[1].inlined && !n[2].inlined);
    CHECK_INT(n[0].line, line_of("code.c", "SITE(site_inner)"));
    CHECK_INT(n[1].line, line_of("code.c", "/* call_inner */"));
    CHECK_INT(n[2].line, line_of("code.c", "/* call_middle */"));
    CHECK(n[2].file && strstr(n[2].file, "/code.c"));
    CHECK_INT(symbols_lookup(s, site(twin, "site_middle"), n, MAX), 2);
    CHECK_STR(n[0].name, "middle");
    CHECK_STR(n[1].name, "fixture_outer");
    check_one(s, site(twin, "site_outer"), "fixture_outer", "code.c", "SITE(site_outer)");
    check_one(s, site(twin, "site_local"), "local_one", "code.c", "SITE(site_local)");
    check_one(s, site(twin, "site_weak"), "fixture_weak", "code.c", "SITE(site_weak)");
    check_one(s, site(twin, "site_versioned"), "fixture_versioned", "code.c", "SITE(site_versioned)");
    check_one(s, site(twin, "site_split"), "fixture_split", "code.c", "SITE(site_split)");
    check_one(s, site(twin, "site_cold"), "fixture_split", "code.c", "SITE(site_cold)");
    check_one(s, site(twin, "fixture_label"), "fixture_label", NULL, NULL);
    check_one(s, site(twin, "fixture_label") + 2, "fixture_label", NULL, NULL);
}

/* What the dynamic symbols alone provide: public functions, no lines, and nothing for the local one. */
static void check_dynamic(struct symbols *s, const char *twin)
{
    struct symbols_name n[MAX];

    check_one(s, site(twin, "site_inner"), "fixture_outer", NULL, NULL);
    check_one(s, site(twin, "site_weak"), "fixture_weak", NULL, NULL);
    check_one(s, site(twin, "site_versioned"), "fixture_versioned", NULL, NULL);
    CHECK_INT(symbols_lookup(s, site(twin, "site_local"), n, MAX), 0);
}

static void test_own_debug_info(void)
{
    static const char *const names[] = {"full.so",    "packed.so",  "nameless.so", "dwarf-2.so",
                                        "dwarf-3.so", "dwarf-4.so", "dwarf-5.so"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct opened o = open_here(names[i]);

        check_full(o.s, names[i]);
        close_opened(&o);
    }
}

static struct build_id read_build_id(const char *file)
{
    struct elf_module m;
    struct build_id id = {.len = 0};
    char path[4096];

    snprintf(path, sizeof(path), FIXTURES "/%s", file);
    if (CHECK_INT(elf_module_open(open(path, O_RDONLY), &m), 0)) {
        id = elf_module_build_id(&m);
        elf_module_close(&m);
    }
    return id;
}

static void test_build_id(void)
{
    static const char want[] = "\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff\x00\x11\x22\x33";
    struct build_id id = read_build_id("full.so");

    CHECK(id.len == sizeof(want) - 1 && memcmp(id.bytes, want, id.len) == 0);
    CHECK_INT(read_build_id("nameless.so").len, 0);
}

static void test_small_buffer(void)
{
    struct opened o = open_here("full.so");
    struct symbols_name n[MAX] = {{.name = "untouched"}};

    CHECK_INT(symbols_lookup(o.s, site("full.so", "site_inner"), n, 0), 0);
    CHECK_STR(n[0].name, "untouched");
    CHECK_INT(symbols_lookup(o.s, site("full.so", "site_inner"), n, 2), 2);
    CHECK_STR(n[0].name, "middle");
    CHECK_STR(n[1].name, "fixture_outer");
    close_opened(&o);
}

/* By symbol alone, repeatedly: the same name for every address of the function, and no inlined functions. */
static void test_function(void)
{
    static const char *const sites[][2] = {{"site_inner", "fixture_outer"},
                                           {"site_outer", "fixture_outer"},
                                           {"site_middle", "fixture_outer"},
                                           {"site_local", "local_one"},
                                           {"site_cold", "fixture_split"}};
    struct opened o = open_here("full.so");

    for (size_t i = 0; i < 2 * sizeof(sites) / sizeof(sites[0]); i++) {
        const char *const *want = sites[i % (sizeof(sites) / sizeof(sites[0]))];
        struct symbols_name n = {.name = "untouched"};

        CHECK(symbols_function(o.s, site("full.so", want[0]), &n));
        CHECK_STR(n.name, want[1]);
        CHECK(n.file == NULL && n.line == 0 && !n.inlined);
        n.name = "untouched";
        CHECK(!symbols_function(o.s, 0x40, &n));
        CHECK_STR(n.name, "untouched");
    }
    check_full(o.s, "full.so"); /* debug info is loaded on demand */
    close_opened(&o);
}

static void test_no_function(void)
{
    static const uint64_t at[] = {0, 1, 0x40, UINT64_MAX, UINT64_MAX - 1, 1ull << 40, 0x3000};
    struct opened o = open_here("full.so");
    struct symbols_name n[MAX];

    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
        CHECK_INT(symbols_lookup(o.s, at[i], n, MAX), 0);
    close_opened(&o);
}

static void test_stripped(void)
{
    struct opened o = open_here("stripped.so");

    check_dynamic(o.s, "full.so");
    close_opened(&o);
}

/* The same library, but its root has the debug file; a link to "/elsewhere" is relative to that root. */
static void test_debug_file_by_id(void)
{
    struct opened o = open_in("root", "lib/stripped.so");

    check_full(o.s, "full.so");
    close_opened(&o);
}

static void test_debug_file_by_link(void)
{
    static const char *const roots[] = {"link-beside", "link-.debug", "link-global"};

    for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
        struct opened o = open_in(roots[i], "/lib/nameless.so");

        check_full(o.s, "nameless.so");
        close_opened(&o);
    }
    /* A debug file of the right name with another checksum is not used. */
    struct opened o = open_in("link-wrong", "/lib/nameless.so");
    check_dynamic(o.s, "nameless.so");
    close_opened(&o);
}

/* Some files need a tool that may be missing; `tools/setup test` installs all but rustc. */
static bool was_built(const char *file)
{
    char path[4096];

    snprintf(path, sizeof(path), FIXTURES "/%s", file);
    if (access(path, R_OK) == 0)
        return true;
    fprintf(stderr, "%s: %s was not built, for want of a tool\n", test_now.running, file);
    return false;
}

static void test_compressed_symbols(void)
{
    struct opened o;

    if (!was_built("mini.so"))
        return;
    o = open_here("mini.so");

    check_one(o.s, site("full.so", "site_local"), "local_one", NULL, NULL);
    check_one(o.s, site("full.so", "site_weak"), "fixture_weak", NULL, NULL);
    close_opened(&o);
}

/* Every stub of a module has the name of the function that it calls; sections without stubs have none. */
static size_t count_stubs(const char *file, const char *name)
{
    static const char *const sections[] = {".plt", ".plt.sec", ".plt.got"};
    struct opened o = open_here(file);
    struct elf_module m;
    char path[4096];
    size_t found = 0;

    snprintf(path, sizeof(path), FIXTURES "/%s", file);
    CHECK_INT(elf_module_open(open(path, O_RDONLY), &m), 0);
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
        GElf_Shdr section;

        if (!elf_module_section(&m, sections[i], &section))
            continue;
        for (addr_t at = section.sh_addr; at < section.sh_addr + section.sh_size; at += 8) {
            struct symbols_name n[MAX];

            if (symbols_lookup(o.s, at, n, MAX) == 1 && strcmp(n[0].name, name) == 0)
                found++;
        }
    }
    elf_module_close(&m);
    close_opened(&o);
    return found;
}

static void test_stubs(void)
{
    CHECK_INT(count_stubs("full.so", "puts@plt"), 2); /* 16 bytes, looked up in steps of 8 */
    CHECK_INT(count_stubs("full.so", "system@plt"), 2);
    CHECK_INT(count_stubs("full.so", "__cxa_finalize@plt"), 1);
    CHECK(count_stubs("now.so", "puts@plt") >= 2);
    CHECK(count_stubs("now.so", "system@plt") >= 2);
}

static void test_ifunc(void)
{
    struct opened o = open_here("full.so");
    struct symbols_name n[MAX];
    int line = line_of("code.c", "return chosen;");

    CHECK_INT(symbols_lookup(o.s, site("full.so", "fixture_choose"), n, MAX), 1);
    CHECK_STR(n[0].name, "fixture_choose");
    CHECK(n[0].line == line || n[0].line == line + 1); /* GCC 10 gives both lines for the one address */
    close_opened(&o);
}

/*
 * A line program of DWARF 4: two sequences, the later one first, and several rows at one address. Of those, the last one
 * counts. There is no row between the sequences, and none for the discarded function at address 0.
 */
static const unsigned char program[] =
    "\x68\0\0\0\4\0\x27\0\0\0" /* length, version, length of the header from here */
    "\1\1\1\xfb\x0e\x0d"       /* instruction 1, operations 1, statement, line base -5, range 14, 13 opcodes */
    "\0\1\1\1\1\0\0\0\1\0\0\1" /* operands */
    "sub\0\0"                  /* directory 1 */
    "a.c\0\1\0\0/b.c\0\0\0\0\0"
    "\0\x09\2\0\x20\0\0\0\0\0\0\x14\x4c\2\4\0\1\1"             /* 0x2000: line 3; 0x2004: line 5; to 0x2008 */
    "\0\x09\2\0\x10\0\0\0\0\0\0\4\2\3\x1d\1\3\1\1\2\x10\0\1\1" /* 0x1000: file 2, line 31 */
    "\0\x09\2\0\0\0\0\0\0\0\0\1\2\x10\0\1\1";                  /* discarded */

static void check_line(const struct line_table *t, uint64_t vaddr, const char *file, int line)
{
    const char *name = NULL;
    uint64_t index;
    int found = 0;

    if (line_table_find(t, vaddr, &index, &found))
        name = line_table_file(t, index);
    CHECK(file ? name && strcmp(name, file) == 0 : !name);
    CHECK_INT(found, line);
}

static void test_line_program(void)
{
    struct line_sections s = {.line = {program, sizeof(program) - 1}};
    struct intern *names = intern_new();
    struct line_table t;

    CHECK_INT(line_table_bytes(&s, 0), sizeof(program) - 1);
    CHECK_INT(line_table_read(&t, &s, 0, "/build", names), 0);
    check_line(&t, 0x2000, "sub/a.c", 3);
    check_line(&t, 0x2003, "sub/a.c", 3);
    check_line(&t, 0x2007, "sub/a.c", 5);
    check_line(&t, 0x2008, NULL, 0);
    check_line(&t, 0x1000, "/b.c", 31);
    check_line(&t, 0x100f, "/b.c", 31);
    check_line(&t, 0x1010, NULL, 0);
    check_line(&t, 0x0fff, NULL, 0);
    check_line(&t, 4, NULL, 0);
    CHECK(line_table_file(&t, 0) == NULL && line_table_file(&t, UINT64_MAX) == NULL);
    line_table_clear(&t);
    intern_free(names);
}

/* Each byte of the program is damaged, and each is missing. */
static void test_damaged_line_program(void)
{
    static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff};
    unsigned char bytes[sizeof(program) - 1];
    struct intern *names = intern_new();
    struct line_sections s = {.line = {bytes, sizeof(bytes)}};
    struct line_table t;

    for (size_t i = 0; i < sizeof(bytes) * sizeof(values); i++) {
        memcpy(bytes, program, sizeof(bytes));
        bytes[i / sizeof(values)] = values[i % sizeof(values)];
        if (line_table_read(&t, &s, 0, NULL, names) < 0)
            CHECK(t.rows == NULL && t.files == NULL);
        line_table_clear(&t);
    }
    memcpy(bytes, program, sizeof(bytes));
    for (size_t len = 0; len < sizeof(bytes); len++) {
        uint32_t left = len >= 4 ? (uint32_t)len - 4 : 0;

        s.line = (struct line_section){bytes, len};
        CHECK_INT(line_table_read(&t, &s, 0, NULL, names), ERR_READ);
        memcpy(bytes, &left, sizeof(left));
        if (line_table_read(&t, &s, 0, NULL, names) == 0)
            line_table_clear(&t);
        memcpy(bytes, program, sizeof(left));
    }
    CHECK_INT(line_table_read(&t, &s, UINT64_MAX, NULL, names), ERR_READ);
    intern_free(names);
}

static void test_cplusplus(void)
{
    struct symbols_name n[MAX];
    struct opened o;

    if (!was_built("plus.so"))
        return;
    o = open_here("plus.so");
    check_one(o.s, site("plus.so", "site_method"), "shop::Basket<int>::add", "plus.cc", "SITE(site_method)");
    CHECK_INT(symbols_lookup(o.s, site("plus.so", "site_hidden"), n, MAX), 2);
    CHECK_STR(n[0].name, "shop::(anonymous namespace)::hidden");
    CHECK_STR(n[1].name, "shop::pay");
    CHECK_INT(symbols_lookup(o.s, site("plus.so", "site_lambda"), n, MAX), 1);
    CHECK_STR(n[0].name, "shop::pay(int)::{lambda(int)#1}::operator()");
    close_opened(&o);
}

static void test_rust(void)
{
    static const char *const files[] = {"rusty.so", "rusty-v0.so"};

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct opened o;

        if (!was_built(files[i]))
            continue;
        o = open_here(files[i]);
        check_one(o.s, site(files[i], "site_method"), i ? "<rusty::shop::Basket>::add" : "rusty::shop::Basket::add",
                  "rusty.rs", "site_method: nop");
        close_opened(&o);
    }
}

static void check_pyx(const struct symbols_name *n, const char *name, int line)
{
    CHECK_STR(n->name, name);
    CHECK_STR(n->file, "pkg/mod.pyx");
    CHECK_INT(n->line, line);
    CHECK(n->layer != CYTHON_NONE && !n->is_helper && !n->inlined);
}

static void check_cython(struct opened *o, const char *twin)
{
    struct symbols_name n[MAX], outer[MAX];

    CHECK_INT(symbols_lookup(o->s, site(twin, "site_cdef"), n, MAX), 1);
    check_pyx(&n[0], "pkg.mod.inner", 5);
    /* A body that is inlined into its wrapper counts as one call with it. */
    CHECK_INT(symbols_lookup(o->s, site(twin, "site_inlined_def"), n, MAX), 1);
    check_pyx(&n[0], "pkg.mod.load_data", 9);
    CHECK_INT(symbols_lookup(o->s, site(twin, "site_wrapper"), outer, MAX), 1);
    check_pyx(&outer[0], "pkg.mod.load_data", 8);
    CHECK(symbols_same_call(&outer[0], &n[0]) && !symbols_same_call(&n[0], &outer[0]));
    CHECK(!symbols_same_call(&n[0], &n[0]));
    CHECK_INT(symbols_lookup(o->s, site(twin, "site_first_method"), n, MAX), 1);
    check_pyx(&n[0], "pkg.mod.Load.data", 20);
    /* Named after its wrapper; below a comment that names no file. */
    CHECK_INT(symbols_lookup(o->s, site(twin, "site_generator"), n, MAX), 1);
    CHECK_STR(n[0].name, "pkg.mod.load_data");
    CHECK(n[0].file && strstr(n[0].file, "module.c"));
    CHECK_INT(symbols_lookup(o->s, site(twin, "site_helper"), n, MAX), 1);
    CHECK(n[0].is_helper && n[0].layer == CYTHON_NONE && strstr(n[0].file, "module.c"));
}

static void test_cython(void)
{
    struct opened o = open_here("module.so");

    check_cython(&o, "module.so");
    close_opened(&o);
    o = open_in("moved", "/lib/module.so"); /* the C file is not at its original path, but next to the module */
    check_cython(&o, "moved/lib/module.so");
    close_opened(&o);
}

static void check_cython_name(const char *symbol, const char *name, enum cython_layer layer)
{
    char got[DEMANGLE_ROOM] = "untouched";

    CHECK_INT(cython_name(symbol, NULL, got), layer);
    CHECK_STR(got, name);
}

static void test_cython_names(void)
{
    check_cython_name("__pyx_pw_3pkg_3mod_1both", "pkg.mod.both", CYTHON_WRAPPER);
    check_cython_name("__pyx_pw_3pkg_3mod_4load_data", "pkg.mod.load_data", CYTHON_WRAPPER);
    check_cython_name("__pyx_pf_3pkg_3mod_both", "pkg.mod.both", CYTHON_DEF);
    check_cython_name("__pyx_f_3pkg_3mod_6Worker_step", "pkg.mod.Worker.step", CYTHON_CDEF);
    check_cython_name("__pyx_f_6mtrand_cont0_array", "mtrand.cont0_array", CYTHON_CDEF);
    check_cython_name("__pyx_pf_3pkg_3mod_5Plain_10method_one_nested", "pkg.mod.Plain.method_one.nested", CYTHON_DEF);
    check_cython_name("__pyx_pf_3pkg_3mod_6Worker_4prop___get__", "pkg.mod.Worker.prop.__get__", CYTHON_DEF);
    check_cython_name("__pyx_getprop_3pkg_3mod_6Worker_prop", "pkg.mod.Worker.prop.__get__", CYTHON_WRAPPER);
    check_cython_name("__pyx_fuse_1_0__pyx_pw_8implicit_4_als_31_least_squares", "implicit._als._least_squares",
                      CYTHON_WRAPPER);
    check_cython_name("__pyx_gb_3pkg_3mod_8generator", "pkg.mod.generator", CYTHON_DEF);
    check_cython_name("__pyx_pymod_exec_mod", "mod.<module>", CYTHON_DEF);
    check_cython_name("__pyx_pymod_create", "untouched", CYTHON_NONE);
    check_cython_name("__pyx_fuse_", "untouched", CYTHON_NONE);
    check_cython_name("__pyx_pw_", "untouched", CYTHON_NONE);
    check_cython_name("__pyx_pw_99999999999999999999x", "x", CYTHON_WRAPPER);
    check_cython_name("PyObject_Call", "untouched", CYTHON_NONE);
}

static void check_demangled(const char *symbol, const char *name)
{
    char got[DEMANGLE_ROOM];

    CHECK_INT(demangle_name(symbol, got), strlen(name));
    CHECK_STR(got, name);
}

static void test_demangle(void)
{
    check_demangled("memcpy@@GLIBC_2.14", "memcpy");
    check_demangled("memcpy@GLIBC_2.2.5", "memcpy");
    check_demangled("f.constprop.0", "f");
    check_demangled("f.part.3.isra.12.cold", "f");
    check_demangled("f.lto_priv.0", "f");
    check_demangled("f.cold.5", "f");
    check_demangled("f.llvm.12345678901234567890", "f");
    check_demangled("f.12", "f");
    check_demangled("main.main", "main.main");
    check_demangled(".cold", ".cold");
    check_demangled("a.b.cold", "a.b");
    check_demangled("", "");
    check_demangled("_ZN3foo3barIiEEvT_.constprop.0", "foo::bar<int>");
    check_demangled("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back");
    check_demangled("_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE.llvm.77", "core::fmt::Formatter::write_str");
    check_demangled("_RNvCs1234_7mycrate3foo", "mycrate::foo");
    check_demangled(
        "_ZNSt17_Function_handlerIFviSt6vectorISsSaISsEESt3mapISsSt6vectorISsSaISsEESt4lessISsESaISt4pairIKSsS7_EEEE"
        "PS_E9_M_invokeERKSt9_Any_data",
        "std::_Function_handler<...>::_M_invoke");
    check_demangled(
        "_ZNSt17_Function_handlerIFviSt6vectorISsSaISsEESt3mapISsSt6vectorISsSaISsEESt4lessISsESaISt4pairIKSsS7_EEEE"
        "PS_ElsERKSt9_Any_data",
        "std::_Function_handler<...>::operator<<");
    check_demangled("_ZN", "_ZN");
    check_demangled("_Z", "_Z");
    check_demangled("_start", "_start");
    check_demangled("a\xff"
                    "b",
                    "a\xef\xbf\xbd"
                    "b");
}

/* Long names are truncated at a whole character; a mangled name that expands endlessly ends. */
static void test_demangle_bounds(void)
{
    char got[DEMANGLE_ROOM], big[8000] = "", *end = big;
    size_t len;

    for (size_t i = 0; i + 2 < sizeof(big); i += 2)
        memcpy(big + i, "\xc3\xa4", 3);
    len = demangle_name(big, got);
    CHECK_INT(len, strlen(got));
    CHECK(len > DEMANGLE_ROOM - 16 && strcmp(got + len - 5, "\xc3\xa4...") == 0);
    end += sprintf(end, "_Z1fI");
    for (int i = 0; i < 60; i++) /* pairs of pairs of pairs */
        end +=
            sprintf(end, i ? "4pairIS%c_S%c_E" : "4pairIiiE", i < 37 ? '0' + i % 10 : 'A', i < 37 ? '0' + i % 10 : 'A');
    sprintf(end, "EvT_");
    CHECK(demangle_name(big, got) > 0);
    memset(big, 'P', sizeof(big) - 1);
    memcpy(big, "_Z1f", 4);
    big[sizeof(big) - 1] = '\0';
    CHECK(demangle_name(big, got) > 0);
}

static void test_open_in_root(void)
{
    int (*const ways[])(int, const char *) = {open_in_root, open_in_root_without_openat2};
    int root = open("beneath", O_PATH | O_DIRECTORY);

    for (size_t i = 0; i < 2; i++) {
        static const char *const good[] = {"/a/file", "a/file", "/a/../a//./file", "/../../a/file",
                                           "/abs",    "/a/up",  "/dir/file",       "/a/many"};
        static const char *const bad[] = {"/a", "/a/fifo", "/loop",      "/out",      "/missing",
                                          "",   "/",       "/a/file2/x", "/proc-link"};

        for (size_t k = 0; k < sizeof(good) / sizeof(good[0]); k++) {
            int fd = ways[i](root, good[k]);
            char text[8] = "";

            CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) == 4 && strcmp(text, "good") == 0);
            if (fd < 0)
                printf("# way %zu, %s\n", i, good[k]);
            else
                close(fd);
        }
        for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++)
            CHECK_INT(ways[i](root, bad[k]), ERR_READ);
    }
    close(root);
    CHECK_INT(open_in_root(-1, "/proc/self/exe/none"), ERR_READ);
}

static void make_root_fixture(void)
{
    FILE *f;

    if (system("rm -rf beneath && mkdir -p beneath/a") != 0 || !(f = fopen("beneath/a/file", "w")))
        abort();
    fputs("good", f);
    fclose(f);
    if (symlink("/a/file", "beneath/abs") < 0 || symlink("../../../a/file", "beneath/a/up") < 0 ||
        symlink("/a", "beneath/dir") < 0 || symlink("loop", "beneath/loop") < 0 ||
        symlink("/etc/passwd", "beneath/out") < 0 || mkfifo("beneath/a/fifo", 0600) < 0 ||
        symlink("/proc/self/root/etc/passwd", "beneath/proc-link") < 0 ||
        symlink("//dir///../a/up", "beneath/a/many") < 0)
        abort();
    unlink("beneath/a/file2");
}

/* The vDSO of this process: an image in memory, with two names for each function. */
static void test_image(void)
{
    const unsigned char *vdso = (const unsigned char *)getauxval(AT_SYSINFO_EHDR);
    struct elf_file elf = {vdso, 4096 * 2};
    struct symbols_source src = {.root_fd = -1, .path = "[vdso]", .fd = -1, .image = vdso, .image_size = 8192};
    struct symbols *s;
    addr_t at;

    if (!vdso || elf_file_symbol(&elf, "__vdso_clock_gettime", &at) < 0)
        return; /* this kernel has none, or one of another shape */
    CHECK_INT(symbols_open(&src, &s), 0);
    check_one(s, at, "clock_gettime", NULL, NULL);
    CHECK(symbols_close(s) == NULL);
}

static void test_nothing(void)
{
    struct symbols_source none = {.root_fd = -1, .path = "/gone (deleted)", .fd = -1};
    struct symbols_source bad = {.root_fd = -1, .path = "x", .fd = -1, .image = "no ELF file at all", .image_size = 18};
    struct symbols_source source = {.root_fd = -1, .path = "x", .fd = open(SOURCES "/code.c", O_RDONLY)};
    struct symbols *s = NULL;
    struct symbols_name n[MAX];

    CHECK_INT(symbols_open(&bad, &s), ERR_READ);
    CHECK_INT(symbols_open(&source, &s), ERR_READ);
    CHECK(s == NULL);
    CHECK(fcntl(source.fd, F_GETFD) < 0); /* opened all the same */
    CHECK_INT(symbols_open(&none, &s), 0);
    CHECK_INT(symbols_lookup(s, 0x1000, n, MAX), 0);
    CHECK(symbols_close(s) == NULL);
    CHECK(symbols_close(NULL) == NULL);
}

/* A file that is truncated while it is open gives fewer names, and no SIGBUS. */
static void test_truncated_file(void)
{
    struct text t = file_read(FIXTURES "/full.so");
    uint64_t at = site("full.so", "site_inner");

    for (size_t len = 0; len < t.len; len += t.len / 50 + 1) {
        FILE *f = fopen("cut.so", "wb");
        struct symbols_source src = {.root_fd = -1, .path = "cut.so", .fd = -1};
        struct symbols_name n[MAX];
        struct symbols *s;

        if (!f || fwrite(t.bytes, 1, t.len, f) != t.len)
            abort();
        fclose(f);
        src.fd = open("cut.so", O_RDONLY);
        CHECK_INT(symbols_open(&src, &s), 0);
        CHECK_INT(truncate("cut.so", (off_t)len), 0);
        CHECK(symbols_lookup(s, at, n, MAX) <= 3);
        CHECK(symbols_close(s) == NULL);
    }
    free(t.bytes);
}

static void check_map(const char *text, uint64_t at, const char *name)
{
    struct perf_map *m = perf_map_new(text, strlen(text));

    CHECK(m != NULL);
    CHECK_STR(perf_map_find(m, at), name);
    CHECK(perf_map_free(m) == NULL);
}

static void test_perf_map(void)
{
    static const char map[] = "1000 100 first\n"
                              "2000 80 py::work:/srv/a b.py\n"
                              "nonsense\n"
                              "3000 \n"
                              "4000 0 empty\n"
                              "5000 zz bad\n"
                              "0x6000 0x10 prefixed\r\n"
                              "ffffffffffffffff ff wraps\n"
                              "11111111111111111 1 too long\n"
                              "1080 10 second\n"
                              "7000 100 old\n"
                              "7000 100 new\n"
                              "8000 10 cut off";

    check_map(map, 0xfff, NULL);
    check_map(map, 0x1000, "first");
    check_map(map, 0x107f, "first");
    check_map(map, 0x1080, "second");
    check_map(map, 0x108f, "second");
    check_map(map, 0x1090, "first");
    check_map(map, 0x10ff, "first");
    check_map(map, 0x1100, NULL);
    check_map(map, 0x2001, "py::work:/srv/a b.py");
    check_map(map, 0x4000, NULL);
    check_map(map, 0x5000, NULL);
    check_map(map, 0x600f, "prefixed");
    check_map(map, UINT64_MAX, NULL);
    check_map(map, 0x7050, "new");
    check_map(map, 0x8000, NULL);
    check_map("", 0, NULL);
    check_map("\n\n\n", 0, NULL);
    check_map("0 1 \xff\n", 0, "\xef\xbf\xbd");
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    make_root_fixture();
    TEST_RUN(test_own_debug_info);
    TEST_RUN(test_build_id);
    TEST_RUN(test_small_buffer);
    TEST_RUN(test_function);
    TEST_RUN(test_no_function);
    TEST_RUN(test_stripped);
    TEST_RUN(test_debug_file_by_id);
    TEST_RUN(test_debug_file_by_link);
    TEST_RUN(test_compressed_symbols);
    TEST_RUN(test_stubs);
    TEST_RUN(test_ifunc);
    TEST_RUN(test_line_program);
    TEST_RUN(test_damaged_line_program);
    TEST_RUN(test_cplusplus);
    TEST_RUN(test_rust);
    TEST_RUN(test_cython);
    TEST_RUN(test_cython_names);
    TEST_RUN(test_demangle);
    TEST_RUN(test_demangle_bounds);
    TEST_RUN(test_open_in_root);
    TEST_RUN(test_image);
    TEST_RUN(test_nothing);
    TEST_RUN(test_truncated_file);
    TEST_RUN(test_perf_map);
    return test_finish("test_symbols");
}
