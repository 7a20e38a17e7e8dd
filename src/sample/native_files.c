/*
 * Asks the helper process about the files of modules. The functions named run_… run there.
 */
#include "sample/native_files.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/helper.h"
#include "elf/build_id.h"
#include "elf/frame_section.h"
#include "elf/symbol_address.h"
#include "sample/hidden_functions.h"
#include "sample/native_names.h"
#include "sample/shared_symbols.h"
#include "target/files.h"
#include "target/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_INLINED  16
#define MAX_IMAGE    (256 * 1024)
#define MAX_PERF_MAP ((size_t)64 * 1024 * 1024)
#define MAX_TRIES    3

/* ---- in the helper: the file of a module ---- */

/* How to find the file, and what it must contain. */
struct module_file {
    struct files files;
    const char *path, *map_file; /* map_file: "" if there is none */
    const unsigned char *page;   /* the first page in memory; NULL if it may change */
    struct build_id id;
};

static bool unpack_module(struct unpack *in, struct module_file *ret)
{
    const void *id;
    size_t len;

    files_unpack(in, &ret->files);
    ret->path = unpack_text(in);
    ret->map_file = unpack_text(in);
    ret->page = unpack_bytes(in, &len);
    if (len != MODULE_PAGE)
        ret->page = NULL;
    id = unpack_bytes(in, &ret->id.len);
    if (in->failed || !ret->path || !ret->map_file || ret->id.len > BUILD_ID_MAX)
        return false;
    memcpy(ret->id.bytes, id, ret->id.len);
    return true;
}

/* True when the file starts with the page that was in memory when the module was found. */
static bool has_first_page(const struct module_file *m, int fd)
{
    unsigned char page[MODULE_PAGE] = {0};

    return m->page && pread(fd, page, sizeof(page), 0) > 0 && memcmp(page, m->page, sizeof(page)) == 0;
}

/* A file that was replaced, or a library loaded in place of another, would give wrong names. */
static bool is_same_file(const struct module_file *m, int fd)
{
    unsigned char head[BUILD_ID_HEAD];
    struct build_id there;
    ssize_t got;

    if (has_first_page(m, fd))
        return true;
    if (!m->id.len)
        return !m->page;
    got = pread(fd, head, sizeof(head), 0);
    return got > 0 && build_id_from_file(&(struct elf_file){head, (size_t)got}, &there) == 0 &&
           build_id_equal(&m->id, &there);
}

/* map_files is the mapped file itself, even if its path was removed or replaced. It needs CAP_SYS_ADMIN or
 * CAP_CHECKPOINT_RESTORE. */
static int open_module(const struct module_file *m)
{
    for (int by_path = 0; by_path < 2; by_path++) {
        int fd = by_path          ? files_open(&m->files, m->path)
                 : m->map_file[0] ? open(m->map_file, O_RDONLY | O_CLOEXEC)
                                  : -1;

        if (fd >= 0 && is_same_file(m, fd))
            return fd;
        if (fd >= 0)
            close(fd);
    }
    return -1;
}

/* The target's root directory, where its debug files are; -1: ours. */
static int open_root(const struct files *f)
{
    char path[64];

    if (!f->pid)
        return f->root < 0 ? -1 : fcntl(f->root, F_DUPFD_CLOEXEC, 0);
    snprintf(path, sizeof(path), "/proc/%d/root", (int)proc_live_thread(f->pid));
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Runs `use` on the file. */
static int with_module(struct unpack *in, struct pack *out,
                       int (*use)(struct frame_section_source *src, struct unpack *in, struct pack *out))
{
    struct module_file m = {0};
    struct frame_section_source src = {.fd = -1, .root_fd = -1};
    int r = ERR_READ;

    if (unpack_module(in, &m)) {
        src.fd = open_module(&m);
        src.root_fd = open_root(&m.files);
        src.path = files_inside(&m.files, m.path);
        if (src.fd >= 0)
            r = use(&src, in, out);
    }
    if (src.fd >= 0)
        close(src.fd);
    if (src.root_fd >= 0)
        close(src.root_fd);
    files_close(&m.files);
    return r;
}

static int use_eh_frame(struct frame_section_source *src, struct unpack *in, struct pack *out)
{
    uint64_t addr, len;
    int r = frame_section_find_eh_frame(src, &addr, &len);

    (void)in;
    if (r == 0) {
        pack_number(out, addr);
        pack_number(out, len);
    }
    return r;
}

static int use_debug_frame(struct frame_section_source *src, struct unpack *in, struct pack *out)
{
    size_t max = (size_t)unpack_number(in), len;
    unsigned char *bytes;
    int r = frame_section_read_debug_frame(src, max, &bytes, &len);

    if (r == 0) {
        pack_bytes(out, bytes, len);
        free(bytes);
    }
    return r;
}

static int use_symbol(struct frame_section_source *src, struct unpack *in, struct pack *out)
{
    const char *name = unpack_text(in);
    uint64_t value;
    int r = name ? symbol_address_find(src->fd, name, &value) : ERR_READ;

    if (r == 0)
        pack_number(out, value);
    return r;
}

static int run_eh_frame(struct unpack *in, struct pack *out)
{
    return with_module(in, out, use_eh_frame);
}

static int run_debug_frame(struct unpack *in, struct pack *out)
{
    return with_module(in, out, use_debug_frame);
}

static int run_symbol(struct unpack *in, struct pack *out)
{
    return with_module(in, out, use_symbol);
}

static int run_perf_map(struct unpack *in, struct pack *out)
{
    struct files files;
    const char *path;
    struct stat st;
    char *text = NULL;
    ssize_t got = -1;
    int fd;

    files_unpack(in, &files);
    path = unpack_text(in);
    fd = path ? files_open_own(&files, path) : -1;
    files_close(&files);
    if (fd < 0)
        return ERR_READ;
    if (fstat(fd, &st) == 0 && st.st_size > 0 && (size_t)st.st_size <= MAX_PERF_MAP)
        text = malloc((size_t)st.st_size);
    if (text)
        got = pread(fd, text, (size_t)st.st_size, 0);
    close(fd);
    if (got > 0)
        pack_bytes(out, text, (size_t)got);
    free(text);
    return got > 0 ? 0 : ERR_READ;
}

/* ---- in the helper: symbols ---- */

/* The symbols that this helper has opened, by ID. */
static struct {
    struct shared_symbols shared;
    struct shared_module **items; /* ID 1 is the first; NULL: closed */
    size_t n, cap;
} opened;

static void close_listed(struct unpack *in)
{
    for (uint64_t n = unpack_number(in); n > 0 && !in->failed; n--) {
        uint64_t id = unpack_number(in);

        if (id == 0 || id > opened.n || !opened.items[id - 1])
            continue;
        shared_symbols_close(opened.items[id - 1]);
        opened.items[id - 1] = NULL;
    }
}

static struct shared_module *open_symbols(const struct module_file *m, const void *image, size_t image_len)
{
    struct symbols_source src = {.root_fd = open_root(&m->files), .path = m->path, .fd = -1};
    struct shared_module *module;

    if (image_len) {
        src.image = image;
        src.image_size = image_len;
    } else if (m->path[0] == '/') {
        src.path = files_inside(&m->files, m->path);
        src.fd = open_module(m);
    }
    module = shared_symbols_open(&opened.shared, &src);
    if (src.root_fd >= 0)
        close(src.root_fd);
    return module;
}

static int run_open(struct unpack *in, struct pack *out)
{
    struct shared_module *module = NULL;
    struct module_file m = {0};
    const void *image;
    size_t len;

    close_listed(in);
    image = unpack_bytes(in, &len);
    if (unpack_module(in, &m) && grow_array((void **)&opened.items, &opened.cap, opened.n + 1, sizeof(module)) == 0)
        module = open_symbols(&m, image, len);
    files_close(&m.files);
    if (!module)
        return ERR_READ;
    opened.items[opened.n++] = module;
    pack_number(out, opened.n);
    return 0;
}

struct lookup_options {
    const char *path;
    bool is_interpreter, show_hidden, symbols_only;
};

/* A hidden function needs neither line nor inlined calls. Reading debug info is the most expensive step. */
static size_t look_up(struct symbols *s, const struct lookup_options *o, uint64_t vaddr, struct symbols_name *found)
{
    bool has_symbol = (!o->show_hidden || o->symbols_only) && symbols_function(s, vaddr, found);

    if (o->symbols_only)
        return has_symbol;
    if (has_symbol && (found->is_helper || hidden_functions_match(found->name, o->path, o->is_interpreter)))
        return 1;
    return symbols_lookup(s, vaddr, found, MAX_INLINED);
}

static void pack_names(struct pack *out, const struct symbols_name *names, size_t n)
{
    pack_number(out, n);
    for (size_t i = 0; i < n; i++) {
        pack_text(out, names[i].name);
        pack_text(out, names[i].file);
        pack_number(out, (uint64_t)names[i].line);
        pack_number(out, (uint64_t)names[i].layer << 2 | (uint64_t)names[i].inlined << 1 | names[i].is_helper);
    }
}

static int run_lookup(struct unpack *in, struct pack *out)
{
    uint64_t id = unpack_number(in);
    struct lookup_options o = {.is_interpreter = unpack_number(in)};
    struct pack found = {0};
    struct symbols *s;

    o.show_hidden = unpack_number(in);
    o.symbols_only = unpack_number(in);
    o.path = unpack_text(in);
    if (id == 0 || id > opened.n || !opened.items[id - 1] || !o.path)
        return ERR_READ;
    s = opened.items[id - 1]->symbols;
    for (uint64_t n = unpack_number(in); n > 0 && !in->failed; n--) {
        struct symbols_name names[MAX_INLINED];
        size_t n_names = look_up(s, &o, unpack_number(in), names);

        pack_names(&found, names, n_names);
    }
    pack_number(out, symbols_in_memory(s));
    pack_bytes(out, found.bytes, found.len);
    out->failed |= found.failed;
    pack_free(&found);
    return 0;
}

/* ---- here ---- */

void native_files_free(struct native_files *f)
{
    free(f->closed);
    *f = (struct native_files){0};
}

static struct helper_about about_of(const struct native_names *names, const struct module *mod)
{
    return (struct helper_about){
        .pid = names->pid, .device = mod->path[0] == '/' ? mod->device : 0, .path = mod->path, .names = true};
}

static void pack_map_file(struct pack *p, pid_t pid, const struct module *mod)
{
    addr_t end = mod->n_segments ? mod->segments[0].end : mod->end;
    char path[96] = "";

    end = (end + 4095) & ~4095ull;
    if (pid)
        snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", (int)proc_live_thread(pid),
                 (unsigned long long)mod->start, (unsigned long long)end);
    pack_text(p, path);
}

static void pack_module(struct pack *p, struct native_names *names, const struct module *mod)
{
    unsigned char head[BUILD_ID_HEAD];
    struct elf_file file = {head, sizeof(head)};
    struct build_id id = {.len = 0};

    if (mod->path[0] == '/' &&
        (mem_read(names->mem, mod->start, head, sizeof(head)) < 0 || build_id_from_file(&file, &id) < 0))
        id.len = 0;
    files_pack(p, names->files);
    pack_text(p, mod->path);
    pack_map_file(p, names->pid, mod);
    pack_bytes(p, mod->first_page, mod->first_page ? MODULE_PAGE : 0);
    pack_bytes(p, id.bytes, id.len);
}

int native_files_find_eh_frame(void *arg, const struct module *mod, uint64_t *ret_addr, uint64_t *ret_len)
{
    struct helper_about about = about_of(arg, mod);
    struct helper_answer answer;
    struct pack in = {0};
    int r;

    pack_module(&in, arg, mod);
    r = helper_call(run_eh_frame, &in, &about, &answer);
    *ret_addr = unpack_number(&answer.out);
    *ret_len = unpack_number(&answer.out);
    helper_answer_free(&answer);
    pack_free(&in);
    return r == 0 ? 0 : ERR_READ;
}

static unsigned char *copy_bytes(struct helper_answer *answer, size_t *ret_len)
{
    const void *bytes = unpack_bytes(&answer->out, ret_len);
    unsigned char *copy = bytes ? malloc(*ret_len + 1) : NULL;

    if (copy)
        memcpy(copy, bytes, *ret_len);
    return copy;
}

int native_files_read_debug_frame(void *arg, const struct module *mod, size_t max, unsigned char **ret, size_t *ret_len)
{
    struct helper_about about = about_of(arg, mod);
    struct helper_answer answer;
    struct pack in = {0};
    unsigned char *bytes;

    pack_module(&in, arg, mod);
    pack_number(&in, max);
    bytes = helper_call(run_debug_frame, &in, &about, &answer) == 0 ? copy_bytes(&answer, ret_len) : NULL;
    helper_answer_free(&answer);
    pack_free(&in);
    if (bytes)
        *ret = bytes;
    return bytes ? 0 : ERR_READ;
}

int native_files_find_symbol(void *arg, const struct module *mod, const char *name, uint64_t *ret)
{
    struct helper_about about = about_of(arg, mod);
    struct helper_answer answer;
    struct pack in = {0};
    int r;

    pack_module(&in, arg, mod);
    pack_text(&in, name);
    r = helper_call(run_symbol, &in, &about, &answer);
    if (r == 0)
        *ret = unpack_number(&answer.out);
    helper_answer_free(&answer);
    pack_free(&in);
    return r == 0 ? 0 : ERR_READ;
}

char *native_files_perf_map(struct native_names *names, size_t *ret_len)
{
    char path[64], *text;
    struct helper_about about = {.pid = names->pid, .path = path, .names = true};
    struct helper_answer answer;
    struct pack in = {0};

    snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)names->inner_pid);
    files_pack(&in, names->files);
    pack_text(&in, path);
    text = helper_call(run_perf_map, &in, &about, &answer) == 0 ? (char *)copy_bytes(&answer, ret_len) : NULL;
    helper_answer_free(&answer);
    pack_free(&in);
    return text;
}

/* The symbols that the helper with this generation should close. */
static void pack_closed(struct pack *p, struct native_files *f, uint64_t generation)
{
    size_t n = f->closed_generation == generation ? f->n_closed : 0;

    pack_number(p, n);
    for (size_t i = 0; i < n; i++)
        pack_number(p, f->closed[i]);
    f->n_closed = 0;
}

/* The bytes of a module that is in memory only: what a JIT compiler registered, or the vdso. */
static void pack_image(struct pack *p, struct native_names *names, const struct module *mod)
{
    size_t len = mod->path[0] != '/' && mod->end - mod->start <= MAX_IMAGE ? mod->end - mod->start : 0;
    void *image = mod->image || !len ? NULL : malloc(len);

    if (mod->image)
        pack_bytes(p, mod->image, mod->image_len);
    else if (image && mem_read(names->mem, mod->start, image, len) == 0)
        pack_bytes(p, image, len);
    else
        pack_bytes(p, NULL, 0);
    free(image);
}

/* 0, or what helper_call returns. */
static int ensure_open(struct native_names *names, struct module *mod, struct native_symbols *s)
{
    struct helper_about about = about_of(names, mod);
    uint64_t generation = helper_generation();
    struct helper_answer answer;
    struct pack in = {0};
    int r;

    if (!generation)
        return HELPER_DIED;
    if (s->id && s->generation == generation)
        return 0;
    pack_closed(&in, &names->sampler->files, generation);
    pack_image(&in, names, mod);
    pack_module(&in, names, mod);
    r = helper_call(run_open, &in, &about, &answer);
    if (r == 0) {
        s->id = unpack_number(&answer.out);
        s->generation = generation;
    }
    helper_answer_free(&answer);
    pack_free(&in);
    return r;
}

/* Reading files takes a long time: give the target its core back first. */
static void leave_core(struct native_names *names)
{
    if (names->sampler->options.recording)
        cpu_affinity_leave(&names->sampler->pauser.affinity);
}

static int look_up_once(struct native_names *names, struct module *mod, struct native_symbols *s,
                        const uint64_t *vaddrs, size_t n, struct helper_answer *ret)
{
    struct helper_about about = about_of(names, mod);
    struct pack in = {0};
    int r;

    if (!s->in_memory)
        leave_core(names);
    r = ensure_open(names, mod, s);
    if (r < 0)
        return r;
    pack_number(&in, s->id);
    pack_number(&in, mod->start == names->interpreter);
    pack_number(&in, names->show_hidden);
    pack_number(&in, s->deaths > 0);
    pack_text(&in, mod->path);
    pack_number(&in, n);
    for (size_t i = 0; i < n; i++)
        pack_number(&in, vaddrs[i]);
    r = helper_call(run_lookup, &in, &about, ret);
    pack_free(&in);
    return r;
}

static struct native_symbols *symbols_of(struct native_names *names, struct module *mod)
{
    struct native_symbols *s = mod->user ? mod->user : calloc(1, sizeof(*s));

    if (s)
        s->sampler = names->sampler;
    mod->user = s;
    return s;
}

void native_files_lookup(struct native_names *names, struct module *mod, const uint64_t *vaddrs, size_t n,
                         struct native_lookup *ret)
{
    struct native_symbols *s = symbols_of(names, mod);

    *ret = (struct native_lookup){.n = 0};
    for (int i = 0; s && !s->failed && i < MAX_TRIES; i++) {
        int r = look_up_once(names, mod, s, vaddrs, n, &ret->answer);

        if (r == 0) {
            s->in_memory = unpack_number(&ret->answer.out);
            ret->names.at = unpack_bytes(&ret->answer.out, &ret->names.left);
            ret->names.failed = !ret->names.at;
            ret->n = n;
            return;
        }
        s->id = 0;
        s->deaths += r == HELPER_DIED;
        s->failed = r != HELPER_DIED || s->deaths > 1;
    }
}

size_t native_lookup_next(struct native_lookup *l, struct symbols_name *ret, size_t max)
{
    struct unpack *u = &l->names;
    size_t n;

    if (!l->n)
        return 0;
    l->n--;
    n = (size_t)unpack_number(u);
    for (size_t i = 0; i < n && i < max && !u->failed; i++) {
        uint64_t flags;

        ret[i].name = unpack_text(u);
        ret[i].file = unpack_text(u);
        ret[i].line = (int)unpack_number(u);
        flags = unpack_number(u);
        ret[i].inlined = flags & 2;
        ret[i].is_helper = flags & 1;
        ret[i].layer = (enum cython_layer)(flags >> 2);
        u->failed |= !ret[i].name;
    }
    return u->failed || n > max ? 0 : n;
}

void native_lookup_free(struct native_lookup *l)
{
    helper_answer_free(&l->answer);
    l->n = 0;
}

void native_files_close_module(void *user)
{
    struct native_symbols *s = user;
    struct native_files *f = &s->sampler->files;

    if (f->closed_generation != s->generation)
        f->n_closed = 0;
    f->closed_generation = s->generation;
    if (s->id && grow_array((void **)&f->closed, &f->cap_closed, f->n_closed + 1, sizeof(*f->closed)) == 0)
        f->closed[f->n_closed++] = s->id;
    free(s);
}
