/*
 * File names -> short ones. Called once for each new function, after its thread was let go: looks at the disk.
 */
#include "sample/shorten.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool is_package(pid_t pid, const char *filename, size_t dir_len)
{
    char path[8192];
    int n = snprintf(path, sizeof(path), "/proc/%d/root%.*s/__init__.py", (int)pid, (int)dir_len, filename);

    return n > 0 && (size_t)n < sizeof(path) && access(path, F_OK) == 0;
}

const char *shorten_filename(struct intern *names, pid_t pid, const char *filename)
{
    const char *cut = strrchr(filename, '/'), *result;

    if (!cut || filename[0] != '/')
        result = cut && filename[0] != '<' ? cut + 1 : filename;
    else {
        while (cut > filename && is_package(pid, filename, (size_t)(cut - filename))) {
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
