/*
 * Opens files inside a root directory, with openat2 or by resolving the path one component at a time. The target
 * controls the symlinks, so they must never lead out of the root. In a helper process, it is always one component at a time, so
 * that we know which file system a lookup waits for.
 */
#include "base/open_in_root.h"

#include "base/err.h"
#include "base/helper.h"

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

#define OPEN_FLAGS     (O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)
#define COMPONENTS_MAX 256 /* of the path and of all symlinks in it */
#define LINKS_MAX      40  /* as in the kernel */
#define PATH_ROOM      4096
#define EAGAIN_RETRIES 8

/* An open descriptor for each directory of the path. `..` closes the last one instead of opening "..", so that renaming
 * a directory cannot move us out of the root. */
struct walk {
    int fds[COMPONENTS_MAX];
    size_t depth;
    uint64_t view;
    char path[PATH_ROOM]; /* of the last one, without links */
    size_t path_len;
};

static void walk_truncate(struct walk *w, size_t depth)
{
    while (w->depth > depth) {
        close(w->fds[--w->depth]);
        while (w->path_len && w->path[--w->path_len] != '/')
            ;
    }
    w->path[w->path_len] = '\0';
}

/* False if the path is too long, or is on a file system that does not answer. */
static bool walk_append(struct walk *w, const char *part)
{
    int n = snprintf(w->path + w->path_len, sizeof(w->path) - w->path_len, "/%s", part);

    if (n < 0 || (size_t)n >= sizeof(w->path) - w->path_len || !helper_enter(w->view, w->path)) {
        w->path[w->path_len] = '\0';
        return false;
    }
    w->path_len += (size_t)n;
    return true;
}

/* Replaces the part of `rest` before `at` by the target of the symlink `fd`. */
static int expand_link(int fd, char *rest, size_t at)
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

/* Opens the path component `part` in the last open directory, or in the root. */
static int walk_enter(struct walk *w, int root, const char *part)
{
    int dir = w->depth ? w->fds[w->depth - 1] : root;
    int fd;

    if (w->depth == COMPONENTS_MAX || !walk_append(w, part))
        return ERR_READ;
    fd = openat(dir, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    w->fds[w->depth++] = fd;
    if (fd >= 0 && helper_enter_file(fd))
        return 0;
    walk_truncate(w, w->depth - 1);
    return ERR_READ;
}

/* `last_link`: follow the path's last component if it is a link. */
static int walk_path(struct walk *w, int root, char *rest, bool last_link)
{
    int links = 0;

    for (int steps = 0; steps < COMPONENTS_MAX; steps++) {
        char part[NAME_MAX + 1];
        size_t skip, len;

        if (rest[0] == '/')
            walk_truncate(w, 0);
        skip = strspn(rest, "/");
        len = strcspn(rest + skip, "/");
        if (len == 0)
            return w->depth ? 0 : ERR_READ;
        if (len >= sizeof(part))
            return ERR_READ;
        memcpy(part, rest + skip, len);
        part[len] = '\0';
        if (strcmp(part, "..") == 0)
            walk_truncate(w, w->depth ? w->depth - 1 : 0);
        else if (strcmp(part, ".") != 0 && walk_enter(w, root, part) < 0)
            return ERR_READ;
        else if (w->depth && (last_link || rest[skip + len]) && is_link(w->fds[w->depth - 1])) {
            if (++links > LINKS_MAX || expand_link(w->fds[w->depth - 1], rest, skip + len) < 0)
                return ERR_READ;
            walk_truncate(w, w->depth - 1);
            continue;
        }
        skip += len;
        skip += strspn(rest + skip, "/"); /* a leading slash would mean the root */
        memmove(rest, rest + skip, strlen(rest + skip) + 1);
    }
    return ERR_READ;
}

/* Opens an O_PATH descriptor for reading, through /proc/self/fd, and closes it. The file type is checked before the
 * open because opening a device can have side effects. */
static int reopen(int fd)
{
    char path[64];
    struct stat st;
    int file = -1;

    if (fd < 0)
        return ERR_READ;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        file = open(path, OPEN_FLAGS);
    close(fd);
    return file >= 0 ? file : ERR_READ;
}

static int resolve_by_component(int root_fd, const char *path, bool last_link)
{
    struct walk w = {.depth = 0};
    char rest[PATH_ROOM];
    int root = root_fd >= 0 ? root_fd : open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = ERR_READ;

    w.view = root >= 0 ? helper_view(root) : 0;
    if (root >= 0 && snprintf(rest, sizeof(rest), "%s", path) < (int)sizeof(rest) &&
        walk_path(&w, root, rest, last_link) == 0)
        fd = w.fds[--w.depth];
    walk_truncate(&w, 0);
    if (root >= 0 && root != root_fd)
        close(root);
    return fd;
}

int open_in_root_without_openat2(int root_fd, const char *path)
{
    return reopen(resolve_by_component(root_fd, path, true));
}

/* openat2 fails with EAGAIN if a rename happens during the lookup. */
static int resolve_by_openat2(int root_fd, const char *path, bool last_link, int *ret_errno)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC | (last_link ? 0 : O_NOFOLLOW),
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int root = root_fd >= 0 ? root_fd : open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    long fd = -1;

    *ret_errno = EAGAIN;
    for (int i = 0; root >= 0 && i < EAGAIN_RETRIES && fd < 0 && *ret_errno == EAGAIN; i++) {
        fd = syscall(__NR_openat2, root, path, &how, sizeof(how));
        *ret_errno = fd < 0 ? errno : 0;
    }
    if (root >= 0 && root != root_fd)
        close(root);
    return (int)fd;
}

static int resolve(int root_fd, const char *path, bool last_link)
{
    int error, fd;

    if (helper_is_inside())
        return resolve_by_component(root_fd, path, last_link);
    fd = resolve_by_openat2(root_fd, path, last_link, &error);
    if (fd < 0 && (error == ENOSYS || error == EPERM || error == EINVAL))
        return resolve_by_component(root_fd, path, last_link);
    return fd >= 0 ? fd : ERR_READ;
}

int open_in_root_path(int root_fd, const char *path)
{
    return resolve(root_fd, path, true);
}

int open_in_root(int root_fd, const char *path)
{
    return reopen(resolve(root_fd, path, true));
}

/* With O_PATH and O_NOFOLLOW, the descriptor of a link is the link itself, and reopen() opens regular files only. */
int open_in_root_nofollow(int root_fd, const char *path)
{
    return reopen(resolve(root_fd, path, false));
}
