/*
 * Opens paths as the target sees them: absolute symlinks and `..` resolve inside the target's root directory, as they
 * do for the target itself. `root_fd` is that directory; -1 means our own root.
 *
 *     int fd = open_in_root(root_fd, "/usr/lib/debug/.build-id/ab/cdef.debug");
 */
#ifndef BASE_OPEN_IN_ROOT_H
#define BASE_OPEN_IN_ROOT_H

#include <stdbool.h>

/* Returns an O_PATH descriptor for whatever is at `path`, which may be of any file type, or ERR_READ. */
int open_in_root_path(int root_fd, const char *path);

/*
 * Opens a regular file for reading. Returns a descriptor or ERR_READ. Never blocks, not even if a FIFO is at `path`,
 * and follows no magic links (/proc/PID/fd/N).
 */
int open_in_root(int root_fd, const char *path);

/* Does the same, but fails if `path` itself, after all its directories, is a symbolic link. */
int open_in_root_nofollow(int root_fd, const char *path);

/* open_in_root() without openat2, which needs Linux 5.6 and which some sandboxes forbid. Separate so that tests can run this
 * path on any kernel. */
int open_in_root_without_openat2(int root_fd, const char *path);

#endif
