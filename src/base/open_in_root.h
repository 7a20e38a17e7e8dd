/*
 * A path of the target -> an open file beneath the target's own root: absolute links and `..` stay beneath it, as they
 * would for the target.
 *
 *     int fd = open_in_root(root_fd, "/usr/lib/debug/.build-id/ab/cdef.debug");
 */
#ifndef BASE_OPEN_IN_ROOT_H
#define BASE_OPEN_IN_ROOT_H

#include <stdbool.h>

/* What is there, of whatever kind: a descriptor that can be looked at but not read (O_PATH), or ERR_READ. */
int open_in_root_find(int root_fd, const char *path);

/*
 * Opens a regular file for reading, or gives ERR_READ; never waits (a FIFO in its place) and follows no links of
 * /proc. `root_fd` is a directory, -1 is our own root.
 */
int open_in_root(int root_fd, const char *path);

/* The same without the kernel's help (openat2 came with Linux 5.6, and some sandboxes refuse it). */
int open_in_root_open_by_steps(int root_fd, const char *path);

#endif
