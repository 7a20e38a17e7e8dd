/*
 * Reconstructs from a core file what /proc/PID/maps, /proc/PID/exe and /proc/PID/cmdline showed while the
 * process was alive.
 */
#include "base/grow.h"
#include "base/utf8.h"
#include "target/core_file.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define AUX_WINDOW   (64 * 1024)
#define MAX_POINTERS ((size_t)1 << 18)
#define MAX_COMMAND  (128 * 1024)

static int add_map(struct proc_maps *maps, const struct proc_map *map)
{
    if (grow_array((void **)&maps->items, &maps->cap, maps->n + 1, sizeof(*map)) < 0)
        return ERR_NOMEM;
    maps->items[maps->n++] = *map;
    return 0;
}

static void set_file(struct proc_map *map, const struct core_mapped *m)
{
    map->path = m->path;
    map->deleted = m->deleted;
    map->offset = m->offset + (map->start - m->start);
    map->inode = m->module + 1;
}

static int add_segment(const struct core_file *core, size_t i, struct proc_maps *maps)
{
    const struct core_segment *s = &core->segments[i];
    const struct core_mapped *m = core_file_mapped(core, s->start);
    struct proc_map map = {.start = s->start,
                           .end = s->end,
                           .readable = s->readable,
                           .writable = s->writable,
                           .executable = s->executable,
                           .path = ""};
    char magic[SELFMAG];

    if (m)
        set_file(&map, m);
    /* Without NT_FILE, recognise an image by its ELF magic. */
    else if (!core->n_mapped && s->readable && core_file_read(core, s->start, magic, SELFMAG) == SELFMAG &&
             memcmp(magic, ELFMAG, SELFMAG) == 0)
        map.inode = i + 1;
    return add_map(maps, &map);
}

/* gdb omits segments that it writes no bytes for: unmodified file mappings. */
static int add_file_mapping(const struct core_file *core, const struct core_mapped *m, struct proc_maps *maps)
{
    struct proc_map map = {.start = m->start, .end = m->end, .readable = true};

    if (core_file_segment(core, m->start))
        return 0;
    set_file(&map, m);
    return add_map(maps, &map);
}

static int by_start(const void *a, const void *b)
{
    const struct proc_map *x = a, *y = b;

    return x->start < y->start ? -1 : x->start > y->start;
}

int core_file_maps(const struct core_file *core, struct proc_maps *ret)
{
    struct proc_maps maps = {0};
    int r = 0;

    for (size_t i = 0; r == 0 && i < core->n_segments; i++)
        r = add_segment(core, i, &maps);
    for (size_t i = 0; r == 0 && i < core->n_mapped; i++)
        r = add_file_mapping(core, &core->mapped[i], &maps);
    if (r < 0) {
        proc_maps_free(&maps);
        return r;
    }
    if (maps.n)
        qsort(maps.items, maps.n, sizeof(*maps.items), by_start);
    *ret = maps;
    return 0;
}

const char *core_file_exe(const struct core_file *core)
{
    const struct core_mapped *m = core_file_mapped(core, core_file_aux(core, AT_PHDR));

    if (!m)
        m = core_file_mapped(core, core_file_aux(core, AT_ENTRY));
    return m ? m->path : "";
}

/* Finds the auxiliary vector on the stack by its contents, which NT_AUXV has. It is at a lower address than the
 * random bytes that AT_RANDOM points to. 0: not found. */
static addr_t find_aux(const struct core_file *core, struct mem *m)
{
    addr_t below = core_file_aux(core, AT_RANDOM) & ~(addr_t)15, start;
    size_t len = core->n_aux < 4 ? 0 : 64;
    unsigned char *bytes;
    addr_t found = 0;

    if (!below || !len)
        return 0;
    start = below - AUX_WINDOW;
    bytes = malloc(AUX_WINDOW);
    /* The window may start below the stack: shrink it until it is readable. */
    while (bytes && start < below && mem_read(m, start, bytes, below - start) < 0)
        start += 1024;
    for (addr_t at = below > start ? below - start : 0; bytes && !found && at >= 8; at -= 8)
        if (at + len <= below - start && memcmp(bytes + at, core->aux, len) == 0)
            found = start + at;
    free(bytes);
    return found;
}

/* Walks down from `at` over an array of pointers to its first element: below that is NULL or, with `counted`, the
 * number of elements. Returns the address of the first element, or 0. */
static addr_t skip_pointers(struct mem *m, addr_t at, bool counted)
{
    addr_t value;

    for (size_t n = 0; n < MAX_POINTERS; n++, at -= 8) {
        if (at < 8 || mem_read_addr(m, at - 8, &value) < 0)
            return 0;
        if (value == (counted ? n : 0))
            return at;
    }
    return 0;
}

/* Finds the strings of argv, up to the first string of the environment: the kernel puts them into one block. */
static int find_args(const struct core_file *core, struct mem *m, addr_t *ret_start, addr_t *ret_end)
{
    addr_t aux = find_aux(core, m), env, args;

    /* The stack holds argc, argv…, NULL, envp…, NULL, auxv. Walk it backwards. */
    env = aux ? skip_pointers(m, aux - 8, false) : 0;
    args = env ? skip_pointers(m, env - 8, true) : 0;
    if (!args || mem_read_addr(m, args, ret_start) < 0)
        return ERR_READ;
    /* Without an environment, AT_EXECFN follows. */
    if (mem_read_addr(m, env, ret_end) < 0 || !*ret_end)
        *ret_end = core_file_aux(core, AT_EXECFN);
    if (!*ret_start || *ret_end <= *ret_start)
        return ERR_READ;
    if (*ret_end - *ret_start > MAX_COMMAND)
        *ret_end = *ret_start + MAX_COMMAND;
    return 0;
}

static char *join_args(char *text, size_t len)
{
    char *clean;

    while (len && (text[len - 1] == '\0' || text[len - 1] == ' '))
        len--;
    for (size_t i = 0; i < len; i++)
        if (text[i] == '\0')
            text[i] = ' ';
    clean = malloc(len * 3 + 1);
    if (clean)
        clean[utf8_clean(text, len, clean)] = '\0';
    return clean;
}

int core_file_command(const struct core_file *core, struct mem *m, char **ret)
{
    char args[sizeof(core->args)], *text = NULL, *command = NULL;
    addr_t start, end;

    if (find_args(core, m, &start, &end) == 0 && (text = malloc(end - start)) &&
        mem_read(m, start, text, end - start) == 0)
        command = join_args(text, end - start);
    free(text);
    if (!command || !command[0]) {
        free(command);
        memcpy(args, core->args[0] ? core->args : core->name, core->args[0] ? sizeof(args) : sizeof(core->name));
        command = join_args(args, strlen(args));
    }
    if (!command)
        return ERR_NOMEM;
    *ret = command;
    return 0;
}
