/*
 * Core files: headers, notes, memory, and the search for a Python in it. Never opens another file.
 */
#include "fuzz.h"
#include "python/detect.h"
#include "python/threads.h"
#include "target/core_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void check_order(const struct core_file *core)
{
    for (size_t i = 0; i < core->n_segments; i++) {
        const struct core_segment *s = &core->segments[i];

        if (s->end <= s->start || s->size > s->end - s->start || (i && s[-1].end > s->start))
            abort();
        if (core_file_segment(core, s->start) != s || core_file_segment(core, s->end - 1) != s)
            abort();
        if (s->size && (s->offset > core->size || s->size > core->size - s->offset))
            abort();
    }
    for (size_t i = 0; i < core->n_mapped; i++) {
        const struct core_mapped *m = &core->mapped[i];

        if (m->end <= m->start || m->module >= core->n_modules || m->path[0] != '/' || (i && m[-1].end > m->start))
            abort();
    }
}

static void read_ends(const struct core_file *core, struct mem *m)
{
    unsigned char bytes[256];

    for (size_t i = 0; i < core->n_segments && i < 64; i++) {
        mem_read(m, core->segments[i].start, bytes, sizeof(bytes));
        mem_read(m, core->segments[i].end - 8, bytes, sizeof(bytes));
    }
    mem_read(m, 0, bytes, sizeof(bytes));
    mem_read(m, UINT64_MAX - 8, bytes, sizeof(bytes));
}

static void look_for_python(const struct core_file *core, const struct files *files, struct mem *m)
{
    struct intern *names = intern_new();
    struct py_threads threads = {0};
    struct proc_maps maps;
    struct err_note note;
    struct python py;

    if (names && core_file_maps(core, &maps) == 0) {
        if (detect_python(files, m, &maps, names, &py, &note) == 0)
            threads_read(&py, &threads);
        threads_free(&threads);
        proc_maps_free(&maps);
    }
    intern_free(names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct files files = {.root = -1};
    struct core_file *core;
    struct err_note note;
    char *command = NULL;
    struct mem *m;
    int fd = memfd_create("core", MFD_CLOEXEC);

    if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size))
        abort();
    if (core_file_open_fd(fd, "core", &core, &note) < 0)
        return 0;
    check_order(core);
    if (mem_core_open(core, &files, &m) == 0) {
        read_ends(core, m);
        if (core_file_command(core, m, &command) == 0 && strlen(command) > 3 * 128 * 1024)
            abort();
        free(command);
        core_file_exe(core);
        core_file_thread(core, 1);
        core_file_thread_by_base(core, 0x7000);
        core_file_signalled(core);
        look_for_python(core, &files, m);
        mem_close(m);
    }
    core_file_free(core);
    return 0;
}
