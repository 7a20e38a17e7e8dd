/*
 * Paths of a target -> file descriptors.
 */
#include "target/files.h"

#include "base/log.h"
#include "base/open_in_root.h"
#include "target/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_PATH 4096

int files_open_root(const char *dir, struct files *ret, struct err_note *note)
{
    struct files f = {.root = open(dir ? dir : "/", O_PATH | O_DIRECTORY | O_CLOEXEC)};

    if (f.root < 0)
        return err_because(note, ERR_CORE,
                           &(struct err_facts){.reason = REASON_ROOT_OPEN, .path = dir ? dir : "/", .error = errno});
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

    snprintf(link, sizeof(link), "/proc/%d/root", (int)proc_live_thread(pid));
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

static int open_regular(int root, const char *path)
{
    int fd = open_in_root(root, path);

    if (fd >= 0)
        return fd;
    errno = ENOENT;
    return -1;
}

/* This path comes from the user, not from the target, so symbolic links are fine. */
static int open_user_path(const char *path)
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

static int open_live_root(pid_t pid)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/root", (int)proc_live_thread(pid));
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static int open_live(pid_t pid, const char *path)
{
    int root = open_live_root(pid), fd;

    if (root < 0)
        return -1;
    fd = open_regular(root, path);
    close(root);
    return fd;
}

/* A debugger outside of a chroot or container records paths as it sees them: with the path of the root in front. */
static const char *strip_root(const struct files *f, const char *path)
{
    size_t len = f->root_path ? strlen(f->root_path) : 0;

    return len && strncmp(path, f->root_path, len) == 0 && path[len] == '/' ? path + len : NULL;
}

const char *files_inside(const struct files *f, const char *path)
{
    return strip_root(f, path) ? strip_root(f, path) : path;
}

int files_open(const struct files *f, const char *path)
{
    int fd;

    if (f->pid) {
        fd = open_live(f->pid, path);
        return fd < 0 && strip_root(f, path) ? open_live(f->pid, strip_root(f, path)) : fd;
    }
    if (f->exe_override && f->exe_path && strcmp(path, f->exe_path) == 0)
        return open_user_path(f->exe_override);
    fd = f->root < 0 ? -1 : open_regular(f->root, path);
    if (fd < 0 && f->root >= 0 && strip_root(f, path))
        fd = open_regular(f->root, strip_root(f, path));
    return fd;
}

/* Files that were unpacked for a core file (--root) belong to the user who did that. */
static bool is_owner(const struct files *f, uid_t uid)
{
    struct proc_status st;

    if (uid == 0)
        return true;
    if (!f->pid)
        return uid == f->uid || uid == geteuid();
    return proc_status_read(f->pid, 0, &st) == 0 && uid == st.uid_effective;
}

int files_open_own(const struct files *f, const char *path)
{
    int root = f->pid ? open_live_root(f->pid) : f->root;
    int fd = root < 0 ? -1 : open_in_root_nofollow(root, path);
    struct stat st;

    if (f->pid && root >= 0)
        close(root);
    if (fd >= 0 && fstat(fd, &st) == 0 && is_owner(f, st.st_uid))
        return fd;
    if (fd >= 0) {
        log_often(LOG_LEVEL_WARNING, "symbols", f->pid, "%s: belongs to another user, not read", path);
        close(fd);
    }
    errno = ENOENT;
    return -1;
}

bool files_exist(const struct files *f, const char *path)
{
    int root = f->pid ? open_live_root(f->pid) : f->root;
    int fd = root < 0 ? -1 : open_in_root_path(root, path);

    if (fd >= 0)
        close(fd);
    if (f->pid && root >= 0)
        close(root);
    return fd >= 0;
}

void files_pack(struct pack *p, const struct files *f)
{
    pack_number(p, (uint64_t)f->pid);
    pack_number(p, f->root >= 0);
    pack_number(p, f->uid);
    pack_text(p, f->root_path);
    pack_text(p, f->exe_path);
    pack_text(p, f->exe_override);
}

/* A helper that was started before has none of our descriptors: open the root again, by its path. */
void files_unpack(struct unpack *u, struct files *ret)
{
    struct files f = {.pid = (pid_t)unpack_number(u), .root = -1};
    bool has_root = unpack_number(u);
    uid_t uid = (uid_t)unpack_number(u);
    const char *root_path = unpack_text(u), *exe_path = unpack_text(u);

    f.uid = uid;
    f.exe_override = unpack_text(u);
    f.root_path = root_path ? strdup(root_path) : NULL;
    f.exe_path = exe_path ? strdup(exe_path) : NULL;
    if (!f.pid && has_root)
        f.root = open(root_path ? root_path : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    *ret = f;
}

struct helper_about files_about(const struct files *f, const char *path)
{
    return (struct helper_about){.pid = f->pid, .path = path};
}

/* In the helper. */
static int run_check(struct unpack *in, struct pack *out)
{
    struct files files;
    const char *path;
    char byte;
    int fd;

    (void)out;
    files_unpack(in, &files);
    path = unpack_text(in);
    fd = path ? files_open(&files, path) : -1;
    files_close(&files);
    if (fd < 0)
        return ERR_READ; /* missing, or known to be on a file system that does not answer */
    if (pread(fd, &byte, 1, 0) < 0)
        log_debug("files", "%s: %s", path, strerror(errno));
    close(fd);
    return 0;
}

int files_open_checked(const struct files *f, const char *path)
{
    struct helper_about about = files_about(f, path);
    struct pack in = {0};
    int r;

    if (!f->pid && f->root < 0)
        return files_open(f, path);
    files_pack(&in, f);
    pack_text(&in, path);
    r = helper_call(run_check, &in, &about, NULL);
    pack_free(&in);
    return r == 0 ? files_open(f, path) : -1;
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
