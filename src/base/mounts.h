/*
 * The mounted file systems of a process, from /proc/PID/mountinfo. Reading that file never waits for a file system.
 */
#ifndef BASE_MOUNTS_H
#define BASE_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MOUNTS_POINT_ROOM 1024

struct mount {
    uint64_t device; /* major number << 32 | minor number */
    bool is_local;   /* only the kernel of this machine serves it */
    char point[MOUNTS_POINT_ROOM];
};

/* Calls `visit` for each mount until it returns false. False if the file cannot be read. `pid` 0: our own mounts. */
bool mounts_each(pid_t pid, bool (*visit)(void *arg, const struct mount *m), void *arg);

/* Finds the mount of a device or, if there is none, the one that contains `path`, which must be free of links. */
bool mounts_find(pid_t pid, uint64_t device, const char *path, struct mount *ret);

/* Which directories are on file systems that may stop answering. All zeros is an empty list, with local directories only. */
struct mount_list {
    struct mount_place {
        char *point;
        bool is_local;
    } * items;
    size_t n, cap;
};

/* Replaces the list; it is left empty if all mounts are local, or cannot be read. */
void mounts_list(pid_t pid, struct mount_list *ret);
bool mounts_are_local(const struct mount_list *l, const char *path);
void mounts_list_free(struct mount_list *l);

/* True if `path` is `dir` or below it. */
bool mounts_contain(const char *dir, const char *path);

#endif
