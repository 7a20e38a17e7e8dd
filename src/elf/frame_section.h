/*
 * The tables for unwinding that a module's file has, where memory does not tell of them: .eh_frame without a header that
 * is found by the loader, .debug_frame in the file or in its separate debug file.
 */
#ifndef ELF_FRAME_SECTION_H
#define ELF_FRAME_SECTION_H

#include <stddef.h>
#include <stdint.h>

/* The module's file: `fd` stays the caller's. The rest is as in symbols.h. */
struct frame_section_source {
    int fd;
    int root_fd;
    const char *path;
};

/* Where .eh_frame is, in addresses of the file. 0 or ERR_READ. */
int frame_section_find_eh(const struct frame_section_source *src, uint64_t *ret_addr, uint64_t *ret_len);

/* The bytes of .debug_frame, unpacked, `max` at most; the caller frees. 0, ERR_READ or ERR_NOMEM. */
int frame_section_read_debug(const struct frame_section_source *src, size_t max, unsigned char **ret, size_t *ret_len);

#endif
