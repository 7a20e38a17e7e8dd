/*
 * Unwind sections that can only be found through the file of a module: .eh_frame without .eh_frame_hdr, and
 * .debug_frame in the file or in its separate debug file.
 */
#ifndef ELF_FRAME_SECTION_H
#define ELF_FRAME_SECTION_H

#include <stddef.h>
#include <stdint.h>

/* The file of a module. `fd` stays the caller's. For `root_fd` and `path` see symbols.h. */
struct frame_section_source {
    int fd;
    int root_fd;
    const char *path;
};

/* Finds .eh_frame. The address is without the load bias. Returns 0 or ERR_READ. */
int frame_section_find_eh_frame(const struct frame_section_source *src, uint64_t *ret_addr, uint64_t *ret_len);

/* Reads .debug_frame, decompressed, if it has at most `max` bytes. The caller frees it. Returns 0, ERR_READ or
 * ERR_NOMEM. */
int frame_section_read_debug_frame(const struct frame_section_source *src, size_t max, unsigned char **ret,
                                   size_t *ret_len);

#endif
