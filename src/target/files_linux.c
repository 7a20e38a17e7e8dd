/*
 * Paths of a target -> descriptors. Called wherever a file of the target is needed: by target/image.c for symbols, by
 * target/mem_core.c for memory that a core file leaves out, by sample/shorten.c.
 */
#include "target/files.h"

#include "target/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_PATH  4096
#define MAX_LINKS 40 /* as the kernel */

int files_open_root(const char *dir, struct files *ret, struct err_note *note)
{
    struct files f = {.root = open(dir ? dir : "/", O_PATH | O_DIRECTORY | O_CLOEXEC)};

    if (f.root < 0) {
        err_note_what(note, ERR_CORE, "cannot open the directory %s: %s", dir ? dir : "/", strerror(errno));
        err_note_hint(note, "Give with --root a directory that holds the files of the machine or container.");
        return ERR_CORE;
    }
    f.root_path = dir ? realpath(dir, NULL) : NULL;
    if (f.root_path && strcmp(f.root_path, "/") == 0) {
        free(f.root_path);
        f.root_path = NULL;
    }
    *ret = f;
    return 0;
}

void files_open_live(pid_t pid, struct files *ret)
{
    char link[64], path[MAX_PATH];
    ssize_t len;

    snprintf(link, sizeof(link), "/proc/%d/root", (int)pid);
    len = readlink(link, path, sizeof(path) - 1);
    *ret = (struct files){.pid = pid, .root = -1};
    if (len > 1)
        ret->root_path = strndup(path, (size_t)len);
}

void files_close(struct files *f)
{
    if (!f->pid && f->root >= 0)
        close(f->root);
    free(f->root_path);
    free(f->exe_path);
    *f = (struct files){.root = -1};
}

/* A path that is being resolved by hand: `done` has no links and no dots in it, `rest` is still to be looked at. */
struct walk {
    char done[MAX_PATH], rest[MAX_PATH];
    int links;
};

/* A link's text takes the place of its name. */
static int follow(struct walk *w, const char *text, size_t len)
{
    char rest[MAX_PATH];

    if (++w->links > MAX_LINKS)
        return ELOOP;
    if (len + 1 + strlen(w->rest) >= sizeof(rest))
        return ENAMETOOLONG;
    memcpy(rest, text, len);
    rest[len] = '/';
    strcpy(rest + len + 1, w->rest);
    strcpy(w->rest, rest);
    if (text[0] == '/')
        w->done[0] = '\0';
    else
        *strrchr(w->done, '/') = '\0';
    return 0;
}

/* Takes the first name off `rest` and goes there. */
static int step(int root, struct walk *w)
{
    char name[MAX_PATH], text[MAX_PATH];
    size_t skip = strspn(w->rest, "/"), len = strcspn(w->rest + skip, "/"), at = strlen(w->done);
    ssize_t n;

    memcpy(name, w->rest + skip, len);
    name[len] = '\0';
    memmove(w->rest, w->rest + skip + len, strlen(w->rest + skip + len) + 1);
    if (len == 0 || strcmp(name, ".") == 0)
        return 0;
    if (strcmp(name, "..") == 0) {
        if (at)
            *strrchr(w->done, '/') = '\0';
        return 0;
    }
    if (at + 1 + len >= sizeof(w->done))
        return ENAMETOOLONG;
    w->done[at] = '/';
    memcpy(w->done + at + 1, name, len + 1);
    n = readlinkat(root, w->done + 1, text, sizeof(text));
    return n > 0 ? follow(w, text, (size_t)n) : 0;
}

/* For kernels before 5.6 and filters that do not know openat2. */
static int open_by_walk(int root, const char *path, int flags)
{
    struct walk w = {.links = 0};
    int error = 0;

    if (strlen(path) >= sizeof(w.rest)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(w.rest, path);
    while (w.rest[0] && error == 0)
        error = step(root, &w);
    if (error) {
        errno = error;
        return -1;
    }
    return openat(root, w.done[0] ? w.done + 1 : ".", flags | O_NOFOLLOW);
}

static int open_beneath(int root, const char *path, int flags)
{
    struct open_how how = {.flags = (unsigned)flags, .resolve = RESOLVE_IN_ROOT};
    int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));

    if (fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EINVAL))
        fd = open_by_walk(root, path, flags);
    return fd;
}

/* Opening a device can do things: looked at first. */
static int open_regular(int root, const char *path)
{
    int fd = open_beneath(root, path, O_PATH | O_CLOEXEC);
    struct stat st;
    bool regular;

    if (fd < 0)
        return -1;
    regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    close(fd);
    if (!regular) {
        errno = ENOENT;
        return -1;
    }
    return open_beneath(root, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/* The user's own word, not the target's: links lead where they lead. */
static int open_own(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;

    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        errno = ENOENT;
        return -1;
    }
    return fd;
}

static int open_live(pid_t pid, const char *path)
{
    char root_path[64];
    int root, fd;

    snprintf(root_path, sizeof(root_path), "/proc/%d/root", (int)pid);
    root = open(root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return -1;
    fd = open_regular(root, path);
    close(root);
    return fd;
}

/* A debugger outside of a chroot or container writes the paths as it sees them: below the root's own path. */
static const char *inside(const struct files *f, const char *path)
{
    size_t len = f->root_path ? strlen(f->root_path) : 0;

    return len && strncmp(path, f->root_path, len) == 0 && path[len] == '/' ? path + len : NULL;
}

const char *files_inside(const struct files *f, const char *path)
{
    return inside(f, path) ? inside(f, path) : path;
}

int files_open(const struct files *f, const char *path)
{
    int fd;

    if (f->pid) {
        fd = open_live(f->pid, path);
        return fd < 0 && inside(f, path) ? open_live(f->pid, inside(f, path)) : fd;
    }
    if (f->exe_own && f->exe_path && strcmp(path, f->exe_path) == 0)
        return open_own(f->exe_own);
    fd = f->root < 0 ? -1 : open_regular(f->root, path);
    if (fd < 0 && f->root >= 0 && inside(f, path))
        fd = open_regular(f->root, inside(f, path));
    return fd;
}

bool files_exist(const struct files *f, const char *path)
{
    char live[8192];
    int n, fd;

    if (f->pid) {
        n = snprintf(live, sizeof(live), "/proc/%d/root%s", (int)f->pid, path);
        return n > 0 && (size_t)n < sizeof(live) && access(live, F_OK) == 0;
    }
    fd = f->root < 0 ? -1 : open_beneath(f->root, path, O_PATH | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

int files_exe_read(const struct files *f, char **ret_path)
{
    char *copy;

    if (f->pid)
        return proc_exe_read(f->pid, ret_path);
    copy = f->exe_path ? strdup(f->exe_path) : NULL;
    if (!copy)
        return f->exe_path ? ERR_NOMEM : ERR_READ;
    *ret_path = copy;
    return 0;
}
