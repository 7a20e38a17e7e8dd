/*
 * Core files from the corpus of the fuzz target, whose content is known (tests/fuzz/corpus/make.py); build IDs;
 * compressed files.
 */
#include "elf/build_id.h"
#include "target/core_file.h"
#include "target/files.h"
#include "test.h"

#include <errno.h>
#include <unistd.h>
#include <zlib.h>

static struct core_file *corpus(const char *name)
{
    char path[4096];
    struct core_file *core = NULL;
    struct err_note note;

    snprintf(path, sizeof(path), "%s/../fuzz/corpus/core/%s", test_now.dir ? test_now.dir : "tests/golden", name);
    CHECK_INT(core_file_open(path, &core, &note), 0);
    if (!core)
        exit(1);
    core->path = "core";
    return core;
}

static void test_kernel(void)
{
    struct core_file *core = corpus("kernel");
    const struct core_thread *t = core_file_thread(core, 100);

    CHECK(core->pid == 100 && core->n_threads == 2 && core->n_segments == 4 && core->n_mapped == 2);
    CHECK_STR(core->name, "python3");
    CHECK_STR(core->args, "python3 a.py ");
    if (CHECK(t != NULL)) {
        CHECK(t->signal == 11 && t->has_address && t->address == 8 && !t->sender && !t->in_syscall);
        CHECK(t->regs.r[REGS_PC] == 0x400100 && t->regs.r[REGS_SP] == 0x7ffc0000 && t->fs_base == 0x7000);
        CHECK(t == core_file_signalled(core) && core_file_was_active(core, t));
    }
    CHECK(core_file_thread_by_base(core, 0x8000) == core_file_thread(core, 101));
    CHECK(!core_file_was_active(core, core_file_thread(core, 101)));
    CHECK(!core_file_thread(core, 5) && !core_file_thread_by_base(core, 0));
    CHECK_STR(core_file_exe(core), "/usr/bin/python3");
    CHECK_STR(core->mapped[1].path, "/usr/lib/libpython3.so");
    CHECK(core->mapped[1].deleted && !core->mapped[0].deleted && core->n_modules == 2);
    core_file_free(core);
}

static void test_maps(void)
{
    struct core_file *core = corpus("gdb");
    struct proc_maps maps;

    CHECK(!core_file_signalled(core));
    CHECK_INT(core_file_maps(core, &maps), 0);
    /* The first mapping is not among the segments, only in the file note. */
    CHECK(maps.n == 4 && maps.items[0].start == 0x400000 && maps.items[0].readable && maps.items[0].offset == 0);
    CHECK_STR(maps.items[0].path, "/usr/bin/python3");
    CHECK(maps.items[1].start == 0x401000 && maps.items[1].inode == 0 && maps.items[1].writable);
    CHECK(maps.items[2].inode && maps.items[2].inode != maps.items[0].inode && maps.items[2].deleted);
    proc_maps_free(&maps);
    core_file_free(core);
    core = corpus("no-files"); /* an image is recognised by its header */
    CHECK_INT(core_file_maps(core, &maps), 0);
    CHECK(maps.n == 4 && maps.items[0].inode && !maps.items[1].inode && !maps.items[3].inode);
    CHECK_STR(core_file_exe(core), "");
    proc_maps_free(&maps);
    core_file_free(core);
}

static void test_memory(void)
{
    struct core_file *core = corpus("kernel");
    struct files files = {.root = -1};
    struct mem_core_missing lack;
    unsigned char bytes[2048];
    char *command = NULL;
    struct mem *m;

    CHECK_INT(mem_core_open(core, &files, &m), 0);
    CHECK_INT(mem_read(m, 0x400000, bytes, 1024), 0);
    CHECK(memcmp(bytes,
                 "\x7f"
                 "ELF",
                 4) == 0);
    CHECK(!mem_core_find_missing(m, &lack));
    CHECK_INT(mem_read(m, 0x401000, bytes, 65), ERR_READ); /* writable: not from the file */
    CHECK(!mem_core_find_missing(m, &lack));
    CHECK_INT(mem_read(m, 0x400000, bytes, 1025), ERR_READ); /* the rest is in the file, which does not exist here */
    CHECK(mem_core_find_missing(m, &lack) && lack.n == 1 && !lack.is_different);
    CHECK_STR(lack.path, "/usr/bin/python3");
    CHECK_INT(core_file_command(core, m, &command), 0);
    CHECK_STR(command, "python3 a.py");
    free(command);
    mem_close(m);
    core_file_free(core);
}

static void test_many_segments(void)
{
    struct core_file *core = corpus("wide");

    CHECK(core->n_segments == 4 && core->n_threads == 2);
    core_file_free(core);
    core = corpus("overlaps");
    for (size_t i = 1; i < core->n_segments; i++)
        CHECK(core->segments[i - 1].end <= core->segments[i].start);
    core_file_free(core);
}

static void test_build_id(void)
{
    static const unsigned char notes[] = "\4\0\0\0\4\0\0\0\1\0\0\0GNU\0abcd" /* another GNU note */
                                         "\4\0\0\0\3\0\0\0\3\0\0\0GNU\0\xab\xcd\xef\0";
    struct build_id id = {0}, other = {0};

    CHECK(build_id_from_notes(notes, sizeof(notes) - 1, &id) == 0 && id.len == 3);
    CHECK(build_id_equal(&id, &id) && !build_id_equal(&id, &other));
    for (size_t len = 0; len < 20 + 16 + 3; len++) {
        unsigned char *cut = malloc(len + 1);

        if (!cut)
            exit(1);
        memcpy(cut, notes, len);
        CHECK_INT(build_id_from_notes(cut, len, &other), ERR_READ);
        free(cut);
    }
}

static void write_file(const char *path, const void *bytes, size_t len)
{
    FILE *file = fopen(path, "wb");

    if (!file || fwrite(bytes, 1, len, file) != len || fclose(file) != 0)
        exit(1);
}

static void test_compressed(void)
{
    static const char text[] = "this is not a core file, but it is packed";
    static const char *const damaged[] = {"\x1f\x8b\x08garbage", "\x28\xb5\x2f\xfd garbage"};
    struct core_file *core;
    struct err_note note;
    gzFile packed = gzopen("packed", "wb");

    CHECK(packed && gzwrite(packed, text, sizeof(text)) == (int)sizeof(text) && gzclose(packed) == Z_OK);
    setenv("TMPDIR", ".", 1);
    CHECK_INT(core_file_open("packed", &core, &note), ERR_CORE);
    CHECK_INT(note.facts.reason, REASON_CORE_NOT_ELF);
    for (size_t i = 0; i < 2; i++) {
        write_file("packed", damaged[i], strlen(damaged[i]));
        CHECK_INT(core_file_open("packed", &core, &note), ERR_CORE);
        CHECK_INT(note.facts.reason, REASON_CORE_CORRUPT);
        CHECK_STR(note.facts.path, "packed");
        CHECK_STR(note.facts.other, i ? "zstd -d" : "gzip -d");
    }
    setenv("TMPDIR", "/nonexistent", 1);
    CHECK_INT(core_file_open("packed", &core, &note), ERR_CORE);
    CHECK(note.facts.reason == REASON_CORE_UNPACK && note.facts.error == ENOENT && note.facts.number == 0);
    CHECK_STR(note.facts.path, "packed");
    CHECK_STR(note.facts.other, "/nonexistent");
    unsetenv("TMPDIR");
    unlink("packed");
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    TEST_RUN(test_kernel);
    TEST_RUN(test_maps);
    TEST_RUN(test_memory);
    TEST_RUN(test_many_segments);
    TEST_RUN(test_build_id);
    TEST_RUN(test_compressed);
    return test_finish("test_core_file");
}
