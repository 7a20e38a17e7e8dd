/*
 * Names and lines of a module that Cython made. Called by symbols.c. The symbols are gone through once, at the first
 * name that asks for it; each C file is read once, beneath the target's root.
 */
#include "elf/cython_module.h"

#include "base/grow.h"
#include "base/open_in_root.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMES_MAX 200000
#define FILES_MAX 32
#define TEXT_MAX  ((off_t)128 << 20)
#define PATH_ROOM 4096

struct c_file {
    char *path;                 /* as the compiler saw it */
    struct cython_lines *lines; /* NULL: not Cython's, or not there */
};

struct cython_module {
    int root_fd;
    const char *path;
    struct symbol_table *table;
    char **names; /* of wrappers and bodies, demangled */
    size_t n_names, cap_names;
    bool collected;
    struct c_file files[FILES_MAX];
    size_t n_files;
};

struct cython_module *cython_module_new(int root_fd, const char *path, struct symbol_table *table)
{
    struct cython_module *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->root_fd = root_fd;
    c->path = path;
    c->table = table;
    return c;
}

struct cython_module *cython_module_free(struct cython_module *c)
{
    if (!c)
        return NULL;
    for (size_t i = 0; i < c->n_names; i++)
        free(c->names[i]);
    free(c->names);
    for (size_t i = 0; i < c->n_files; i++) {
        free(c->files[i].path);
        cython_lines_free(c->files[i].lines);
    }
    free(c);
    return NULL;
}

static void collect(void *arg, const char *symbol)
{
    struct cython_module *c = arg;
    const char *s = symbol;
    char name[DEMANGLE_ROOM];

    /* In C++ the static function __pyx_pw_x is _ZL10__pyx_pw_x and its parameters. */
    if (strncmp(s, "_ZL", 3) == 0)
        for (s += 3; isdigit((unsigned char)*s);)
            s++;
    if (strncmp(s, "__pyx_p", strlen("__pyx_p")) != 0 || c->n_names == NAMES_MAX || demangle_name(symbol, name) == 0 ||
        grow_array((void **)&c->names, &c->cap_names, c->n_names + 1, sizeof(*c->names)) < 0)
        return;
    c->names[c->n_names] = strdup(name);
    c->n_names += c->names[c->n_names] != NULL;
}

static bool find_name(void *arg, const char *prefix, bool whole, char rest[DEMANGLE_ROOM])
{
    struct cython_module *c = arg;
    size_t len = strlen(prefix);

    if (!c->collected && c->table) {
        symbol_table_each(c->table, "__pyx_p", collect, c);
        symbol_table_each(c->table, "_ZL", collect, c);
    }
    c->collected = true;
    for (size_t i = 0; i < c->n_names; i++) {
        if (strncmp(c->names[i], prefix, len) != 0 || !cython_rest_fits(c->names[i] + len, whole))
            continue;
        if (rest)
            memcpy(rest, c->names[i] + len, strlen(c->names[i] + len) + 1);
        return true;
    }
    return false;
}

enum cython_layer cython_module_name(struct cython_module *c, const char *name, char ret[DEMANGLE_ROOM])
{
    const struct cython_symbols symbols = {find_name, c};

    return cython_name(name, &symbols, ret);
}

static char *read_text(int fd, size_t *ret_len)
{
    struct stat st;
    char *text;
    size_t len = 0;

    if (fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > TEXT_MAX || !(text = malloc((size_t)st.st_size)))
        return NULL;
    while (len < (size_t)st.st_size) {
        ssize_t n = read(fd, text + len, (size_t)st.st_size - len);

        if (n <= 0)
            break;
        len += (size_t)n;
    }
    *ret_len = len;
    return text;
}

static struct cython_lines *read_lines(int root_fd, const char *path)
{
    struct cython_lines *lines = NULL;
    int fd = open_in_root(root_fd, path);
    size_t len;
    char *text;

    if (fd < 0)
        return NULL;
    text = read_text(fd, &len);
    if (text)
        lines = cython_lines_new(text, len);
    free(text);
    close(fd);
    return lines;
}

/* Where the compiler saw it; or beside the module, which is where it is when a package was built in its place and moved. */
static struct cython_lines *find_lines(const struct cython_module *c, const char *file)
{
    struct cython_lines *lines = file[0] == '/' ? read_lines(c->root_fd, file) : NULL;
    const char *name = strrchr(file, '/'), *slash = strrchr(c->path, '/');
    char beside[PATH_ROOM];

    if (lines || !slash ||
        snprintf(beside, sizeof(beside), "%.*s/%s", (int)(slash - c->path), c->path, name ? name + 1 : file) >=
            (int)sizeof(beside))
        return lines;
    return read_lines(c->root_fd, beside);
}

static const struct cython_lines *lines_of(struct cython_module *c, const char *file)
{
    for (size_t i = 0; i < c->n_files; i++)
        if (strcmp(c->files[i].path, file) == 0)
            return c->files[i].lines;
    if (c->n_files == FILES_MAX || !(c->files[c->n_files].path = strdup(file)))
        return NULL;
    c->files[c->n_files].lines = find_lines(c, file);
    return c->files[c->n_files++].lines;
}

void cython_module_line(struct cython_module *c, const char **file, int *line)
{
    const char *dot = strrchr(*file, '.');
    const struct cython_lines *lines;

    /* With #line directives the debug info has the .pyx already. */
    if (!dot ||
        (strcmp(dot, ".c") != 0 && strcmp(dot, ".cpp") != 0 && strcmp(dot, ".cc") != 0 && strcmp(dot, ".cxx") != 0))
        return;
    lines = lines_of(c, *file);
    if (lines)
        cython_lines_find(lines, *line, file, line);
}
