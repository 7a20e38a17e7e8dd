/*
 * Looks up the functions at a code address, in ELF symbols, debug info or a perf map.
 */
#include "sample/native_names.h"

#include "base/clock.h"
#include "base/hash.h"
#include "elf/build_id.h"
#include "elf/perf_map.h"
#include "sample/hidden_functions.h"
#include "sample/shared_symbols.h"
#include "target/files.h"
#include "target/proc.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_INLINED  16
#define MAX_IMAGE    (256 * 1024)
#define MAX_PERF_MAP ((size_t)64 * 1024 * 1024)
#define PERF_MAP_NS  (200 * NS_PER_MS)

void native_names_close(struct native_names *names)
{
    for (size_t i = 0; i < names->n_chains; i++)
        free(names->chains[i]);
    free(names->chains);
    hash_table_free(&names->chain_index);
    perf_map_free(names->perf_map);
    if (names->root_fd >= 0 && names->pid)
        close(names->root_fd);
    names->chains = NULL;
    names->n_chains = names->cap_chains = 0;
}

void native_names_free_module(void *user)
{
    shared_symbols_close(user);
}

/* Opens the mapped file itself, even if its path was removed or replaced. Needs CAP_SYS_ADMIN or
 * CAP_CHECKPOINT_RESTORE. */
static int open_mapped(pid_t pid, const struct module *mod)
{
    char path[96];
    addr_t end = mod->n_segments ? mod->segments[0].end : mod->end;

    end = (end + 4095) & ~4095ull;
    snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", (int)proc_live_thread(pid),
             (unsigned long long)mod->start, (unsigned long long)end);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static bool read_build_id(struct mem *m, const struct module *mod, struct build_id *ret)
{
    unsigned char head[BUILD_ID_HEAD];
    struct elf_file file = {head, sizeof(head)};

    return mem_read(m, mod->start, head, sizeof(head)) == 0 && build_id_from_file(&file, ret) == 0;
}

/* True when the file starts with the page that was in memory when the module was found. */
static bool has_first_page(const struct module *mod, int fd)
{
    unsigned char page[MODULE_PAGE] = {0};

    return mod->first_page && pread(fd, page, sizeof(page), 0) > 0 && memcmp(page, mod->first_page, sizeof(page)) == 0;
}

/* A file that was replaced, or a library loaded in place of another, would give wrong names. */
static bool is_same_file(struct native_names *names, const struct module *mod, int fd)
{
    struct build_id here, there;
    unsigned char head[BUILD_ID_HEAD];
    ssize_t got;

    if (has_first_page(mod, fd))
        return true;
    if (!read_build_id(names->mem, mod, &here))
        return !mod->first_page;
    got = pread(fd, head, sizeof(head), 0);
    return got > 0 && build_id_from_file(&(struct elf_file){head, (size_t)got}, &there) == 0 &&
           build_id_equal(&here, &there);
}

int native_names_open_module(void *arg, const struct module *mod, const char **ret_path)
{
    struct native_names *names = arg;

    *ret_path = files_inside(names->files, mod->path);
    for (int by_path = 0; by_path < 2; by_path++) {
        int fd = by_path ? files_open(names->files, mod->path) : names->pid ? open_mapped(names->pid, mod) : -1;

        if (fd >= 0 && is_same_file(names, mod, fd))
            return fd;
        if (fd >= 0)
            close(fd);
    }
    return -1;
}

static struct symbols *module_symbols(struct native_names *names, struct module *mod)
{
    struct symbols_source src = {.root_fd = names->root_fd, .path = mod->path, .fd = -1};
    struct shared_module *shared = mod->user;
    void *image = NULL;

    if (shared)
        return shared->symbols;
    if (mod->image) {
        src.image = mod->image;
        src.image_size = mod->image_len;
    } else if (mod->path[0] == '/') {
        src.fd = native_names_open_module(names, mod, &src.path);
    } else if (mod->end - mod->start <= MAX_IMAGE && (image = malloc(mod->end - mod->start))) {
        if (mem_read(names->mem, mod->start, image, mod->end - mod->start) == 0) {
            src.image = image;
            src.image_size = mod->end - mod->start;
        }
    }
    mod->user = shared = shared_symbols_open(&names->sampler->symbols, &src);
    free(image);
    return shared ? shared->symbols : NULL;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

static const struct func *make_func(struct native_names *names, const char *name, const char *file, const char *path)
{
    struct intern *in = names->sampler->names;
    struct func key = {.name = intern_str(in, name),
                       .filename = intern_str(in, file && *file ? file : path),
                       .short_filename = intern_str(in, base_name(file && *file ? file : path)),
                       .module = intern_str(in, path)};

    if (!key.name || !key.filename || !key.short_filename || !key.module)
        return NULL;
    return sampler_func(names->sampler, &key);
}

static bool same_chain(const struct native_chain *a, const struct native_func *items, size_t n)
{
    if (a->n != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (a->items[i].func != items[i].func || a->items[i].line != items[i].line)
            return false;
    return true;
}

static const struct native_chain *chain_of(struct native_names *names, const struct native_func *items, size_t n)
{
    uint64_t hash = n;
    size_t step = 0;
    struct native_chain *c;
    uint32_t at;

    for (size_t i = 0; i < n; i++)
        hash = hash_mix(hash_mix(hash, (uint64_t)(uintptr_t)items[i].func), (uint64_t)items[i].line);
    while ((at = hash_table_next(&names->chain_index, hash, &step)) != HASH_TABLE_NONE)
        if (same_chain(names->chains[at], items, n))
            return names->chains[at];
    if (hash_table_reserve_item(&names->chain_index, (void **)&names->chains, &names->cap_chains, names->n_chains,
                                sizeof(struct native_chain *)) < 0)
        return NULL;
    c = malloc(sizeof(*c) + n * sizeof(*items));
    if (!c)
        return NULL;
    c->hash = hash;
    c->n = n;
    memcpy(c->items, items, n * sizeof(*items));
    names->chains[names->n_chains] = c;
    hash_table_add(&names->chain_index, hash, (uint32_t)names->n_chains++);
    return c;
}

/* CPython names code that runs a Python frame "py::", which is shown anyway: the trampolines of -X perf (3.12 and later)
 * and its JIT compiler's code. */
static bool is_python_code(const struct module *mod, const char *name)
{
    return !mod->is_elf && strncmp(name, "py::", 4) == 0;
}

static bool is_hidden(const struct native_names *names, const struct module *mod, const struct symbols_name *name)
{
    return name->is_helper || is_python_code(mod, name->name) ||
           hidden_functions_match(name->name, mod->path, mod->start == names->interpreter);
}

static int fill_named(struct native_names *names, const struct module *mod, const struct symbols_name *found, size_t n,
                      struct native_func *ret)
{
    bool in_python = mod->start == names->interpreter;

    for (size_t i = 0; i < n; i++) {
        ret[i] =
            (struct native_func){.func = make_func(names, found[i].name, found[i].file, mod->path),
                                 .line = found[i].line,
                                 .hidden = is_hidden(names, mod, &found[i]),
                                 .is_eval = in_python && hidden_functions_is_eval(found[i].name, names->is_python2),
                                 .is_greenlet_start = hidden_functions_is_greenlet_start(found[i].name),
                                 .symbols_id = found[i]};
        if (!ret[i].func)
            return ERR_NOMEM;
        ret[i].symbols_id.name = ret[i].func->name;
        ret[i].symbols_id.file = NULL;
    }
    return 0;
}

/* libfoo.so+0x1a2b: the start of the function, if known, so that all its addresses have the same name. */
static int fill_unnamed(struct native_names *names, const struct pc_entry *p, struct native_func *ret)
{
    const struct module *mod = p->module;
    addr_t at = (p->has_row ? p->row.function : p->pc) - mod->bias;
    char name[320];

    if (mod->is_elf)
        snprintf(name, sizeof(name), "%.256s+0x%llx", base_name(mod->path), (unsigned long long)at);
    else
        snprintf(name, sizeof(name), "[unnamed code]");
    *ret =
        (struct native_func){.func = make_func(names, name, NULL, mod->is_elf ? mod->path : "[memory]"),
                             .hidden = hidden_functions_match(NULL, mod->path, mod->start == names->interpreter),
                             .hidden_at_root = hidden_functions_is_libc(mod->path),
                             .hidden_if_calls_eval = !mod->is_elf}; /* a trampoline of the interpreter (-X perf_jit) */
    return ret->func ? 0 : ERR_NOMEM;
}

/* The target appends to its perf map while it runs. Read the file again when an address is not in it. */
static const char *look_up_perf_map(struct native_names *names, addr_t pc)
{
    const char *name = names->perf_map ? perf_map_find(names->perf_map, pc) : NULL;
    uint64_t now = clock_now_ns();
    char path[64], *text = NULL;
    struct stat st;
    int fd;

    if (name || !names->files || (names->perf_map_ns && now - names->perf_map_ns < PERF_MAP_NS))
        return name;
    names->perf_map_ns = now;
    snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)names->inner_pid);
    fd = files_open_own(names->files, path);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && st.st_size > 0 && (size_t)st.st_size <= MAX_PERF_MAP &&
        (text = malloc((size_t)st.st_size))) {
        ssize_t got = pread(fd, text, (size_t)st.st_size, 0);

        perf_map_free(names->perf_map);
        names->perf_map = perf_map_new(text, got > 0 ? (size_t)got : 0);
    }
    free(text);
    close(fd);
    return names->perf_map ? perf_map_find(names->perf_map, pc) : NULL;
}

/* Reading files takes a long time: give the target its core back first. */
static void leave_core(struct native_names *names)
{
    if (names->sampler->options.recording)
        cpu_affinity_leave(&names->sampler->pauser.affinity);
}

/* A hidden function needs neither line nor inlined calls. Reading debug info is the most expensive step. */
static size_t look_up_symbols(struct native_names *names, const struct module *mod, struct symbols *s, addr_t pc,
                              struct symbols_name *found)
{
    if (!names->show_hidden && symbols_function(s, pc - mod->bias, found) && is_hidden(names, mod, found))
        return 1;
    if (!symbols_in_memory(s))
        leave_core(names);
    return symbols_lookup(s, pc - mod->bias, found, MAX_INLINED);
}

static int resolve_place(struct native_names *names, struct pc_entry *p, struct native_func *items, size_t *ret_n)
{
    struct symbols_name found[MAX_INLINED];
    struct symbols *s;
    const char *perf;
    size_t n = 0;

    if (p->module->is_elf || p->module->image) {
        if (!p->module->user)
            leave_core(names);
        s = module_symbols(names, p->module);
        n = s ? look_up_symbols(names, p->module, s, p->pc, found) : 0;
    }
    if (!n && !p->module->is_elf && (perf = look_up_perf_map(names, p->pc))) {
        *items = (struct native_func){.func = make_func(names, perf, NULL, "[JIT]"),
                                      .hidden = is_python_code(p->module, perf)};
        *ret_n = 1;
        return items->func ? 0 : ERR_NOMEM;
    }
    *ret_n = n ? n : 1;
    return n ? fill_named(names, p->module, found, n, items) : fill_unnamed(names, p, items);
}

void native_names_warm_up(struct native_names *names, struct module *mod)
{
    struct symbols *s = mod->is_elf ? module_symbols(names, mod) : NULL;
    struct symbols_name found[MAX_INLINED];

    if (s && mod->n_code)
        symbols_lookup(s, mod->code[0].start - mod->bias, found, MAX_INLINED);
}

const struct native_chain *native_names_of(struct native_names *names, struct pc_entry *p)
{
    struct native_func items[MAX_INLINED];
    size_t n;

    if (!p->user && resolve_place(names, p, items, &n) == 0)
        p->user = chain_of(names, items, n);
    return p->user;
}
