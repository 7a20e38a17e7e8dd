/*
 * Recognizes libraries by their paths.
 */
#include "profile/library.h"

#include <ctype.h>
#include <string.h>

/* A part of a path between two slashes. */
struct part {
    const char *s;
    size_t len;
};

static bool is_text(struct part part, const char *text)
{
    return part.len == strlen(text) && memcmp(part.s, text, part.len) == 0;
}

static bool ends_with(struct part part, const char *ending)
{
    size_t n = strlen(ending);

    return part.len > n && memcmp(part.s + part.len - n, ending, n) == 0;
}

/* The length of "python3.11" or "python311" at the start of the part; 0 if it does not start like that. */
static size_t python_length(struct part part)
{
    size_t n = 6;

    if (part.len < 7 || memcmp(part.s, "python", 6) != 0 || (part.s[6] != '2' && part.s[6] != '3'))
        return 0;
    while (n < part.len && (isdigit((unsigned char)part.s[n]) || part.s[n] == '.'))
        n++;
    return n;
}

/* "lib/python3.11", "lib64/python3.13t" */
static bool is_standard_library(struct part before, struct part part)
{
    size_t n = python_length(part);

    return n > 0 && before.len >= 3 && memcmp(before.s, "lib", 3) == 0 &&
           (n == part.len || (n + 1 == part.len && part.s[n] == 't'));
}

/* "python311.zip" */
static bool is_zipped_library(struct part part)
{
    size_t n = python_length(part);

    return n > 0 && part.len == n + 3 && memcmp(part.s + n - 1, ".zip", 4) == 0;
}

static bool is_packages(struct part part)
{
    return is_text(part, "site-packages") || is_text(part, "dist-packages") || ends_with(part, ".egg") ||
           ends_with(part, ".whl");
}

const char *library_part(const char *path)
{
    struct part before = {path, 0};
    const char *found = NULL;

    for (const char *slash; (slash = strchr(path, '/')) != NULL; path = slash + 1) {
        struct part part = {path, (size_t)(slash - path)};

        if (is_standard_library(before, part) || is_zipped_library(part) || is_packages(part))
            found = slash + 1;
        before = part;
    }
    return found;
}

/* By its file name: a raw profile does not say which functions are native. */
static bool is_native(const char *base)
{
    static const char *const endings[] = {".so", ".c",   ".cc",  ".cpp", ".cxx", ".h", ".hh", ".hpp",
                                          ".rs", ".pyx", ".pxd", ".go",  ".S",   ".f", ".f90"};
    struct part part = {base, strlen(base)};

    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        if (ends_with(part, endings[i]))
            return true;
    return strstr(base, ".so.") != NULL || (python_length(part) > 0 && python_length(part) == part.len);
}

/* "[unverified]", "[missing native frames]" */
static bool is_marker(const char *name)
{
    size_t len = strlen(name);

    return len > 2 && name[0] == '[' && name[len - 1] == ']';
}

enum library_owner library_owner(const struct func *func)
{
    static const char *const starts[] = {"threading.py", "runpy.py"};
    const char *file = func->filename, *base = strrchr(file, '/') != NULL ? strrchr(file, '/') + 1 : file;

    if (*file == '\0')
        return is_marker(func->name) ? LIBRARY_STATE : LIBRARY_NOT;
    if (func->module != NULL || is_native(base) || is_marker(func->name))
        return LIBRARY_CALLER;
    if (strcmp(file, "<frozen runpy>") == 0)
        return LIBRARY_STARTS;
    if (strncmp(file, "<frozen ", 8) == 0)
        return LIBRARY_YES;
    if (library_part(file) == NULL)
        return LIBRARY_NOT;
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
        if (strcmp(base, starts[i]) == 0)
            return LIBRARY_STARTS;
    return LIBRARY_YES;
}
