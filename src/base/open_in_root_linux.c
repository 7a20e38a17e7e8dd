/*
 * Opens files beneath a root. Called for debug files and sources of a target, whose links may point anywhere: whatever
 * they say, no file outside of the root is opened.
 */
#include "base/open_in_root.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FLAGS     (O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)
#define STEPS_MAX 256 /* parts of a path and of the links in it */
#define LINKS_MAX 40  /* as in the kernel */
#define PATH_ROOM 4096
#define AGAIN_MAX 8

/* The parts of the path that are open: to go up is to close the last, so that nobody can move us out by renaming. */
struct walk {
    int fds[STEPS_MAX];
    size_t depth;
};

static void walk_up(struct walk *w, size_t depth)
{
    while (w->depth > depth)
        close(w->fds[--w->depth]);
}

/* Puts what the link `fd` says before the rest of the path. */
static int link_expand(int fd, char *rest, size_t at)
{
    char text[PATH_ROOM], whole[PATH_ROOM];
    ssize_t len = readlinkat(fd, "", text, sizeof(text) - 1);

    if (len <= 0)
        return ERR_READ;
    text[len] = '\0';
    if (snprintf(whole, sizeof(whole), "%s/%s", text, rest + at) >= (int)sizeof(whole))
        return ERR_READ;
    memcpy(rest, whole, sizeof(whole));
    return 0;
}

static bool is_link(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISLNK(st.st_mode);
}

/* One part of the path: its directory is the last open one, or the root. */
static int step_into(struct walk *w, int root, const char *part)
{
    int dir = w->depth ? w->fds[w->depth - 1] : root;
    int fd;

    if (w->depth == STEPS_MAX)
        return ERR_READ;
    fd = openat(dir, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return ERR_READ;
    w->fds[w->depth++] = fd;
    return 0;
}

static int walk_path(struct walk *w, int root, char *rest)
{
    int links = 0;

    for (int steps = 0; steps < STEPS_MAX; steps++) {
        char part[NAME_MAX + 1];
        size_t skip, len;

        if (rest[0] == '/')
            walk_up(w, 0);
        skip = strspn(rest, "/");
        len = strcspn(rest + skip, "/");
        if (len == 0)
            return w->depth ? 0 : ERR_READ;
        if (len >= sizeof(part))
            return ERR_READ;
        memcpy(part, rest + skip, len);
        part[len] = '\0';
        if (strcmp(part, "..") == 0)
            walk_up(w, w->depth ? w->depth - 1 : 0);
        else if (strcmp(part, ".") != 0 && step_into(w, root, part) < 0)
            return ERR_READ;
        else if (w->depth && is_link(w->fds[w->depth - 1])) {
            if (++links > LINKS_MAX || link_expand(w->fds[w->depth - 1], rest, skip + len) < 0)
                return ERR_READ;
            walk_up(w, w->depth - 1);
            continue;
        }
        skip += len;
        skip += strspn(rest + skip, "/"); /* what is left is seen from here, not from the root */
        memmove(rest, rest + skip, strlen(rest + skip) + 1);
    }
    return ERR_READ;
}

/* An O_PATH descriptor is opened for reading by its entry in our own /proc: what it is was looked at before, since to
 * open a device can do things. Closes `fd`. */
static int reopen(int fd)
{
    char path[64];
    struct stat st;
    int file = -1;

    if (fd < 0)
        return ERR_READ;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        file = open(path, FLAGS);
    close(fd);
    return file >= 0 ? file : ERR_READ;
}

static int find_by_steps(int root_fd, const char *path)
{
    struct walk w = {.depth = 0};
    char rest[PATH_ROOM];
    int root = root_fd >= 0 ? root_fd : open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = ERR_READ;

    if (root >= 0 && snprintf(rest, sizeof(rest), "%s", path) < (int)sizeof(rest) && walk_path(&w, root, rest) == 0)
        fd = w.fds[--w.depth];
    walk_up(&w, 0);
    if (root >= 0 && root != root_fd)
        close(root);
    return fd;
}

int open_in_root_open_by_steps(int root_fd, const char *path)
{
    return reopen(find_by_steps(root_fd, path));
}

/* The kernel does it in one go. It says EAGAIN when something was renamed meanwhile. */
static int find_in_root(int root_fd, const char *path, int *ret_errno)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int root = root_fd >= 0 ? root_fd : open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    long fd = -1;

    *ret_errno = EAGAIN;
    for (int i = 0; root >= 0 && i < AGAIN_MAX && fd < 0 && *ret_errno == EAGAIN; i++) {
        fd = syscall(__NR_openat2, root, path, &how, sizeof(how));
        *ret_errno = fd < 0 ? errno : 0;
    }
    if (root >= 0 && root != root_fd)
        close(root);
    return (int)fd;
}

int open_in_root_find(int root_fd, const char *path)
{
    int error, fd = find_in_root(root_fd, path, &error);

    if (fd < 0 && (error == ENOSYS || error == EPERM || error == EINVAL))
        return find_by_steps(root_fd, path);
    return fd >= 0 ? fd : ERR_READ;
}

int open_in_root(int root_fd, const char *path)
{
    return reopen(open_in_root_find(root_fd, path));
}
