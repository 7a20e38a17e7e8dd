/*
 * Shortens file names. A helper process looks at the files: see base/helper.h.
 */
#include "sample/shorten.h"

#include "base/clock.h"
#include "base/hash.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_AGAIN (10 * NS_PER_S)

static bool is_package(const struct files *files, const char *filename, size_t dir_len)
{
    char path[8192];
    int n = snprintf(path, sizeof(path), "%.*s/__init__.py", (int)dir_len, filename);

    return n > 0 && (size_t)n < sizeof(path) && files_exist(files, path);
}

/* In the helper: where the short name starts. */
static int run_shorten(struct unpack *in, struct pack *out)
{
    struct files files;
    const char *filename, *cut;

    files_unpack(in, &files);
    filename = unpack_text(in);
    cut = filename ? strrchr(filename, '/') : NULL;
    while (cut > filename && is_package(&files, filename, (size_t)(cut - filename))) {
        const char *up = memrchr(filename, '/', (size_t)(cut - filename));

        if (!up)
            break;
        cut = up;
    }
    files_close(&files);
    if (!cut || helper_has_refused())
        return ERR_READ;
    pack_number(out, (uint64_t)(cut + 1 - filename));
    return 0;
}

/* The slash before the short name; NULL if the files do not answer. */
static const char *cut_by_files(const struct files *files, const char *filename)
{
    struct helper_about about = files_about(files, filename);
    const char *cut = NULL;
    struct helper_answer answer;
    struct pack in = {0};

    about.names = true;
    files_pack(&in, files);
    pack_text(&in, filename);
    if (helper_call(run_shorten, &in, &about, &answer) == 0) {
        uint64_t start = unpack_number(&answer.out);

        if (start > 0 && start <= strlen(filename))
            cut = filename + start - 1;
    }
    helper_answer_free(&answer);
    pack_free(&in);
    return cut;
}

static const char *cut_by_modules(struct short_names *s, const struct short_names_from *from, const char *filename)
{
    const char *cut = strrchr(filename, '/'), *up;

    if (!from->py)
        return cut;
    packages_update(&s->packages, from->py, from->threads);
    while (cut > filename && packages_have(&s->packages, from->py, filename, (size_t)(cut - filename)) &&
           (up = memrchr(filename, '/', (size_t)(cut - filename))))
        cut = up;
    return cut;
}

/* A file whose file system may stop answering is left alone. A symbolic link may still lead to one: the helper finds out. */
static bool is_local(struct short_names *s, const struct files *files, const char *filename)
{
    char path[8192];

    if (!s->mounts_ns || clock_now_ns() - s->mounts_ns > LIST_AGAIN) {
        mounts_list(files->pid, &s->mounts);
        s->mounts_ns = clock_now_ns();
    }
    if (files->pid || !files->root_path)
        return mounts_are_local(&s->mounts, filename);
    return snprintf(path, sizeof(path), "%s%s", files->root_path, filename) < (int)sizeof(path) &&
           mounts_are_local(&s->mounts, path);
}

static const char *shorten(struct short_names *s, const struct short_names_from *from, const char *filename)
{
    const char *cut = strrchr(filename, '/');

    if (!cut || filename[0] == '<')
        return filename;
    if (filename[0] == '/') {
        const char *by_files = is_local(s, from->files, filename) ? cut_by_files(from->files, filename) : NULL;

        cut = by_files ? by_files : cut_by_modules(s, from, filename);
    }
    return cut[1] ? cut + 1 : filename;
}

const char *short_names_get(struct short_names *s, const struct short_names_from *from, const char *filename)
{
    uint64_t hash = hash_mix(0, (uint64_t)(uintptr_t)filename);
    const char *result;
    size_t step = 0;
    uint32_t at;

    while ((at = hash_table_next(&s->index, hash, &step)) != HASH_TABLE_NONE)
        if (s->items[at].filename == filename)
            return s->items[at].result;
    result = intern_str(from->names, shorten(s, from, filename));
    if (!result)
        return filename;
    if (hash_table_reserve_item(&s->index, (void **)&s->items, &s->cap, s->n, sizeof(*s->items)) == 0) {
        s->items[s->n] = (struct short_name){filename, result};
        hash_table_add(&s->index, hash, (uint32_t)s->n++);
    }
    return result;
}

void short_names_free(struct short_names *s)
{
    hash_table_free(&s->index);
    packages_free(&s->packages);
    mounts_list_free(&s->mounts);
    free(s->items);
    *s = (struct short_names){0};
}
