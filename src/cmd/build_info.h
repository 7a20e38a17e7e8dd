/*
 * How this binary was built, for `spyglass --version --verbose`.
 */
#ifndef CMD_BUILD_INFO_H
#define CMD_BUILD_INFO_H

#include <stdio.h>

/*
 * One fact per line:
 *
 *     linked: static
 *     elfutils: 0.192, static, with src/elf/search_tree.c
 *     compiler: gcc 14.2.0
 *     libc: glibc 2.41
 */
void build_info_write(FILE *out);

#endif
