/*
 * Shortens file names. It reads the file system, so call it after the thread has been resumed.
 */
#include "sample/shorten.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool is_package(const struct files *files, const char *filename, size_t dir_len)
{
    char path[8192];
    int n = snprintf(path, sizeof(path), "%.*s/__init__.py", (int)dir_len, filename);

    return n > 0 && (size_t)n < sizeof(path) && files_exist(files, path);
}

const char *shorten_filename(struct intern *names, const struct files *files, const char *filename)
{
    const char *cut = strrchr(filename, '/'), *result;

    if (!cut || filename[0] != '/')
        result = cut && filename[0] != '<' ? cut + 1 : filename;
    else {
        while (cut > filename && is_package(files, filename, (size_t)(cut - filename))) {
            const char *up = memrchr(filename, '/', (size_t)(cut - filename));

            if (!up)
                break;
            cut = up;
        }
        result = cut + 1;
    }
    result = *result ? intern_str(names, result) : filename;
    return result ? result : filename;
}
