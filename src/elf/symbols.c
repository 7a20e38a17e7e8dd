/*
 * Combines all sources of symbols. Slow, so never call it while the target is paused. Opening a module is cheap: the
 * first lookup searches for the debug file and sorts the symbols, and the first one that needs debug info reads it.
 */
#include "elf/symbols.h"

#include "base/err.h"
#include "base/hash.h"
#include "base/intern.h"
#include "base/log.h"
#include "base/utf8.h"
#include "elf/cython_module.h"
#include "elf/debug_file.h"
#include "elf/debug_info.h"
#include "elf/plt.h"
#include "elf/symbol_table.h"

#include <stdlib.h>
#include <string.h>

#define FRAMES_MAX 64
#define SLOTS      512
#define FILE_MAX   4096
#define IMAGE_MAX  ((size_t)64 << 20)

/* A symbol and the name displayed for it. */
struct shown {
    const char *raw; /* NULL if the slot is empty */
    const char *name;
    enum cython_layer layer;
    bool is_helper;
};

struct symbols {
    int root_fd;
    char *path;
    struct elf_module main, debug, minidebug; /* `elf` is NULL if there is no such file */
    char *debug_path;                         /* of `debug` */
    bool symbols_ready, debug_info_ready;
    struct symbol_table *table;
    struct debug_info *info;
    struct cython_module *cython;
    struct intern *texts;
    struct shown shown[SLOTS];
};

static int open_main(const struct symbols_source *src, struct elf_module *ret)
{
    void *copy;

    if (src->fd >= 0)
        return elf_module_open(src->fd, ret);
    if (!src->image)
        return 0;
    copy = src->image_size <= IMAGE_MAX ? malloc(src->image_size + 1) : NULL;
    if (!copy)
        return ERR_READ;
    memcpy(copy, src->image, src->image_size);
    return elf_module_open_image(copy, src->image_size, ret);
}

int symbols_open(const struct symbols_source *src, struct symbols **ret)
{
    struct elf_module none = {.fd = -1}, module = none;
    struct symbols *s;

    if (open_main(src, &module) < 0)
        return ERR_READ;
    s = calloc(1, sizeof(*s));
    if (!s) {
        elf_module_close(&module);
        return ERR_NOMEM;
    }
    s->main = module;
    s->debug = s->minidebug = none;
    s->root_fd = src->root_fd;
    s->path = strdup(src->path ? src->path : "");
    s->texts = intern_new();
    if (!s->path || !s->texts) {
        symbols_close(s);
        return ERR_NOMEM;
    }
    *ret = s;
    return 0;
}

struct symbols *symbols_close(struct symbols *s)
{
    if (!s)
        return NULL;
    cython_module_free(s->cython);
    debug_info_free(s->info);
    symbol_table_free(s->table);
    elf_module_close(&s->minidebug);
    elf_module_close(&s->debug);
    elf_module_close(&s->main);
    intern_free(s->texts);
    free(s->debug_path);
    free(s->path);
    free(s);
    return NULL;
}

/* A full .symtab contains all symbols of the others. Without one, combine the smaller tables. */
static void fill_table(struct symbols *s)
{
    if (s->debug.elf && symbol_table_add(s->table, &s->debug, SHT_SYMTAB) > 0)
        return;
    if (symbol_table_add(s->table, &s->main, SHT_SYMTAB) > 0)
        return;
    if (debug_file_open_minidebug(&s->main, &s->minidebug) == 0)
        symbol_table_add(s->table, &s->minidebug, SHT_SYMTAB);
    symbol_table_add(s->table, &s->main, SHT_DYNSYM);
}

static bool has_debug_info(const struct elf_module *m)
{
    GElf_Shdr section;

    return m->elf && elf_module_section(m, ".debug_info", &section) && section.sh_type != SHT_NOBITS;
}

static void load_symbols(struct symbols *s)
{
    char debug_path[DEBUG_FILE_PATH_ROOM];

    struct build_id id = s->main.elf ? elf_module_build_id(&s->main) : (struct build_id){.len = 0};

    s->symbols_ready = true;
    log_debug("symbols", "%s: build ID %s%s", s->path, build_id_show(&id).text,
              s->main.elf ? "" : ", no file: functions have no names");
    if (!s->main.elf)
        return;
    if (!has_debug_info(&s->main) && debug_file_find(s->root_fd, s->path, &s->main, &s->debug, debug_path) == 0)
        s->debug_path = strdup(debug_path);
    s->table = symbol_table_new();
    if (s->table) {
        fill_table(s);
        if (symbol_table_sort(s->table) < 0)
            s->table = symbol_table_free(s->table);
    }
    log_debug("symbols", "%s: %s, debug file %s", s->path,
              has_debug_info(&s->main) ? "has debug info" : "no debug info", s->debug_path ? s->debug_path : "none");
    s->cython = cython_module_new(s->root_fd, s->path, s->table);
}

static void load_debug_info(struct symbols *s)
{
    struct elf_module *info = s->debug.elf ? &s->debug : &s->main;
    const char *path = s->debug.elf ? s->debug_path : s->path;
    struct elf_module alt;

    s->debug_info_ready = true;
    if (path && has_debug_info(info))
        s->info = debug_info_new(info, debug_file_find_alt(s->root_fd, path, info, &alt) == 0 ? &alt : NULL);
}

/* The displayed name of a symbol. Cached, because profiles repeat the same functions. */
static const struct shown *show(struct symbols *s, const char *raw)
{
    struct shown *slot = &s->shown[hash_bytes(raw, strlen(raw)) % SLOTS];
    char name[DEMANGLE_ROOM];

    if (slot->raw && strcmp(slot->raw, raw) == 0)
        return slot;
    if (demangle_name(raw, name) == 0)
        return NULL;
    *slot = (struct shown){.is_helper = cython_is_helper(name)};
    if (s->cython)
        slot->layer = cython_module_name(s->cython, name, name);
    slot->name = intern_str(s->texts, name);
    slot->raw = intern_str(s->texts, raw);
    if (slot->name && slot->raw)
        return slot;
    slot->raw = NULL;
    return NULL;
}

static const char *clean_file(struct symbols *s, const char *file)
{
    char text[3 * FILE_MAX];
    size_t len = strnlen(file, FILE_MAX);

    return intern_bytes(s->texts, text, utf8_clean(file, len, text));
}

/* Makes one entry of the list. Returns false if there is no name. */
static bool name_frame(struct symbols *s, const char *raw, const struct debug_frame *frame, struct symbols_name *ret)
{
    const struct shown *shown = raw ? show(s, raw) : NULL;
    const char *file = frame->file;
    int line = frame->line;

    if (!shown)
        return false;
    if (shown->layer != CYTHON_NONE && file)
        cython_module_line(s->cython, &file, &line);
    *ret = (struct symbols_name){
        .name = shown->name,
        .file = file ? clean_file(s, file) : NULL,
        .line = file ? line : 0,
        .inlined = true,
        .is_helper = shown->is_helper,
        .layer = shown->layer,
    };
    return true;
}

bool symbols_same_call(const struct symbols_name *outer, const struct symbols_name *inner)
{
    return outer->layer != CYTHON_NONE && inner->layer > outer->layer && strcmp(outer->name, inner->name) == 0;
}

/* PLT stubs have no debug info. They are named after the function they call. */
static bool name_plt_stub(struct symbols *s, uint64_t vaddr, struct symbols_name *ret)
{
    char raw[SYMBOL_TABLE_NAME_ROOM], name[DEMANGLE_ROOM + 4];
    size_t len;

    if (!plt_find(&s->main, s->table, vaddr, raw) || (len = demangle_name(raw, name)) == 0)
        return false;
    memcpy(name + len, "@plt", sizeof("@plt"));
    *ret = (struct symbols_name){.name = intern_str(s->texts, name)};
    return ret->name != NULL;
}

/* Names the frames found in debug info. The outermost gets the name of its symbol, if it has one. */
static size_t list_names(struct symbols *s, uint64_t vaddr, struct symbols_name names[FRAMES_MAX])
{
    struct debug_frame frames[FRAMES_MAX] = {{NULL, NULL, 0}};
    char symbol[SYMBOL_TABLE_NAME_ROOM];
    uint64_t start;
    bool found = s->table && symbol_table_find(s->table, vaddr, &start, symbol);
    size_t n_frames = s->info ? debug_info_find(s->info, vaddr, frames, FRAMES_MAX) : 0;
    size_t n = 0;

    if (n_frames == 0)
        n_frames = 1;
    for (size_t i = 0; i < n_frames; i++) {
        const char *raw = i + 1 == n_frames && found ? symbol : frames[i].name;

        if (!name_frame(s, raw, &frames[i], &names[n]))
            continue;
        if (n > 0 && symbols_same_call(&names[n], &names[n - 1]))
            continue;
        n++;
    }
    if (n > 0)
        names[n - 1].inlined = false;
    return n;
}

bool symbols_in_memory(const struct symbols *s)
{
    return s->symbols_ready && s->debug_info_ready && !s->info;
}

size_t symbols_lookup(struct symbols *s, uint64_t vaddr, struct symbols_name *ret, size_t max)
{
    struct symbols_name names[FRAMES_MAX];
    size_t n, cut;

    if (!s->symbols_ready)
        load_symbols(s);
    if (!s->main.elf || max == 0)
        return 0;
    if (plt_contains(&s->main, vaddr))
        return name_plt_stub(s, vaddr, ret) ? 1 : 0;
    if (!s->debug_info_ready)
        load_debug_info(s);
    n = list_names(s, vaddr, names);
    cut = n > max ? n - max : 0;
    memcpy(ret, names + cut, (n - cut) * sizeof(*names));
    return n - cut;
}

bool symbols_function(struct symbols *s, uint64_t vaddr, struct symbols_name *ret)
{
    struct debug_frame nothing = {NULL, NULL, 0};
    char symbol[SYMBOL_TABLE_NAME_ROOM];
    struct symbols_name name;
    uint64_t start;

    if (!s->symbols_ready)
        load_symbols(s);
    if (!s->table || plt_contains(&s->main, vaddr) || !symbol_table_find(s->table, vaddr, &start, symbol) ||
        !name_frame(s, symbol, &nothing, &name))
        return false;
    name.inlined = false;
    *ret = name;
    return true;
}
