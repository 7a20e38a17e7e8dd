/*
 * Writes output files atomically. A file to be replaced stays unchanged until the new content is on the disk. No
 * function leaves a temporary file behind.
 */
#include "out/output_file.h"

#include "out/output_sink.h"
#include "out/temp_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OPEN_TRIES 8

enum output_file_method {
    OUTPUT_FILE_RENAME,    /* write a temporary file in the same directory and rename it */
    OUTPUT_FILE_OVERWRITE, /* overwrite the regular file open as `fd` */
    OUTPUT_FILE_STREAM,    /* append to the pipe, terminal or device open as `fd` */
};

struct output_file {
    char *path;
    char *dir;        /* the part before the last slash, or "." */
    const char *name; /* the part after it, within `path` */
    enum output_file_method method;
    int fd;          /* -1 with OUTPUT_FILE_RENAME */
    bool named_temp; /* temporary files need a name here: see temp_file.h */
    bool written;    /* the content of `fd` is ours and may be replaced */
    bool is_stdout;  /* our standard output */
    off_t begin;     /* start of our content in `fd`, if that is seekable */
    off_t end;       /* end of our content */
    bool has_owner;
    struct output_owner owner; /* of files that we create, if has_owner */
    output_sink_stalled stalled;
    void *stalled_arg;
};

/* ---- writing ---- */

/* A signal interrupts open(2) on some file systems, and where a seccomp supervisor decides about it. Not for ever: Ctrl-C must
 * get us out of a file system that does not answer. */
static int open_retrying(int dir, const char *path, int flags)
{
    int fd = -1;

    errno = EINTR;
    for (int i = 0; i < OPEN_TRIES && fd < 0 && errno == EINTR; i++)
        fd = openat(dir, path, flags, 0666);
    return fd;
}

static int fail_write(const struct output_file *file, int error, struct err_note *note)
{
    enum err_reason reason = error == EPIPE                       ? REASON_WRITE_NO_READER
                             : file->method == OUTPUT_FILE_RENAME ? REASON_WRITE
                                                                  : REASON_WRITE_IN_PLACE;

    return err_because(note, ERR_DISK, &(struct err_facts){.reason = reason, .path = file->path, .error = error});
}

static int fail_open(const struct output_file *file, enum err_reason reason, int error, struct err_note *note)
{
    return err_because(note, ERR_OUTPUT,
                       &(struct err_facts){.reason = reason, .path = file->path, .other = file->dir, .error = error});
}

static int fail_stalled(const struct output_file *file, uint64_t written, struct err_note *note)
{
    return err_because(
        note, ERR_INTERRUPTED,
        &(struct err_facts){.reason = REASON_WRITE_STALLED, .path = file->path, .number = (int64_t)written});
}

/* Writes the content to `fd` and syncs it. */
static int write_all(struct output_file *file, int fd, int (*fill)(FILE *, void *), void *arg, struct err_note *note)
{
    struct output_sink sink = {.fd = fd, .stalled = file->stalled, .arg = file->stalled_arg};
    FILE *out = output_sink_open(&sink);

    if (!out)
        return err_because(note, ERR_NOMEM, &(struct err_facts){.reason = REASON_OUTPUT_BUFFER, .path = file->path});
    int r = fill(out, arg);
    bool failed = ferror(out);
    failed |= fclose(out) != 0;
    if (sink.error == ECANCELED)
        return fail_stalled(file, sink.written, note);
    /* Our error comes first: `fill` may report the same failure, but without errno. */
    if (sink.error || (failed && r == 0))
        return fail_write(file, sink.error ? sink.error : EIO, note);
    if (r < 0)
        return r;
    /* Pipes and some file systems do not support fsync: EINVAL, EROFS and ENOTSUP are not write errors. */
    if (fsync(fd) < 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
        return fail_write(file, errno, note);
    return 0;
}

/* ---- OUTPUT_FILE_RENAME ---- */

static int open_dir(const struct output_file *file)
{
    int fd = open_retrying(AT_FDCWD, file->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    /* We may be allowed to write the directory but not to list it. O_PATH suffices, except for fsync. */
    if (fd < 0 && errno == EACCES)
        fd = open_retrying(AT_FDCWD, file->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd;
}

/* True if the file belongs to us or to the user who ran sudo. */
static bool is_own(const struct output_file *file, const struct stat *st)
{
    return st->st_uid == geteuid() || st->st_uid == getuid() || (file->has_owner && st->st_uid == file->owner.uid);
}

/* In a sticky directory such as /tmp, where anyone can create files, trust only our own and the directory owner's. */
static bool is_trusted(const struct output_file *file, const struct stat *st, const struct stat *dir)
{
    return is_own(file, st) || st->st_uid == dir->st_uid || !(dir->st_mode & S_ISVTX);
}

static bool is_directory(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Opens the path for writing if it is still the regular file `want`. Does not follow symlinks. */
static int open_if_same(const struct output_file *file, const struct stat *want)
{
    struct stat st;
    int fd = open_retrying(AT_FDCWD, file->path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_dev == want->st_dev && st.st_ino == want->st_ino)
        return fd;
    close(fd);
    errno = ELOOP;
    return -1;
}

/* Switches to OUTPUT_FILE_OVERWRITE if the file exists and is writable but cannot be replaced. Renaming over a bind mount
 * of a single file, for example, fails with EBUSY. */
static bool switch_to_overwrite(struct output_file *file)
{
    struct stat st, dir_st;

    if (lstat(file->path, &st) < 0 || !S_ISREG(st.st_mode) || stat(file->dir, &dir_st) < 0 ||
        !is_trusted(file, &st, &dir_st))
        return false;
    int fd = open_if_same(file, &st);
    if (fd < 0)
        return false;
    file->method = OUTPUT_FILE_OVERWRITE;
    file->fd = fd;
    file->written = true;
    return true;
}

/* Overwrites the open file from the start. Its old content is lost with the first write. */
static int overwrite_file(struct output_file *file, int (*fill)(FILE *, void *), void *arg, struct err_note *note)
{
    if (lseek(file->fd, 0, SEEK_SET) < 0)
        return fail_write(file, errno, note);
    int r = write_all(file, file->fd, fill, arg, note);
    off_t end = lseek(file->fd, 0, SEEK_CUR);
    /* On failure, empty the file rather than leave half of the content, unless nothing was written. */
    if (r < 0 && end <= 0)
        return r;
    if (ftruncate(file->fd, r < 0 ? 0 : end) < 0 && r == 0)
        r = fail_write(file, errno, note);
    file->written = true;
    return r;
}

/* Gives the new file mode and owner of the one that it replaces. Nobody must be able to read it who could not read that. */
static void keep_attributes(int fd, const struct stat *old)
{
    mode_t mode = old->st_mode & 0777;

    if (fchown(fd, old->st_uid, old->st_gid) < 0 && fchown(fd, (uid_t)-1, old->st_gid) < 0)
        mode &= ~(mode_t)070 | (mode & 07) << 3;
    if (fchmod(fd, mode) < 0)
        fchmod(fd, mode & 0700);
}

/* True if the path is a file whose mode and owner the new one must keep. */
static bool stat_old(const struct output_file *file, int dir, struct stat *ret)
{
    struct stat dir_st;

    return fstat(dir, &dir_st) == 0 && fstatat(dir, file->name, ret, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(ret->st_mode) && is_trusted(file, ret, &dir_st);
}

/* Writes the content to a temporary file and renames it. Returns like output_file_write; `ret_error` is an errno that concerns
 * the directory or the rename, or 0. */
static int replace(struct output_file *file, int dir, int (*fill)(FILE *, void *), void *arg, int *ret_error,
                   struct err_note *note)
{
    struct temp_file temp;
    struct stat old;
    bool keep = stat_old(file, dir, &old), again;
    int r;

    if (temp_file_open(dir, keep ? 0600 : 0666, file->named_temp, &temp) < 0) {
        *ret_error = errno;
        return errno == ENOSPC || errno == EDQUOT ? fail_write(file, errno, note)
                                                  : fail_open(file, REASON_OUTPUT_OPEN, errno, note);
    }
    if (keep)
        keep_attributes(temp.fd, &old);
    else if (file->has_owner && fchown(temp.fd, file->owner.uid, file->owner.gid) < 0)
        file->has_owner = false; /* some file systems do not support owners: write the file anyway */
    r = write_all(file, temp.fd, fill, arg, note);
    again = false;
    if (r == 0 && temp_file_publish(&temp, file->name) < 0) {
        again = !file->named_temp && !temp.name[0];
        *ret_error = errno;
        r = fail_open(file, REASON_OUTPUT_OPEN, errno, note);
    }
    temp_file_close(&temp);
    if (r == 0)
        fsync(dir);
    if (!again)
        return r;
    *ret_error = 0;
    file->named_temp = true;
    return replace(file, dir, fill, arg, ret_error, note);
}

static int write_rename(struct output_file *file, int (*fill)(FILE *, void *), void *arg, struct err_note *note)
{
    int error = 0, r, dir = open_dir(file);

    if (dir < 0) {
        error = errno;
        r = fail_open(file, REASON_OUTPUT_OPEN, error, note);
    } else {
        r = replace(file, dir, fill, arg, &error, note);
        close(dir);
    }
    /* These errors concern the directory or the rename. Overwriting the file may still work. */
    if (r < 0 && (error == EBUSY || error == EXDEV || error == EACCES) && switch_to_overwrite(file))
        return overwrite_file(file, fill, arg, note);
    return r;
}

/* ---- OUTPUT_FILE_OVERWRITE and OUTPUT_FILE_STREAM ---- */

/* True if the path still refers to the file we have open and its content is ours. */
static bool is_still_our_file(const struct output_file *file)
{
    struct stat held, there;

    if (fstat(file->fd, &held) < 0 || lstat(file->path, &there) < 0)
        return false;
    return held.st_dev == there.st_dev && held.st_ino == there.st_ino && (file->written || held.st_size == 0);
}

static int write_in_place(struct output_file *file, int (*fill)(FILE *, void *), void *arg, struct err_note *note)
{
    if (!is_still_our_file(file)) {
        close(file->fd);
        file->fd = -1;
        file->method = OUTPUT_FILE_RENAME;
        return write_rename(file, fill, arg, note);
    }
    return overwrite_file(file, fill, arg, note);
}

/* If the stream is a file (a shell redirection), the new content replaces our previous one, unless somebody else has
 * written after it. */
static int write_stream(struct output_file *file, int (*fill)(FILE *, void *), void *arg, struct err_note *note)
{
    off_t now = lseek(file->fd, 0, SEEK_CUR);
    int r;

    if (file->written && now >= 0 && now == file->end && ftruncate(file->fd, file->begin) == 0)
        now = lseek(file->fd, file->begin, SEEK_SET);
    file->begin = now;
    r = write_all(file, file->fd, fill, arg, note);
    file->end = lseek(file->fd, 0, SEEK_CUR);
    file->written = true;
    return r;
}

int output_file_write(struct output_file *file, int (*fill)(FILE *out, void *arg), void *arg, struct err_note *note)
{
    switch (file->method) {
    case OUTPUT_FILE_OVERWRITE:
        return write_in_place(file, fill, arg, note);
    case OUTPUT_FILE_STREAM:
        return write_stream(file, fill, arg, note);
    default:
        return write_rename(file, fill, arg, note);
    }
}

/* ---- opening ---- */

/* The descriptor that a path such as "/dev/fd/7" or "-" refers to, or -1. */
static int fd_of_path(const char *path)
{
    static const struct {
        const char *path;
        int fd;
    } names[] = {{"-", 1}, {"/dev/stdin", 0}, {"/dev/stdout", 1}, {"/dev/stderr", 2}};
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    char *end;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(path, names[i].path) == 0)
            return names[i].fd;
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        size_t n = strlen(folders[i]);
        if (strncmp(path, folders[i], n) != 0 || !isdigit((unsigned char)path[n]))
            continue;
        unsigned long fd = strtoul(path + n, &end, 10);
        if (*end == '\0' && fd <= INT_MAX)
            return (int)fd;
    }
    return -1;
}

static int open_fd(struct output_file *file, int fd, struct err_note *note)
{
    int mode = fcntl(fd, F_GETFL);

    if (mode < 0 || (mode & O_ACCMODE) == O_RDONLY)
        return fail_open(file, mode < 0 ? REASON_OUTPUT_FD_CLOSED : REASON_OUTPUT_FD_READ_ONLY, 0, note);
    file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (file->fd < 0)
        return fail_open(file, REASON_OUTPUT_OPEN, errno, note);
    file->fd = output_sink_unshare(file->fd);
    file->method = OUTPUT_FILE_STREAM;
    file->is_stdout = fd == STDOUT_FILENO;
    return 0;
}

/* A FIFO or a character device. Only root creates devices, but anyone a FIFO or a pseudoterminal: the profile must not go
 * to a user who has put one where we were told to write. */
static int open_stream(struct output_file *file, bool fifo, struct err_note *note)
{
    struct stat st;

    /* Without a reader a blocking open would wait for ever. */
    file->fd = open_retrying(AT_FDCWD, file->path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (file->fd < 0 && errno == ENXIO && fifo)
        return fail_open(file, REASON_OUTPUT_NO_READER, 0, note);
    if (file->fd < 0 || fstat(file->fd, &st) < 0)
        return fail_open(file, REASON_OUTPUT_OPEN, errno, note);
    if (!S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode))
        return fail_open(file, REASON_OUTPUT_REPLACED, 0, note);
    if ((S_ISFIFO(st.st_mode) || isatty(file->fd)) && st.st_uid != 0 && !is_own(file, &st))
        return fail_open(file, REASON_OUTPUT_NOT_OWN, 0, note);
    file->method = OUTPUT_FILE_STREAM;
    return 0;
}

/* True for an empty file that a program probably created for us and keeps open: it must keep its inode. */
static bool is_precreated(const struct output_file *file, const struct stat *st, const struct stat *dir)
{
    return S_ISREG(st->st_mode) && st->st_size == 0 && st->st_nlink == 1 && is_trusted(file, st, dir);
}

static int fail_dir(const struct output_file *file, int error, struct err_note *note)
{
    return fail_open(file, error == ENOENT ? REASON_OUTPUT_NO_DIRECTORY : REASON_OUTPUT_BAD_DIRECTORY, error, note);
}

/* Checks that we can create a temporary file and may replace the old file. */
static int check_rename(struct output_file *file, int dir, const struct stat *dir_st, const struct stat *old,
                        struct err_note *note)
{
    struct temp_file temp;
    bool sticky = dir_st->st_mode & S_ISVTX;

    if (old && sticky && geteuid() != 0 && old->st_uid != geteuid() && dir_st->st_uid != geteuid())
        return fail_open(file, REASON_OUTPUT_NOT_OWN, 0, note);
    if (temp_file_open(dir, 0600, false, &temp) == 0) {
        temp_file_close(&temp);
        return 0;
    }
    int error = errno;
    if ((error == EACCES || error == EPERM || error == EROFS) && old && switch_to_overwrite(file))
        return 0;
    return error == ENOSPC || error == EDQUOT ? fail_write(file, error, note) : fail_dir(file, error, note);
}

static int open_path(struct output_file *file, int dir, struct err_note *note)
{
    struct stat st, dir_st;

    if (fstat(dir, &dir_st) < 0)
        return fail_dir(file, errno, note);
    if (*file->name == '\0' || is_directory(dir, file->name))
        return fail_open(file, REASON_OUTPUT_IS_DIRECTORY, 0, note);
    if (fstatat(dir, file->name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT)
            return fail_open(file, REASON_OUTPUT_OPEN, errno, note);
        return check_rename(file, dir, &dir_st, NULL, note);
    }
    if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode))
        return open_stream(file, S_ISFIFO(st.st_mode), note);
    if (S_ISSOCK(st.st_mode) || S_ISBLK(st.st_mode))
        return fail_open(file, REASON_OUTPUT_NOT_REGULAR, 0, note);
    if (is_precreated(file, &st, &dir_st)) {
        int fd = open_if_same(file, &st);
        if (fd >= 0) {
            file->method = OUTPUT_FILE_OVERWRITE;
            file->fd = fd;
            return 0;
        }
    }
    return check_rename(file, dir, &dir_st, &st, note);
}

static int split_path(struct output_file *file)
{
    const char *slash = strrchr(file->path, '/');
    size_t n = slash == file->path ? 1 : slash ? (size_t)(slash - file->path) : 0;

    file->dir = slash ? strndup(file->path, n) : strdup(".");
    file->name = slash ? slash + 1 : file->path;
    return file->dir ? 0 : ERR_NOMEM;
}

static int open_any(struct output_file *file, struct err_note *note)
{
    int fd = fd_of_path(file->path);

    if (fd >= 0)
        return open_fd(file, fd, note);
    if (*file->path == '\0')
        return fail_open(file, REASON_OUTPUT_NO_NAME, 0, note);
    if (split_path(file) < 0)
        return err_because(note, ERR_NOMEM, &(struct err_facts){.reason = REASON_OUTPUT_PATH});
    int dir = open_dir(file);
    if (dir < 0)
        return fail_dir(file, errno, note);
    int r = open_path(file, dir, note);
    close(dir);
    return r;
}

int output_file_open(const char *path, const struct output_owner *owner, struct output_file **ret,
                     struct err_note *note)
{
    struct output_file *file = calloc(1, sizeof(*file));
    int r;

    if (!file || !(file->path = strdup(path))) {
        free(file);
        return err_because(note, ERR_NOMEM, &(struct err_facts){.reason = REASON_OUTPUT_PATH});
    }
    file->fd = -1;
    file->has_owner = owner != NULL;
    if (owner)
        file->owner = *owner;
    r = open_any(file, note);
    if (r < 0) {
        output_file_close(file);
        return r;
    }
    *ret = file;
    return 0;
}

void output_file_on_stall(struct output_file *file, output_sink_stalled stalled, void *arg)
{
    file->stalled = stalled;
    file->stalled_arg = arg;
}

struct output_file *output_file_close(struct output_file *file)
{
    if (!file)
        return NULL;
    if (file->fd >= 0)
        close(file->fd);
    free(file->dir);
    free(file->path);
    free(file);
    return NULL;
}

const char *output_file_path(const struct output_file *file)
{
    return file->path;
}

bool output_file_is_stdout(const struct output_file *file)
{
    return file->is_stdout;
}

/* ---- the default name ---- */

void output_file_default_name(char *buf, size_t n, const char *base, const char *extension, time_t now)
{
    char name[64], when[32] = "";
    const char *slash = strrchr(base, '/');
    struct tm tm;
    size_t i = 0;

    for (const char *s = slash ? slash + 1 : base; *s && i < sizeof(name) - 1; s++, i++)
        name[i] = isalnum((unsigned char)*s) || (i > 0 && strchr("._+-", *s)) ? *s : '_';
    name[i] = '\0';
    if (localtime_r(&now, &tm))
        strftime(when, sizeof(when), "%Y-%m-%dT%H%M%S", &tm);
    snprintf(buf, n, "%s-%s.%s", i ? name : "profile", when, extension);
}
