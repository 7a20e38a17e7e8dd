/*
 * A module -> the separate file with its symbols and debug info, beneath the target's root.
 */
#ifndef ELF_DEBUG_FILE_H
#define ELF_DEBUG_FILE_H

#include "elf/elf_module.h"

#define DEBUG_FILE_PATH_ROOM 4096

/*
 * By build id in /usr/lib/debug/.build-id, else by .gnu_debuglink: beside the module, in .debug/ there, in
 * /usr/lib/debug. `path` is the module's, as the target sees it. A file found by its link is taken when it has the same
 * build id, or the sum that the link tells. `ret_path` is where it is, as the target sees it. 0 or ERR_READ.
 */
int debug_file_find(int root_fd, const char *path, const struct elf_module *m, struct elf_module *ret,
                    char ret_path[DEBUG_FILE_PATH_ROOM]);

/* What dwz took out of several debug files: named by .gnu_debugaltlink of the debug file at `path`. 0 or ERR_READ. */
int debug_file_find_alt(int root_fd, const char *path, const struct elf_module *debug, struct elf_module *ret);

/* The small table of symbols that some distributions pack into the module: .gnu_debugdata. 0 or ERR_READ. */
int debug_file_unpack(const struct elf_module *m, struct elf_module *ret);

#endif
