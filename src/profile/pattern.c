/*
 * Matches patterns against the texts of a function.
 */
#include "profile/pattern.h"

#include "base/err.h"
#include "base/grow.h"
#include "base/utf8.h"
#include "base/wildcard.h"
#include "profile/library.h"

#include <stdlib.h>
#include <string.h>

int pattern_init(struct pattern *pattern, const char *text)
{
    size_t len = strlen(text);
    char *clean = calloc(3 * len + 1, 1);

    if (clean == NULL)
        return ERR_NOMEM;
    utf8_clean(text, len, clean);
    *pattern =
        (struct pattern){.text = clean, .has_wildcard = wildcard_in(clean), .has_slash = strchr(clean, '/') != NULL};
    return 0;
}

void pattern_free(struct pattern *pattern)
{
    free(pattern->text);
    *pattern = (struct pattern){0};
}

bool pattern_matches(const struct pattern *pattern, const char *text)
{
    return wildcard_matches(pattern->text, text);
}

/* True if the pattern is one or several components of the text. */
static bool has_components(const struct pattern *pattern, const char *text, const char *separators)
{
    size_t n = strlen(pattern->text), len = strnlen(text, WILDCARD_TEXT_MAX);
    const char *at = text;

    while ((at = memmem(at, len - (size_t)(at - text), pattern->text, n)) != NULL) {
        bool begins = at == text || strchr(separators, at[-1]) != NULL || strchr(separators, *at) != NULL;
        bool ends = at[n] == '\0' || strchr(separators, at[n]) != NULL || strchr(separators, at[n - 1]) != NULL;

        if (begins && ends)
            return true;
        at++;
    }
    return false;
}

static const char *after_last(const char *s, char c)
{
    const char *at = strrchr(s, c);

    return at != NULL ? at + 1 : s;
}

static bool ends_with(const char *s, size_t len, const char *ending)
{
    size_t n = strlen(ending);

    return len >= n && memcmp(s + len - n, ending, n) == 0;
}

/* "json/decoder.py" -> "json.decoder"; "<frozen importlib._bootstrap>" -> "importlib._bootstrap". "" for other files. */
static void write_module(char *to, const char *file)
{
    static const char *const endings[] = {".py", ".pyc", ".pyx"};
    size_t len = strlen(file);

    to[0] = '\0';
    if (strncmp(file, "<frozen ", 8) == 0 && file[len - 1] == '>') {
        memcpy(to, file + 8, len - 9);
        to[len - 9] = '\0';
    }
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        if (ends_with(file, len, endings[i])) {
            len -= strlen(endings[i]);
            memcpy(to, file, len);
            to[len] = '\0';
            for (char *slash = to; (slash = strchr(slash, '/')) != NULL;)
                *slash = '.';
            if (ends_with(to, len, ".__init__"))
                to[len - strlen(".__init__")] = '\0';
            return;
        }
}

/* A raw profile may have full paths only: then the packages of libraries are known, and no others. */
static const char *short_file(const struct func *func)
{
    const char *file = func->short_filename;

    if (*file != '/')
        return file;
    return library_part(file);
}

int pattern_texts_set(struct pattern_texts *texts, const struct func *func)
{
    const char *file;
    size_t n_module, n_name = strlen(func->name);

    texts->func = func;
    texts->last = after_last(func->name, '.');
    texts->base = after_last(func->filename, '/');
    texts->short_file = short_file(func);
    file = texts->short_file != NULL ? texts->short_file : texts->base;
    if (grow_array((void **)&texts->module, &texts->cap_module, strlen(file) + 1, 1) < 0)
        return ERR_NOMEM;
    write_module(texts->module, func->module == NULL ? file : "");
    n_module = strlen(texts->module);
    if (grow_array((void **)&texts->dotted, &texts->cap_dotted, n_module + n_name + 2, 1) < 0)
        return ERR_NOMEM;
    memcpy(texts->dotted, texts->module, n_module);
    if (n_module > 0)
        texts->dotted[n_module++] = '.';
    memcpy(texts->dotted + n_module, func->name, n_name + 1);
    return 0;
}

void pattern_texts_free(struct pattern_texts *texts)
{
    free(texts->module);
    free(texts->dotted);
    *texts = (struct pattern_texts){0};
}

static bool matches_one(const struct pattern *pattern, const char *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (all[i] != NULL && *all[i] != '\0' && pattern_matches(pattern, all[i]))
            return true;
    return false;
}

bool pattern_matches_func(const struct pattern *pattern, const struct pattern_texts *texts)
{
    const struct func *func = texts->func;
    const char *library = func->module, *library_base = library != NULL ? after_last(library, '/') : NULL;
    const char *all[] = {func->name,     texts->last,       texts->dotted, texts->module, texts->base,
                         func->filename, texts->short_file, library,       library_base};

    if (pattern->has_wildcard)
        return matches_one(pattern, all, sizeof(all) / sizeof(all[0]));
    if (has_components(pattern, texts->dotted, ".:") ||
        has_components(pattern, texts->short_file != NULL ? texts->short_file : texts->base, "/"))
        return true;
    if (library_base != NULL && has_components(pattern, library_base, "/"))
        return true;
    return pattern->has_slash &&
           (has_components(pattern, func->filename, "/") || (library != NULL && has_components(pattern, library, "/")));
}
