/*
 * Writes output files atomically. A file to be replaced stays unchanged until the new content is on the disk. No
 * function leaves a temporary file behind.
 */
#include "out/output_file.h"

#include "base/clock.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
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
    int fd;         /* -1 with OUTPUT_FILE_RENAME */
    bool written;   /* the content of `fd` is ours and may be replaced */
    bool is_stdout; /* our is_stdout output */
    off_t begin;    /* start of our content in `fd`, if that is seekable */
    off_t end;      /* end of our content */
    bool has_owner;
    uid_t uid; /* owner of files that we create, if has_owner */
    gid_t gid;
};

/* Remembers the first write error, whose errno stdio does not keep. */
struct sink {
    int fd;
    int error;
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

static ssize_t sink_write(void *cookie, const char *buf, size_t n)
{
    struct sink *s = cookie;
    size_t done = 0;

    while (done < n && !s->error) {
        ssize_t r = write(s->fd, buf + done, n - done);
        if (r > 0)
            done += (size_t)r;
        else if (r < 0 && errno == EAGAIN)
            poll(&(struct pollfd){.fd = s->fd, .events = POLLOUT}, 1, -1);
        else if (r < 0 && errno != EINTR)
            s->error = errno;
        else if (r == 0)
            s->error = EIO;
    }
    return s->error ? 0 : (ssize_t)done; /* fopencookie: 0 means error */
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

/* Writes the content to `fd` and syncs it. */
static int write_all(struct output_file *file, int fd, int (*fill)(FILE *, void *), void *arg, struct err_note *note)
{
    struct sink sink = {.fd = fd};
    FILE *out = fopencookie(&sink, "w", (cookie_io_functions_t){.write = sink_write});

    if (!out)
        return err_because(note, ERR_NOMEM, &(struct err_facts){.reason = REASON_OUTPUT_BUFFER, .path = file->path});
    setvbuf(out, NULL, _IOFBF, 1 << 16);
    int r = fill(out, arg);
    bool failed = ferror(out);
    failed |= fclose(out) != 0;
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

/* The name of a temporary file. Not derived from the name of the file, which may already have the maximum length. */
struct temp_name {
    char text[40];
};

/* getrandom needs Linux 3.17. A poor number only costs retries, since the file is created with O_EXCL. */
static uint64_t random_number(void)
{
    uint64_t number;
    struct timespec now = {0};

    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) == sizeof(number))
        return number;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec << 16 ^ (uint64_t)getpid();
}

static int open_temp(int dir, struct temp_name *ret)
{
    int fd = -1;

    for (int i = 0; i < 16 && fd < 0; i++) {
        uint64_t random = random_number();

        snprintf(ret->text, sizeof(ret->text), ".spyglass-%016" PRIx64 ".tmp", random);
        fd = open_retrying(dir, ret->text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && errno != EEXIST)
            return -1;
    }
    return fd;
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
    struct stat st;

    if (lstat(file->path, &st) < 0 || !S_ISREG(st.st_mode))
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

static int write_rename(struct output_file *file, int (*fill)(FILE *, void *), void *arg, struct err_note *note)
{
    struct temp_name temp;
    int error = 0, fd = -1, r = 0;
    int dir = open_dir(file);

    if (dir < 0 || (fd = open_temp(dir, &temp)) < 0) {
        error = errno;
        r = error == ENOSPC || error == EDQUOT ? fail_write(file, error, note)
                                               : fail_open(file, REASON_OUTPUT_OPEN, error, note);
        goto out;
    }
    /* Some file systems do not support owners. Write the file anyway. */
    if (file->has_owner && fchown(fd, file->uid, file->gid) < 0)
        file->has_owner = false;
    r = write_all(file, fd, fill, arg, note);
    if (close(fd) < 0 && r == 0)
        r = fail_write(file, errno, note);
    if (r == 0 && renameat(dir, temp.text, dir, file->name) < 0) {
        error = errno;
        r = fail_open(file, REASON_OUTPUT_OPEN, error, note);
    }
    if (r < 0)
        unlinkat(dir, temp.text, 0);
    else
        fsync(dir);
out:
    if (dir >= 0)
        close(dir);
    /* These errors concern the directory or the rename. Overwriting the file may still work. */
    if ((error == EBUSY || error == EXDEV || error == EACCES) && switch_to_overwrite(file))
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
    file->method = OUTPUT_FILE_STREAM;
    file->is_stdout = fd == STDOUT_FILENO;
    return 0;
}

/* A FIFO or a character device. */
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
    file->method = OUTPUT_FILE_STREAM;
    return 0;
}

/* True for an empty file that a program probably created for us and keeps open: it must keep its inode. In a sticky
 * directory such as /tmp, where anyone can create files, only our own files and the directory owner's count. */
static bool is_precreated(const struct stat *st, const struct stat *dir)
{
    bool own = st->st_uid == geteuid() || st->st_uid == getuid() || st->st_uid == dir->st_uid;

    return S_ISREG(st->st_mode) && st->st_size == 0 && st->st_nlink == 1 && (own || !(dir->st_mode & S_ISVTX));
}

static int fail_dir(const struct output_file *file, int error, struct err_note *note)
{
    return fail_open(file, error == ENOENT ? REASON_OUTPUT_NO_DIRECTORY : REASON_OUTPUT_BAD_DIRECTORY, error, note);
}

/* Checks that we can create a temporary file and may replace the old file. */
static int check_rename(struct output_file *file, int dir, const struct stat *dir_st, const struct stat *old,
                        struct err_note *note)
{
    struct temp_name temp;
    bool sticky = dir_st->st_mode & S_ISVTX;

    if (old && sticky && geteuid() != 0 && old->st_uid != geteuid() && dir_st->st_uid != geteuid())
        return fail_open(file, REASON_OUTPUT_NOT_OWN, 0, note);
    int fd = open_temp(dir, &temp);
    if (fd >= 0) {
        close(fd);
        unlinkat(dir, temp.text, 0);
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
    if (is_precreated(&st, &dir_st)) {
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

int output_file_open(const char *path, struct output_file **ret, struct err_note *note)
{
    struct output_file *file = calloc(1, sizeof(*file));
    int r;

    if (!file || !(file->path = strdup(path))) {
        free(file);
        return err_because(note, ERR_NOMEM, &(struct err_facts){.reason = REASON_OUTPUT_PATH});
    }
    file->fd = -1;
    r = open_any(file, note);
    if (r < 0) {
        output_file_close(file);
        return r;
    }
    *ret = file;
    return 0;
}

void output_file_set_owner(struct output_file *file, uid_t uid, gid_t gid)
{
    file->has_owner = true;
    file->uid = uid;
    file->gid = gid;
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
        strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(buf, n, "%s-%s.%s", i ? name : "profile", when, extension);
}
