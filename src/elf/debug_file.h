/*
 * Finds separate debug files, inside the target's root directory.
 */
#ifndef ELF_DEBUG_FILE_H
#define ELF_DEBUG_FILE_H

#include "elf/elf_module.h"

#define DEBUG_FILE_PATH_ROOM 4096

/*
 * Opens the debug file of the module at `path`: by build ID in /usr/lib/debug/.build-id, else by .gnu_debuglink, next
 * to the module, in .debug/ there, or in /usr/lib/debug. A file found by its link must have the same build ID or the
 * CRC that the link gives. All paths are as the target sees them. Returns 0 or ERR_READ.
 */
int debug_file_find(int root_fd, const char *path, const struct elf_module *m, struct elf_module *ret,
                    char ret_path[DEBUG_FILE_PATH_ROOM]);

/* Opens the file with the debug info that dwz moved out of the debug file at `path` (.gnu_debugaltlink). Returns 0 or
 * ERR_READ. */
int debug_file_find_alt(int root_fd, const char *path, const struct elf_module *debug, struct elf_module *ret);

/* Opens MiniDebugInfo: the small symbol table that some distributions embed in the module (.gnu_debugdata). Returns 0
 * or ERR_READ. */
int debug_file_open_minidebug(const struct elf_module *m, struct elf_module *ret);

#endif
