/*
 * Shortens file names. A helper process looks at the files: see base/helper.h.
 */
#include "sample/shorten.h"

#include "base/hash.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    if (!cut)
        return ERR_READ;
    pack_number(out, (uint64_t)(cut + 1 - filename));
    return 0;
}

/* The last component, unless the files say more. */
static const char *cut_directories(const struct files *files, const char *filename)
{
    struct helper_about about = files_about(files, filename);
    const char *cut = strrchr(filename, '/');
    struct helper_answer answer;
    struct pack in = {0};

    about.names = true;
    files_pack(&in, files);
    pack_text(&in, filename);
    if (helper_call(run_shorten, &in, &about, &answer) == 0) {
        uint64_t start = unpack_number(&answer.out);

        if (start <= (uint64_t)(cut - filename))
            cut = filename + start - 1;
    }
    helper_answer_free(&answer);
    pack_free(&in);
    return cut + 1;
}

const char *shorten_filename(struct intern *names, const struct files *files, const char *filename)
{
    const char *cut = strrchr(filename, '/'), *result;

    if (!cut || filename[0] != '/')
        result = cut && filename[0] != '<' ? cut + 1 : filename;
    else
        result = cut_directories(files, filename);
    result = *result ? intern_str(names, result) : filename;
    return result ? result : filename;
}

const char *short_names_get(struct short_names *s, struct intern *names, const struct files *files,
                            const char *filename)
{
    uint64_t hash = hash_mix(0, (uint64_t)(uintptr_t)filename);
    const char *result;
    size_t step = 0;
    uint32_t at;

    while ((at = hash_table_next(&s->index, hash, &step)) != HASH_TABLE_NONE)
        if (s->items[at].filename == filename)
            return s->items[at].result;
    result = shorten_filename(names, files, filename);
    if (hash_table_reserve_item(&s->index, (void **)&s->items, &s->cap, s->n, sizeof(*s->items)) == 0) {
        s->items[s->n] = (struct short_name){filename, result};
        hash_table_add(&s->index, hash, (uint32_t)s->n++);
    }
    return result;
}

void short_names_free(struct short_names *s)
{
    hash_table_free(&s->index);
    free(s->items);
    *s = (struct short_names){0};
}
