/*
 * Finds CPython in a process: memory maps and memory -> struct python.
 */
#include "python/detect.h"

#include "base/log.h"
#include "python/debug_offsets.h"
#include "python/search.h"
#include "target/files.h"
#include "target/image.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct found {
    struct image image;
    addr_t runtime;     /* address of _PyRuntime, or 0 */
    addr_t interp_head; /* address of the pointer to the first interpreter, or 0 */
    addr_t current;     /* address of _PyThreadState_Current, or 0 */
    const char *how;    /* where it was found, for messages */
    struct debug_version version;
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* The program first (copy relocations put symbols of a library there), then libpython, then everything else. */
static int image_rank(const struct proc_map *map, const char *exe)
{
    if (strcmp(map->path, exe) == 0)
        return 0;
    return strncmp(base_name(map->path), "libpython", 9) == 0 ? 1 : 2;
}

static bool is_image_start(const struct proc_maps *maps, size_t i)
{
    const struct proc_map *map = &maps->items[i];

    return map->offset == 0 && map->readable && map->inode != 0 &&
           (i == 0 || maps->items[i - 1].inode != map->inode || maps->items[i - 1].offset != 0);
}

typedef bool (*image_test)(const struct files *files, struct mem *m, const struct image *img, struct found *f);

/* Runs `test` on each image in the order of image_rank() until it succeeds. */
static bool search_images(const struct files *files, struct mem *m, const struct proc_maps *maps, const char *exe,
                          image_test test, struct found *f)
{
    for (int rank = 0; rank <= 2; rank++)
        for (size_t i = 0; i < maps->n; i++) {
            struct image img;

            if (!is_image_start(maps, i) || image_rank(&maps->items[i], exe) != rank)
                continue;
            if (image_open(m, &maps->items[i], &img) == 0 && test(files, m, &img, f))
                return true;
        }
    return false;
}

static bool test_symbols(const struct files *files, struct mem *m, const struct image *img, struct found *f)
{
    (void)files;
    log_changed(LOG_LEVEL_DEBUG, "image", img->start ^ (uint64_t)files->pid, 1, "considering %s at %#llx, build ID %s",
                img->path, (unsigned long long)img->start, build_id_show(&img->id).text);
    if (image_symbol(m, img, "_PyRuntime", &f->runtime) < 0 &&
        image_symbol(m, img, "_PyThreadState_Current", &f->current) < 0)
        return false;
    f->image = *img;
    return true;
}

static bool test_file_symbols(const struct files *files, struct mem *m, const struct image *img, struct found *f)
{
    (void)m;
    if (image_file_symbol(files, img, "_PyRuntime", &f->runtime) < 0 &&
        image_file_symbol(files, img, "_PyThreadState_Current", &f->current) < 0)
        return false;
    f->image = *img;
    return true;
}

static bool test_search(const struct files *files, struct mem *m, const struct image *img, struct found *f)
{
    (void)files;
    if (search_runtime(m, img, &f->version, &f->runtime, &f->interp_head) < 0)
        return false;
    f->image = *img;
    return true;
}

/* pypy_execute_source belongs to the embedding API of PyPy, which is there in a static program, too. */
static bool test_pypy(const struct files *files, struct mem *m, const struct image *img, struct found *f)
{
    addr_t at;

    (void)files;
    if (strncmp(base_name(img->path), "libpypy", 7) != 0 && image_symbol(m, img, "pypy_execute_source", &at) < 0)
        return false;
    f->image = *img;
    return true;
}

/* "pypy", "pypy3.10", "pypy-c" */
static bool is_pypy_name(const char *name)
{
    const char *end = strncmp(name, "pypy", 4) == 0 ? name + 4 + strspn(name + 4, "0123456789.") : NULL;

    return end && (!*end || strcmp(end, "-c") == 0);
}

/* ERR_VERSION if the process runs PyPy, else ERR_NOT_PYTHON. */
static int refuse_pypy(const struct files *files, struct mem *m, const struct proc_maps *maps, struct err_note *note)
{
    struct found f = {0};
    char *exe = NULL;
    int r = ERR_NOT_PYTHON;

    files_exe_read(files, &exe);
    if (search_images(files, m, maps, exe ? exe : "", test_pypy, &f))
        r = err_because(note, ERR_VERSION,
                        &(struct err_facts){.reason = REASON_PYPY, .pid = files->pid, .path = f.image.path});
    else if (exe && is_pypy_name(base_name(exe)))
        r = err_because(note, ERR_VERSION, &(struct err_facts){.reason = REASON_PYPY, .pid = files->pid, .path = exe});
    free(exe);
    return r;
}

/* "libpython3.9.so.1.0", "python3.9": the last resort, since it lacks the patch level. */
static bool version_by_name(const char *path, struct debug_version *ret)
{
    const char *at = strstr(base_name(path), "python");
    int major, minor;

    if (!at || sscanf(at, "python%d.%d", &major, &minor) != 2)
        return false;
    *ret = (struct debug_version){.major = major, .minor = minor, .final = true};
    return true;
}

static bool find_version(const struct files *files, struct mem *m, struct found *f)
{
    unsigned char bytes[24];
    addr_t at;
    uint64_t hex;

    if (f->version.major)
        return true;
    if (f->runtime && mem_read(m, f->runtime, bytes, sizeof(bytes)) == 0 &&
        debug_offsets_version(bytes, sizeof(bytes), &f->version))
        return true;
    if ((image_symbol(m, &f->image, "Py_Version", &at) == 0 ||
         image_file_symbol(files, &f->image, "Py_Version", &at) == 0) &&
        mem_read_addr(m, at, &hex) == 0 && hex >> 24 == 3) {
        debug_offsets_split_version(hex, &f->version);
        log_changed(LOG_LEVEL_DEBUG, "python", f->image.start, hex, "version from Py_Version: %#llx",
                    (unsigned long long)hex);
        return true;
    }
    log_changed(LOG_LEVEL_DEBUG, "python", f->image.start, f->runtime,
                "neither debug offsets nor Py_Version: searching the version string in %s", f->image.path);
    return search_version(m, &f->image, &f->version) == 0 || version_by_name(f->image.path, &f->version);
}

/* 2.7 and 3.6: interp_head is a static variable, so only .symtab has it. Without .symtab, search the data for it. */
static int find_interp_head(const struct files *files, struct mem *m, struct found *f)
{
    if (image_file_symbol(files, &f->image, "interp_head", &f->interp_head) == 0)
        return 0;
    return search_interp_head(m, &f->image, layout_of(f->version.major, f->version.minor), &f->interp_head);
}

/* 2.7 and 3.6: the GIL consists of static variables of ceval.c, so only .symtab has them. */
static void find_gil_variables(const struct files *files, const struct found *f, struct python *py)
{
    image_file_symbol(files, &f->image, "gil_cond", &py->gil.cond);
    image_file_symbol(files, &f->image, "gil_mutex", &py->gil.mutex);
    image_file_symbol(files, &f->image, "switch_cond", &py->gil.switch_cond);
    image_file_symbol(files, &f->image, "switch_mutex", &py->gil.switch_mutex);
    image_file_symbol(files, &f->image, "interpreter_lock", &py->interpreter_lock);
    if (py->major == 2 && image_file_symbol(files, &f->image, "import_lock_thread", &py->import_lock_thread) == 0)
        image_file_symbol(files, &f->image, "import_lock", &py->import_lock);
    log_changed(LOG_LEVEL_DEBUG, "python", f->image.start ^ (uint64_t)files->pid, py->gil.cond | py->interpreter_lock,
                "pid %d: locks of the GIL: %s", (int)files->pid,
                py->gil.cond || py->interpreter_lock ? "in .symtab" : "unknown, no .symtab");
}

static int refuse_version(const struct debug_version *v, struct err_note *note)
{
    return err_because(note, ERR_VERSION,
                       &(struct err_facts){.reason = v->free_threaded ? REASON_FREE_THREADED : REASON_VERSION,
                                           .version = {v->major, v->minor, v->patch},
                                           .other = v->suffix});
}

/* Takes the layout from the table and overrides it with the debug offsets of the target, if it has any. */
static int fill_layout(struct mem *m, const struct found *f, struct python *py, struct err_note *note)
{
    const struct layout *row = layout_of(f->version.major, f->version.minor);
    unsigned char bytes[DEBUG_OFFSETS_BYTES];
    int r;

    log_changed(LOG_LEVEL_DEBUG, "layout", f->image.start, f->runtime, "row for %d.%d: %s%s", f->version.major,
                f->version.minor, row ? "built in" : "none",
                f->version.free_threaded ? "; this is a free-threaded build" : "");
    if (!row || f->version.free_threaded)
        return refuse_version(&f->version, note);
    py->layout = *row;
    if (row->major < 3 || row->minor < DEBUG_OFFSETS_FIRST_MINOR)
        return 0;
    /* Betas moved fields of _Py_DebugOffsets itself. A wrong answer is worse than none. */
    if (!f->version.final && strncmp(f->version.suffix, "rc", 2) != 0)
        return refuse_version(&f->version, note);
    r = mem_read(m, f->runtime, bytes, sizeof(bytes));
    if (r == 0 && memcmp(bytes, DEBUG_OFFSETS_COOKIE, 8) == 0)
        r = debug_offsets_apply(bytes, sizeof(bytes), &py->layout);
    log_changed(LOG_LEVEL_INFO, "layout", f->runtime, r, "debug offsets at %#llx: %s%s", (unsigned long long)f->runtime,
                r < 0 ? "refused: " : "",
                r < 0                                         ? err_name(r)
                : memcmp(bytes, DEBUG_OFFSETS_COOKIE, 8) == 0 ? "used"
                                                              : "none, using the built-in row");
    return r;
}

/* Checks that there is an interpreter with at least one thread. */
static int check_started(const struct python *py)
{
    addr_t interp, thread, back;

    if (mem_read_addr(py->mem, py->interp_head, &interp) < 0)
        return ERR_READ;
    for (int i = 0; i < PY_MAX_INTERPRETERS && interp; i++) {
        if (mem_read_addr(py->mem, interp + (addr_t)py->layout.in_threads, &thread) < 0)
            break;
        if (thread) /* an interpreter that does not run may have none */
            return mem_read_addr(py->mem, thread + (addr_t)py->layout.ts_interp, &back) < 0 || back != interp
                       ? ERR_STARTING
                       : 0;
        if (mem_read_addr(py->mem, interp + (addr_t)py->layout.in_next, &interp) < 0)
            break;
    }
    return ERR_STARTING;
}

/* A program that only links libpython, or that has finalized it, has no interpreter. */
static void note_not_initialized(const struct files *files, const struct found *f, const struct python *py,
                                 struct err_note *note)
{
    addr_t interp;

    if (mem_read_addr(py->mem, py->interp_head, &interp) == 0 && !interp)
        err_because(note, ERR_STARTING,
                    &(struct err_facts){.reason = REASON_NOT_INITIALIZED,
                                        .pid = files->pid,
                                        .path = f->image.path,
                                        .version = {py->major, py->minor, py->patch}});
}

static bool find_image(const struct files *files, struct mem *m, const struct proc_maps *maps, struct found *f)
{
    static const struct {
        image_test test;
        const char *how;
    } tests[] = {{test_symbols, "the dynamic symbols of"},
                 {test_search, "a scan of the data of"},
                 {test_file_symbols, "the symbol table of"}};
    char *exe = NULL;
    bool ok = false;

    files_exe_read(files, &exe);
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]) && !ok; i++) {
        f->how = tests[i].how;
        ok = search_images(files, m, maps, exe ? exe : "", tests[i].test, f);
        log_changed(LOG_LEVEL_DEBUG, "image", (uintptr_t)f->how ^ (uint64_t)files->pid, ok, "pid %d: by %s %s: %s",
                    (int)files->pid, f->how, ok ? f->image.path : "all images", ok ? "found" : "no interpreter");
    }
    free(exe);
    return ok;
}

static const char *describe_source(struct intern *names, const struct found *f)
{
    char text[4096 + 64];
    const char *s;

    snprintf(text, sizeof(text), "%s %.4096s", f->how, f->image.path);
    s = intern_str(names, text);
    return s ? s : "";
}

/* glibc 2.35 and later publish where each thread keeps its struct rseq (rseq(2)); cpu_id is its second word. The
 * dynamic loader defines the symbols. */
static int find_cpu_word(struct mem *m, const struct proc_maps *maps)
{
    struct image img;
    addr_t offset_at, size_at, offset;
    uint32_t size;

    for (size_t i = 0; i < maps->n; i++) {
        if (maps->items[i].offset || strncmp(base_name(maps->items[i].path), "ld-linux", 8) != 0)
            continue;
        if (image_open(m, &maps->items[i], &img) < 0 || image_symbol(m, &img, "__rseq_offset", &offset_at) < 0 ||
            image_symbol(m, &img, "__rseq_size", &size_at) < 0 || mem_read_addr(m, offset_at, &offset) < 0 ||
            mem_read(m, size_at, &size, sizeof(size)) < 0)
            return NO;
        /* Size 0: rseq is not registered. The offset is small and may be negative. */
        return size && (int64_t)offset > -65536 && (int64_t)offset < 65536 ? (int)(int64_t)offset + 4 : NO;
    }
    return NO;
}

int detect_python(const struct files *files, struct mem *mem, const struct proc_maps *maps, struct intern *names,
                  struct python *ret, struct err_note *note)
{
    struct python py = {.mem = mem, .names = names};
    struct found f = {0};
    int r;

    if (!find_image(files, mem, maps, &f))
        return refuse_pypy(files, mem, maps, note);
    log_changed(LOG_LEVEL_INFO, "python", files->pid, f.image.start, "pid %d: found by %s %s at %#llx, build ID %s",
                (int)files->pid, f.how, f.image.path, (unsigned long long)f.image.start,
                build_id_show(&f.image.id).text);
    if (!find_version(files, mem, &f))
        return ERR_STARTING;
    py.major = f.version.major;
    py.minor = f.version.minor;
    py.patch = f.version.patch;
    memcpy(py.suffix, f.version.suffix, sizeof(py.suffix));
    log_changed(LOG_LEVEL_INFO, "python", files->pid, f.image.start,
                "pid %d: version %d.%d.%d%s, _PyRuntime %#llx, _PyThreadState_Current %#llx", (int)files->pid, py.major,
                py.minor, py.patch, py.suffix, (unsigned long long)f.runtime, (unsigned long long)f.current);
    r = fill_layout(mem, &f, &py, note);
    if (r < 0)
        return r;
    py.runtime = f.runtime;
    py.current_thread = f.current;
    if (f.runtime)
        f.interp_head = f.runtime + (addr_t)py.layout.rt_interp_head;
    if (!f.interp_head && find_interp_head(files, mem, &f) < 0)
        return ERR_STARTING;
    py.interp_head = f.interp_head;
    if (!f.runtime)
        find_gil_variables(files, &f, &py);
    py.image = f.image.start;
    py.how = describe_source(names, &f);
    py.cpu_word = find_cpu_word(mem, maps);
    r = check_started(&py);
    if (r == ERR_STARTING)
        note_not_initialized(files, &f, &py, note);
    log_changed(LOG_LEVEL_INFO, "python", files->pid, py.interp_head + (addr_t)-r,
                "pid %d: interpreter list at %#llx: %s; rseq CPU number at pthread_t%+d%s", (int)files->pid,
                (unsigned long long)py.interp_head, r == 0 ? "has a thread" : err_name(r),
                py.cpu_word == NO ? 0 : py.cpu_word, py.cpu_word == NO ? " (unknown)" : "");
    if (r == 0)
        *ret = py;
    return r;
}
