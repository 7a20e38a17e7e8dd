/*
 * Writes output files atomically. A file to be replaced stays unchanged until the new content is on the disk. No
 * function leaves a temporary file behind.
 */
#include "out/output_file.h"

#include "base/clock.h"
#include "base/utf8.h"

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
    OUTPUT_FILE_RENAME, /* write a temporary file in the same directory and rename it */
    OUTPUT_FILE_FILE,   /* overwrite the regular file open as `fd` */
    OUTPUT_FILE_STREAM, /* append to the pipe, terminal or device open as `fd` */
};

struct output_file {
    char *path;
    char *dir;        /* the part before the last slash, or "." */
    const char *name; /* the part after it, within `path` */
    enum output_file_method way;
    int fd;        /* -1 with OUTPUT_FILE_RENAME */
    bool written;  /* the content of `fd` is ours and may be replaced */
    bool standard; /* our standard output */
    off_t begin;   /* start of our content in `fd`, if that is seekable */
    off_t end;     /* end of our content */
    bool has_owner;
    uid_t uid; /* owner of files that we create, if has_owner */
    gid_t gid;
};

/* Remembers the first write error, whose errno stdio does not keep. */
struct sink {
    int fd;
    int error;
};

/* A path without control characters, for messages. */
struct shown {
    char text[400];
};

/* False for control characters, including C1 and bidirectional marks, which must not reach a terminal. */
static bool is_printable(uint32_t cp)
{
    if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == UTF8_REPLACEMENT)
        return false;
    return !((cp >= 0x200b && cp <= 0x200f) || (cp >= 0x2028 && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069));
}

static struct shown show(const char *path)
{
    struct shown s = {0};
    size_t len = strlen(path), used = 0, n;
    uint32_t cp;

    for (size_t i = 0; i < len && used < sizeof(s.text) - 8; i += n) {
        n = utf8_decode(path + i, len - i, &cp);
        if (is_printable(cp))
            memcpy(s.text + used, path + i, n);
        else
            s.text[used] = '?';
        used += is_printable(cp) ? n : 1;
    }
    return s;
}

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
    return s->error ? 0 : (ssize_t)done; /* fopencookie: 0 means error */
}

static int fail_write(const struct output_file *pl, int error, struct err_note *note)
{
    err_note_what(note, ERR_DISK, "'%s': %s", show(pl->path).text, strerror(error));
    if (error == EPIPE)
        err_note_hint(note, "Who read from it has gone away.");
    else if (pl->way != OUTPUT_FILE_RENAME)
        err_note_hint(note, "Free some space or give another place with -o FILE.");
    return ERR_DISK;
}

static int fail_place(const struct output_file *pl, const char *why, struct err_note *note)
{
    return err_note_what(note, ERR_OUTPUT, "'%s': %s", show(pl->path).text, why);
}

/* Writes the content to `fd` and syncs it. */
static int write_all(struct output_file *pl, int fd, int (*fill)(FILE *, void *), void *arg, struct err_note *note)
{
    struct sink sink = {.fd = fd};
    FILE *out = fopencookie(&sink, "w", (cookie_io_functions_t){.write = sink_write});

    if (!out)
        return err_note_what(note, ERR_NOMEM, "no buffer for '%s'", show(pl->path).text);
    setvbuf(out, NULL, _IOFBF, 1 << 16);
    int r = fill(out, arg);
    bool failed = ferror(out);
    failed |= fclose(out) != 0;
    /* Our error comes first: `fill` may report the same failure, but without errno. */
    if (sink.error || (failed && r == 0))
        return fail_write(pl, sink.error ? sink.error : EIO, note);
    if (r < 0)
        return r;
    /* Pipes and some file systems do not support fsync: EINVAL, EROFS and ENOTSUP are not write errors. */
    if (fsync(fd) < 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
        return fail_write(pl, errno, note);
    return 0;
}

/* ---- OUTPUT_FILE_RENAME ---- */

static int open_dir(const struct output_file *pl)
{
    int fd = open(pl->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    /* We may be allowed to write the directory but not to list it. O_PATH suffices, except for fsync. */
    if (fd < 0 && errno == EACCES)
        fd = open(pl->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
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

/* Opens the path for writing if it is still the regular file `want`. Does not follow symlinks. */
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

/* Switches to OUTPUT_FILE_FILE if the file exists and is writable, but cannot be replaced. Renaming over a bind mount
 * of a single file, for example, fails with EBUSY. */
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

/* Overwrites the open file from the start. Its old content is lost with the first write. */
static int overwrite_file(struct output_file *pl, int (*fill)(FILE *, void *), void *arg, struct err_note *note)
{
    if (lseek(pl->fd, 0, SEEK_SET) < 0)
        return fail_write(pl, errno, note);
    int r = write_all(pl, pl->fd, fill, arg, note);
    off_t end = lseek(pl->fd, 0, SEEK_CUR);
    /* On failure, empty the file rather than leave half of the content, unless nothing was written. */
    if (r < 0 && end <= 0)
        return r;
    if (ftruncate(pl->fd, r < 0 ? 0 : end) < 0 && r == 0)
        r = fail_write(pl, errno, note);
    pl->written = true;
    return r;
}

/* Errors of open and rename for which overwriting the file may still work. */
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
    /* Some file systems do not support owners. Write the file anyway. */
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

/* ---- OUTPUT_FILE_FILE and OUTPUT_FILE_STREAM ---- */

/* True if the path still refers to the file we have open and its content is ours. */
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

/* If the stream is a file (a shell redirection), the new content replaces our previous one, unless somebody else has
 * written after it. */
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

    /* O_NONBLOCK, because opening a FIFO without a reader would block. */
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

/* True for an empty file that a program probably created for us and keeps open: it must keep its inode. In a sticky
 * directory such as /tmp, where anyone can create files, only our own files and the directory owner's count. */
static bool is_handed_over(const struct stat *file, const struct stat *dir)
{
    bool own = file->st_uid == geteuid() || file->st_uid == getuid() || file->st_uid == dir->st_uid;

    return S_ISREG(file->st_mode) && file->st_size == 0 && file->st_nlink == 1 && (own || !(dir->st_mode & S_ISVTX));
}

static int fail_dir(const struct output_file *pl, int error, struct err_note *note)
{
    err_note_what(note, ERR_OUTPUT, "'%s': the directory '%s' %s%s", show(pl->path).text, show(pl->dir).text,
                  error == ENOENT ? "does not exist" : "cannot be used: ", error == ENOENT ? "" : strerror(error));
    if (error == ENOENT)
        err_note_hint(note, "Create it, or give another place with -o FILE.");
    return ERR_OUTPUT;
}

/* Checks that we can create a temporary file and may replace the old file. */
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
