/*
 * The memory of a core file behind struct mem.
 *
 * A core file omits the read-only parts of programs and libraries. Those are read from the mapped files
 * if the files have not changed: equal build ids or, without build ids, equal program headers.
 */
#include "base/log.h"
#include "elf/build_id.h"
#include "target/core_file.h"
#include "target/files.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_OPEN 128
#define PAGE     4096ull

enum module_state { MODULE_NEW, MODULE_GOOD, MODULE_MISSING, MODULE_DIFFERENT };

struct module {
    enum module_state state;
    int fd; /* -1: not open now, even if the file is good */
    bool has_code;
    bool missing;
    addr_t start; /* where its first bytes are mapped; 0: nowhere */
};

struct mem_core {
    struct mem mem;
    const struct core_file *core;
    const struct files *files;
    struct module *modules;
    size_t open[MAX_OPEN]; /* ring of open modules: number + 1; 0: empty */
    size_t next_open;
    const struct core_mapped *first_missing;
    size_t n_missing;
};

/* The first bytes of a module, from the core file or from a file. */
struct head {
    unsigned char bytes[BUILD_ID_HEAD];
    size_t len;
};

static void read_head(int fd, struct head *ret)
{
    ssize_t n = pread(fd, ret->bytes, sizeof(ret->bytes), 0);

    ret->len = n > 0 ? (size_t)n : 0;
}

/* Compares the program headers: strip changes other parts of the ELF header, but not these. */
static bool has_same_program_headers(const struct head *a, const struct head *b)
{
    Elf64_Ehdr x, y;
    size_t len;

    memcpy(&x, a->bytes, sizeof(x));
    memcpy(&y, b->bytes, sizeof(y));
    len = (size_t)x.e_phnum * sizeof(Elf64_Phdr);
    if (x.e_phnum != y.e_phnum || x.e_phoff != y.e_phoff || x.e_entry != y.e_entry || x.e_phoff > sizeof(a->bytes))
        return false;
    if (x.e_phoff > a->len || len > a->len - x.e_phoff || x.e_phoff > b->len || len > b->len - x.e_phoff)
        return true; /* not readable: assume that they are equal */
    return memcmp(a->bytes + x.e_phoff, b->bytes + x.e_phoff, len) == 0;
}

static bool is_same_file(const struct core_file *core, addr_t start, int fd)
{
    struct head was, is;
    struct build_id was_id, is_id;
    struct elf_file was_file = {was.bytes, 0}, is_file = {is.bytes, 0};

    read_head(fd, &is);
    was.len = start ? core_file_read(core, start, was.bytes, sizeof(was.bytes)) : 0;
    was_file.len = was.len;
    is_file.len = is.len;
    /* Only ELF files are useful here, and we must not expose the contents of others. */
    if (!elf_file_valid(&is_file))
        return false;
    if (!elf_file_valid(&was_file))
        return was.len == 0;
    if (build_id_from_file(&was_file, &was_id) == 0 && build_id_from_file(&is_file, &is_id) == 0)
        return build_id_equal(&was_id, &is_id);
    return has_same_program_headers(&was, &is);
}

static void close_module(struct mem_core *c, size_t number)
{
    if (number && c->modules[number - 1].fd >= 0) {
        close(c->modules[number - 1].fd);
        c->modules[number - 1].fd = -1;
    }
}

/* Ignore mapped data files. A program or library has executable segments or starts with the ELF magic. */
static bool is_image(const struct mem_core *c, const struct module *module)
{
    char magic[SELFMAG];

    return module->has_code || (module->start && core_file_read(c->core, module->start, magic, SELFMAG) == SELFMAG &&
                                memcmp(magic, ELFMAG, SELFMAG) == 0);
}

static void note_missing(struct mem_core *c, const struct core_mapped *m)
{
    struct module *module = &c->modules[m->module];

    if (!module->missing && is_image(c, module)) {
        c->n_missing++;
        if (!c->first_missing)
            c->first_missing = m;
    }
    module->missing = true;
}

/* The open file of a module, or -1. */
static int module_fd(struct mem_core *c, const struct core_mapped *m)
{
    struct module *module = &c->modules[m->module];

    if (module->state == MODULE_MISSING || module->state == MODULE_DIFFERENT || module->fd >= 0)
        return module->fd;
    module->fd = files_open_checked(c->files, m->path);
    if (module->fd < 0)
        module->state = MODULE_MISSING;
    else if (module->state == MODULE_NEW)
        module->state = is_same_file(c->core, module->start, module->fd) ? MODULE_GOOD : MODULE_DIFFERENT;
    log_often(LOG_LEVEL_DEBUG, "memory", m->module, "not in the core file, from %s: %s", m->path,
              module->state == MODULE_GOOD        ? "read"
              : module->state == MODULE_DIFFERENT ? "another file"
                                                  : "missing");
    if (module->state != MODULE_GOOD) {
        if (module->fd >= 0)
            close(module->fd);
        module->fd = -1;
        return -1;
    }
    close_module(c, c->open[c->next_open]);
    c->open[c->next_open] = m->module + 1;
    c->next_open = (c->next_open + 1) % MAX_OPEN;
    return module->fd;
}

/* Reads from the mapped file; returns 0 if it is not available. */
static size_t read_mapped(struct mem_core *c, addr_t addr, void *buf, size_t len)
{
    const struct core_mapped *m = core_file_mapped(c->core, addr);
    const struct core_segment *s = core_file_segment(c->core, addr);
    uint64_t offset;
    addr_t end;
    ssize_t n;
    int fd;

    /* Writable memory may differ from the file. */
    if (!m || (s && s->writable) || __builtin_add_overflow(m->offset, addr - m->start, &offset) || offset > INT64_MAX)
        return 0;
    if (len > m->end - addr)
        len = m->end - addr;
    /* Stop at the end of the segment or page: the core file may have what follows. */
    end = s ? s->end : (addr | (PAGE - 1)) + 1;
    if (len > end - addr)
        len = end - addr;
    fd = module_fd(c, m);
    if (fd < 0) {
        note_missing(c, m);
        return 0;
    }
    do
        n = pread(fd, buf, len, (off_t)offset);
    while (n < 0 && errno == EINTR);
    return n > 0 ? (size_t)n : 0;
}

static bool read_span(struct mem_core *c, const struct mem_span *span)
{
    size_t done = 0;

    while (done < span->len) {
        addr_t at = span->addr + done;
        char *to = (char *)span->buf + done;
        size_t n = core_file_read(c->core, at, to, span->len - done);

        if (!n)
            n = read_mapped(c, at, to, span->len - done);
        if (!n || at + n < at)
            return false;
        done += n;
    }
    return true;
}

static size_t core_readv(struct mem *m, const struct mem_span *spans, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!read_span((struct mem_core *)m, &spans[i]))
            return i;
    return n;
}

static struct mem *core_close(struct mem *m)
{
    struct mem_core *c = (struct mem_core *)m;

    for (size_t i = 0; i < MAX_OPEN; i++)
        close_module(c, c->open[i]);
    free(c->modules);
    free(c);
    return NULL;
}

static const struct mem_ops core_ops = {.readv = core_readv, .close = core_close};

static void init_module(struct mem_core *c, const struct core_mapped *m)
{
    struct module *module = &c->modules[m->module];
    const struct core_segment *s = core_file_segment(c->core, m->start);

    if (m->offset == 0 && !module->start)
        module->start = m->start;
    module->has_code |= s && s->executable;
}

int mem_core_open(const struct core_file *core, const struct files *files, struct mem **ret)
{
    struct mem_core *c = calloc(1, sizeof(*c));

    if (c)
        c->modules = calloc(core->n_modules + 1, sizeof(*c->modules));
    if (!c || !c->modules) {
        free(c);
        return ERR_NOMEM;
    }
    c->mem.ops = &core_ops;
    c->core = core;
    c->files = files;
    for (size_t i = 0; i < core->n_modules; i++)
        c->modules[i].fd = -1;
    for (size_t i = 0; i < core->n_mapped; i++)
        init_module(c, &core->mapped[i]);
    *ret = &c->mem;
    return 0;
}

void mem_core_check_file(struct mem *m, const char *path)
{
    struct mem_core *c = (struct mem_core *)m;

    for (size_t i = 0; i < c->core->n_mapped; i++)
        if (strcmp(c->core->mapped[i].path, path) == 0) {
            if (module_fd(c, &c->core->mapped[i]) < 0)
                note_missing(c, &c->core->mapped[i]);
            return;
        }
}

bool mem_core_find_missing(const struct mem *m, struct mem_core_missing *ret)
{
    const struct mem_core *c = (const struct mem_core *)m;

    if (!c->first_missing)
        return false;
    *ret = (struct mem_core_missing){.path = c->first_missing->path,
                                     .is_different = c->modules[c->first_missing->module].state == MODULE_DIFFERENT,
                                     .n = c->n_missing};
    return true;
}
