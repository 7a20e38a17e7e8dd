/*
 * What Meson found when it configured this build -> text. Called by main.c. src/meson.build defines the BUILT_ macros.
 */
#include "cmd/built.h"

#include <elfutils/version.h>
#include <gnu/libc-version.h>

void built_write(FILE *out)
{
    fprintf(out, "linked: %s\n", BUILT_LINKED);
    fprintf(out, "elfutils: 0.%d, %s\n", _ELFUTILS_VERSION, BUILT_ELFUTILS);
    fprintf(out, "compiler: %s\n", BUILT_COMPILER);
    fprintf(out, "libc: glibc %s\n", gnu_get_libc_version());
}
