/*
 * A path -> whole content, or nothing. Called by cmd/record: output_file_open before sampling, output_file_write
 * at each snapshot and at the end. A file that is to be replaced stays as it was until its successor is
 * on the disk; no temporary file survives a return from here.
 */
#include "out/output_file.h"

#include "base/clock.h"
#include "base/text.h"

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

enum output_file_method {
    OUTPUT_FILE_RENAME, /* a temporary beside it, renamed over it */
    OUTPUT_FILE_FILE,   /* a regular file, held open as fd, overwritten */
    OUTPUT_FILE_STREAM, /* a pipe, terminal or device, held open as fd */
};

struct output_file {
    char *path;
    char *dir;        /* "." or the part before the last slash */
    const char *name; /* the part after it, within path */
    enum output_file_method way;
    int fd;        /* -1 with OUTPUT_FILE_RENAME */
    bool written;  /* by us: the content of fd is ours to replace */
    bool standard; /* the descriptor 1 of this process */
    off_t begin;   /* where our content begins in fd; what is before it is not ours */
    off_t end;     /* where our last content ended */
    bool has_owner;
    uid_t uid; /* who what we create belongs to */
    gid_t gid;
};

/* What one filling wrote. Collects the first error, which stdio would forget. */
struct sink {
    int fd;
    int error;
};

/* ---- writing ---- */

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
    return s->error ? 0 : (ssize_t)done; /* 0 is what fopencookie takes for an error */
}

static int fail_write(const struct output_file *pl, int error, struct err_note *note)
{
    err_note_what(note, ERR_DISK, "'%s': %s", text_safe(pl->path).s, strerror(error));
    if (error == EPIPE)
        err_note_hint(note, "Who read from it has gone away.");
    else if (pl->way != OUTPUT_FILE_RENAME)
        err_note_hint(note, "Free some space or give another place with -o FILE.");
    return ERR_DISK;
}

static int fail_place(const struct output_file *pl, const char *why, struct err_note *note)
{
    return err_note_what(note, ERR_OUTPUT, "'%s': %s", text_safe(pl->path).s, why);
}

/* Content -> fd, and from there to the disk. */
static int write_all(struct output_file *pl, int fd, int (*fill)(FILE *, void *), void *arg, struct err_note *note)
{
    struct sink sink = {.fd = fd};
    FILE *out = fopencookie(&sink, "w", (cookie_io_functions_t){.write = sink_write});

    if (!out)
        return err_note_what(note, ERR_NOMEM, "no buffer for '%s'", text_safe(pl->path).s);
    setvbuf(out, NULL, _IOFBF, 1 << 16);
    int r = fill(out, arg);
    bool failed = ferror(out);
    failed |= fclose(out) != 0;
    /* A filling that noticed the full disk reports it in its own words: ours name the cause. */
    if (sink.error || (failed && r == 0))
        return fail_write(pl, sink.error ? sink.error : EIO, note);
    if (r < 0)
        return r;
    /* Pipes and some file systems know no fsync: EINVAL, EROFS or ENOTSUP say nothing about the content. */
    if (fsync(fd) < 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
        return fail_write(pl, errno, note);
    return 0;
}

/* ---- the way by rename ---- */

static int open_dir(const struct output_file *pl)
{
    int fd = open(pl->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    /* A directory that may be written but not listed; fsync has no use for this kind. */
    if (fd < 0 && errno == EACCES)
        fd = open(pl->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd;
}

/* The name of a temporary: not made from the file's own, which may be as long as names can be. */
struct temp_name {
    char text[40];
};

/* Linux has getrandom since 3.17. Nothing but time depends on the number: the file must not exist (O_EXCL). */
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
        fd = openat(dir, ret->text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
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

/* Opens the regular file at the path, unless it is a link or another file than `want`. */
static int open_same(const struct output_file *pl, const struct stat *want)
{
    struct stat st;
    int fd = open(pl->path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_dev == want->st_dev && st.st_ino == want->st_ino)
        return fd;
    close(fd);
    errno = ELOOP;
    return -1;
}

static void hold_file(struct output_file *pl, int fd)
{
    pl->way = OUTPUT_FILE_FILE;
    pl->fd = fd;
}

/* The file is there and writable, but cannot be replaced (a mount of a single file gives EBUSY). */
static bool take_in_place(struct output_file *pl)
{
    struct stat st;

    if (lstat(pl->path, &st) < 0 || !S_ISREG(st.st_mode))
        return false;
    int fd = open_same(pl, &st);
    if (fd < 0)
        return false;
    hold_file(pl, fd);
    pl->written = true;
    return true;
}

/* The file that is held, from its beginning; what was there is gone when this begins to write. */
static int overwrite_file(struct output_file *pl, int (*fill)(FILE *, void *), void *arg, struct err_note *note)
{
    if (lseek(pl->fd, 0, SEEK_SET) < 0)
        return fail_write(pl, errno, note);
    int r = write_all(pl, pl->fd, fill, arg, note);
    off_t end = lseek(pl->fd, 0, SEEK_CUR);
    /* Half a content is worse than none; one that was not even touched stays. */
    if (r < 0 && end <= 0)
        return r;
    if (ftruncate(pl->fd, r < 0 ? 0 : end) < 0 && r == 0)
        r = fail_write(pl, errno, note);
    pl->written = true;
    return r;
}

/* Errors of rename that tell of the place, not of the disk. */
static bool is_unmovable(int error)
{
    return error == EBUSY || error == EXDEV || error == EACCES;
}

static int write_rename(struct output_file *pl, int (*fill)(FILE *, void *), void *arg, struct err_note *note)
{
    struct temp_name temp;
    int error = 0, fd = -1, r = 0;
    int dir = open_dir(pl);

    if (dir < 0 || (fd = open_temp(dir, &temp)) < 0) {
        error = errno;
        r = error == ENOSPC || error == EDQUOT ? fail_write(pl, error, note) : fail_place(pl, strerror(error), note);
        goto out;
    }
    /* Where it cannot be given away (a file system without owners) it is written all the same. */
    if (pl->has_owner && fchown(fd, pl->uid, pl->gid) < 0)
        pl->has_owner = false;
    r = write_all(pl, fd, fill, arg, note);
    if (close(fd) < 0 && r == 0)
        r = fail_write(pl, errno, note);
    if (r == 0 && renameat(dir, temp.text, dir, pl->name) < 0) {
        error = errno;
        r = fail_place(pl, strerror(error), note);
    }
    if (r < 0)
        unlinkat(dir, temp.text, 0);
    else
        fsync(dir);
out:
    if (dir >= 0)
        close(dir);
    if (is_unmovable(error) && take_in_place(pl))
        return overwrite_file(pl, fill, arg, note);
    return r;
}

/* ---- the ways in place ---- */

/* The path still leads to the file that we hold, and what is in it is ours. */
static bool is_still_ours(const struct output_file *pl)
{
    struct stat held, there;

    if (fstat(pl->fd, &held) < 0 || lstat(pl->path, &there) < 0)
        return false;
    return held.st_dev == there.st_dev && held.st_ino == there.st_ino && (pl->written || held.st_size == 0);
}

static int write_file(struct output_file *pl, int (*fill)(FILE *, void *), void *arg, struct err_note *note)
{
    if (!is_still_ours(pl)) {
        close(pl->fd);
        pl->fd = -1;
        pl->way = OUTPUT_FILE_RENAME;
        return write_rename(pl, fill, arg, note);
    }
    return overwrite_file(pl, fill, arg, note);
}

/* A stream that is a redirected file: the newest content takes the place of the one before it, provided
 * that nothing else was written behind it. */
static void rewind_stream(struct output_file *pl)
{
    off_t now = lseek(pl->fd, 0, SEEK_CUR);

    if (pl->written && now >= 0 && now == pl->end && ftruncate(pl->fd, pl->begin) == 0)
        now = lseek(pl->fd, pl->begin, SEEK_SET);
    pl->begin = now;
}

static int write_stream(struct output_file *pl, int (*fill)(FILE *, void *), void *arg, struct err_note *note)
{
    rewind_stream(pl);
    int r = write_all(pl, pl->fd, fill, arg, note);
    pl->end = lseek(pl->fd, 0, SEEK_CUR);
    pl->written = true;
    return r;
}

int output_file_write(struct output_file *pl, int (*fill)(FILE *out, void *arg), void *arg, struct err_note *note)
{
    switch (pl->way) {
    case OUTPUT_FILE_FILE:
        return write_file(pl, fill, arg, note);
    case OUTPUT_FILE_STREAM:
        return write_stream(pl, fill, arg, note);
    default:
        return write_rename(pl, fill, arg, note);
    }
}

/* ---- opening ---- */

/* The number in "/dev/fd/7" and its other spellings, or -1. */
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

static int open_fd(struct output_file *pl, int fd, struct err_note *note)
{
    int mode = fcntl(fd, F_GETFL);

    if (mode < 0 || (mode & O_ACCMODE) == O_RDONLY)
        return fail_place(pl, mode < 0 ? "this descriptor is not open" : "this descriptor is not open for writing",
                          note);
    pl->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (pl->fd < 0)
        return fail_place(pl, strerror(errno), note);
    pl->way = OUTPUT_FILE_STREAM;
    pl->standard = fd == STDOUT_FILENO;
    return 0;
}

/* A FIFO or a character device. */
static int open_stream(struct output_file *pl, bool fifo, struct err_note *note)
{
    struct stat st;

    /* Without a reader a blocking open would wait for ever. */
    pl->fd = open(pl->path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (pl->fd < 0 && errno == ENXIO && fifo) {
        fail_place(pl, "nobody reads from this FIFO", note);
        err_note_hint(note, "Start its reader first, or give another place with -o FILE.");
        return ERR_OUTPUT;
    }
    if (pl->fd < 0 || fstat(pl->fd, &st) < 0)
        return fail_place(pl, strerror(errno), note);
    if (!S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode))
        return fail_place(pl, "it was replaced while it was opened", note);
    pl->way = OUTPUT_FILE_STREAM;
    return 0;
}

/* An empty file may be one that the caller holds open and will read: its inode must stay. Where anyone
 * may plant files (/tmp), one of somebody else is replaced instead. */
static bool is_handed_over(const struct stat *file, const struct stat *dir)
{
    bool own = file->st_uid == geteuid() || file->st_uid == getuid() || file->st_uid == dir->st_uid;

    return S_ISREG(file->st_mode) && file->st_size == 0 && file->st_nlink == 1 && (own || !(dir->st_mode & S_ISVTX));
}

static int fail_dir(const struct output_file *pl, int error, struct err_note *note)
{
    err_note_what(note, ERR_OUTPUT, "'%s': the directory '%s' %s%s", text_safe(pl->path).s, text_safe(pl->dir).s,
                  error == ENOENT ? "does not exist" : "cannot be used: ", error == ENOENT ? "" : strerror(error));
    if (error == ENOENT)
        err_note_hint(note, "Create it, or give another place with -o FILE.");
    return ERR_OUTPUT;
}

/* Proves that a temporary can be made, and that the old file is one that we may replace. */
static int prove_rename(struct output_file *pl, int dir, const struct stat *dir_st, const struct stat *old,
                        struct err_note *note)
{
    struct temp_name temp;
    bool sticky = dir_st->st_mode & S_ISVTX;

    if (old && sticky && geteuid() != 0 && old->st_uid != geteuid() && dir_st->st_uid != geteuid())
        return fail_place(pl, "the file there belongs to another user", note);
    int fd = open_temp(dir, &temp);
    if (fd >= 0) {
        close(fd);
        unlinkat(dir, temp.text, 0);
        return 0;
    }
    int error = errno;
    if ((error == EACCES || error == EPERM || error == EROFS) && old && take_in_place(pl))
        return 0;
    return error == ENOSPC || error == EDQUOT ? fail_write(pl, error, note) : fail_dir(pl, error, note);
}

static int open_path(struct output_file *pl, int dir, struct err_note *note)
{
    struct stat st, dir_st;

    if (fstat(dir, &dir_st) < 0)
        return fail_dir(pl, errno, note);
    if (*pl->name == '\0' || is_directory(dir, pl->name))
        return fail_place(pl, "it is a directory", note);
    if (fstatat(dir, pl->name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT)
            return fail_place(pl, strerror(errno), note);
        return prove_rename(pl, dir, &dir_st, NULL, note);
    }
    if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode))
        return open_stream(pl, S_ISFIFO(st.st_mode), note);
    if (S_ISSOCK(st.st_mode) || S_ISBLK(st.st_mode))
        return fail_place(pl, "it is neither a file, a FIFO nor a character device", note);
    if (is_handed_over(&st, &dir_st)) {
        int fd = open_same(pl, &st);
        if (fd >= 0) {
            hold_file(pl, fd);
            return 0;
        }
    }
    return prove_rename(pl, dir, &dir_st, &st, note);
}

static int split_path(struct output_file *pl)
{
    const char *slash = strrchr(pl->path, '/');
    size_t n = slash == pl->path ? 1 : slash ? (size_t)(slash - pl->path) : 0;

    pl->dir = slash ? strndup(pl->path, n) : strdup(".");
    pl->name = slash ? slash + 1 : pl->path;
    return pl->dir ? 0 : ERR_NOMEM;
}

static int open_any(struct output_file *pl, struct err_note *note)
{
    int fd = fd_of_path(pl->path);

    if (fd >= 0)
        return open_fd(pl, fd, note);
    if (*pl->path == '\0')
        return fail_place(pl, "the name is empty", note);
    if (split_path(pl) < 0)
        return err_note_what(note, ERR_NOMEM, "no room for a path");
    int dir = open_dir(pl);
    if (dir < 0)
        return fail_dir(pl, errno, note);
    int r = open_path(pl, dir, note);
    close(dir);
    return r;
}

int output_file_open(const char *path, struct output_file **ret, struct err_note *note)
{
    struct output_file *pl = calloc(1, sizeof(*pl));
    int r;

    if (!pl || !(pl->path = strdup(path))) {
        free(pl);
        return err_note_what(note, ERR_NOMEM, "no room for a path");
    }
    pl->fd = -1;
    r = open_any(pl, note);
    if (r < 0) {
        output_file_close(pl);
        return r;
    }
    *ret = pl;
    return 0;
}

void output_file_set_owner(struct output_file *pl, uid_t uid, gid_t gid)
{
    pl->has_owner = true;
    pl->uid = uid;
    pl->gid = gid;
}

struct output_file *output_file_close(struct output_file *pl)
{
    if (!pl)
        return NULL;
    if (pl->fd >= 0)
        close(pl->fd);
    free(pl->dir);
    free(pl->path);
    free(pl);
    return NULL;
}

const char *output_file_path(const struct output_file *pl)
{
    return pl->path;
}

bool output_file_is_stdout(const struct output_file *pl)
{
    return pl->standard;
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
