/*
 * Prints what Meson found when it configured this build. src/meson.build defines the BUILD_INFO_ macros.
 */
#include "cmd/build_info.h"

#include <elfutils/version.h>
#include <gnu/libc-version.h>

void build_info_write(FILE *out)
{
    fprintf(out, "linked: %s\n", BUILD_INFO_LINKED);
    fprintf(out, "elfutils: 0.%d, %s\n", _ELFUTILS_VERSION, BUILD_INFO_ELFUTILS);
    fprintf(out, "compiler: %s\n", BUILD_INFO_COMPILER);
    fprintf(out, "libc: glibc %s\n", gnu_get_libc_version());
}
