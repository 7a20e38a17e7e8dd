/*
 * A FUSE file system that can stop answering: serves the files of a directory, one level of subdirectories included.
 * Speaks the kernel's protocol, without libfuse.
 *
 *     fuse_server SOURCE MOUNTPOINT
 *
 * Prints "ready" once mounted. Commands on standard input, each answered by its own line:
 *     forget   drop the kernel's cache of all files, also of pages that are mapped
 *     silent   take requests from the kernel, and never answer them; a process that waits cannot be killed any more
 * SIGSTOP makes it take no more requests; a process that waits can be killed then. The file system goes when the server does.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define NODES_MAX 1024
#define PATH_ROOM 1024
#define BUFFER    (FUSE_MIN_READ_BUFFER + (128 * 1024))
#define MAX_WRITE 4096u

static char nodes[NODES_MAX][PATH_ROOM]; /* the path of node N is nodes[N]; 1 is the root */
static uint64_t n_nodes = 2;
static int fuse;
static bool silent;

static void answer(const struct fuse_in_header *in, int error, const void *data, size_t len)
{
    struct fuse_out_header out = {.len = (uint32_t)(sizeof(out) + len), .error = -error, .unique = in->unique};
    struct iovec parts[2] = {{&out, sizeof(out)}, {(void *)(uintptr_t)data, len}};

    if (writev(fuse, parts, 2) < 0 && errno != ENOENT)
        perror("fuse_server: answer");
}

static void fill_attr(uint64_t node, const struct stat *st, struct fuse_attr *ret)
{
    *ret = (struct fuse_attr){.ino = node,
                              .size = (uint64_t)st->st_size,
                              .blocks = (uint64_t)st->st_blocks,
                              .mtime = (uint64_t)st->st_mtime,
                              .ctime = (uint64_t)st->st_ctime,
                              .mode = st->st_mode,
                              .nlink = 1,
                              .blksize = 4096};
}

static uint64_t node_of(const char *path)
{
    for (uint64_t i = 2; i < n_nodes; i++)
        if (strcmp(nodes[i], path) == 0)
            return i;
    if (n_nodes == NODES_MAX)
        return 0;
    snprintf(nodes[n_nodes], PATH_ROOM, "%s", path);
    return n_nodes++;
}

/* Nothing stays valid in the kernel, so that it asks each time. */
static void do_lookup(const struct fuse_in_header *in, const char *name)
{
    struct fuse_entry_out out = {0};
    char path[2 * PATH_ROOM];
    struct stat st;

    snprintf(path, sizeof(path), "%s/%s", nodes[in->nodeid], name);
    if (strlen(path) >= PATH_ROOM || stat(path, &st) < 0 || !(out.nodeid = node_of(path))) {
        answer(in, ENOENT, NULL, 0);
        return;
    }
    fill_attr(out.nodeid, &st, &out.attr);
    answer(in, 0, &out, sizeof(out));
}

static void do_getattr(const struct fuse_in_header *in)
{
    struct fuse_attr_out out = {0};
    struct stat st;

    if (stat(nodes[in->nodeid], &st) < 0) {
        answer(in, errno, NULL, 0);
        return;
    }
    fill_attr(in->nodeid, &st, &out.attr);
    answer(in, 0, &out, sizeof(out));
}

static void do_read(const struct fuse_in_header *in, const struct fuse_read_in *arg)
{
    static char bytes[BUFFER];
    size_t want = arg->size < sizeof(bytes) ? arg->size : sizeof(bytes);
    int fd = open(nodes[in->nodeid], O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : pread(fd, bytes, want, (off_t)arg->offset);

    if (fd >= 0)
        close(fd);
    answer(in, got < 0 ? EIO : 0, bytes, got < 0 ? 0 : (size_t)got);
}

/* The offset of an entry is its number. */
static void do_readdir(const struct fuse_in_header *in, const struct fuse_read_in *arg)
{
    _Alignas(struct fuse_dirent) char bytes[4096] = {0};
    size_t len = 0, room = arg->size < sizeof(bytes) ? arg->size : sizeof(bytes);
    DIR *dir = opendir(nodes[in->nodeid]);
    const struct dirent *e;

    for (uint64_t i = 0; dir && (e = readdir(dir)); i++) {
        struct fuse_dirent *out = (struct fuse_dirent *)(bytes + len);
        size_t name_len = strlen(e->d_name), size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + name_len);

        if (i < arg->offset)
            continue;
        if (len + size > room)
            break;
        *out = (struct fuse_dirent){.ino = e->d_ino, .off = i + 1, .namelen = (uint32_t)name_len, .type = e->d_type};
        memcpy(out->name, e->d_name, name_len);
        len += size;
    }
    if (dir)
        closedir(dir);
    answer(in, dir ? 0 : EIO, bytes, len);
}

static void do_init(const struct fuse_in_header *in, const struct fuse_init_in *arg)
{
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
                                .minor =
                                    arg->minor < FUSE_KERNEL_MINOR_VERSION ? arg->minor : FUSE_KERNEL_MINOR_VERSION,
                                .max_readahead = 0,
                                .max_background = 16,
                                .congestion_threshold = 12,
                                .max_write = MAX_WRITE};

    answer(in, 0, &out, out.minor < 23 ? FUSE_COMPAT_22_INIT_OUT_SIZE : sizeof(out));
}

static void serve(const struct fuse_in_header *in)
{
    const void *arg = in + 1;

    switch (in->opcode) {
    case FUSE_INIT:
        do_init(in, arg);
        break;
    case FUSE_LOOKUP:
        do_lookup(in, arg);
        break;
    case FUSE_GETATTR:
        do_getattr(in);
        break;
    case FUSE_OPEN:
    case FUSE_OPENDIR:
        answer(in, 0, &(struct fuse_open_out){.fh = 1}, sizeof(struct fuse_open_out));
        break;
    case FUSE_READ:
        do_read(in, arg);
        break;
    case FUSE_WRITE: /* forgotten: only that the kernel has something to write matters */
        answer(in, 0, &(struct fuse_write_out){.size = ((const struct fuse_write_in *)arg)->size},
               sizeof(struct fuse_write_out));
        break;
    case FUSE_SETATTR:
        do_getattr(in);
        break;
    case FUSE_READDIR:
        do_readdir(in, arg);
        break;
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_ACCESS:
        answer(in, 0, NULL, 0);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break;
    default: /* FUSE_FLUSH, too: then the kernel does not ask again, and a process with open files can exit */
        answer(in, ENOSYS, NULL, 0);
    }
}

static void forget_pages(void)
{
    for (uint64_t i = 2; i < n_nodes; i++) {
        struct fuse_notify_inval_inode_out what = {.ino = i, .off = 0, .len = 0};
        struct fuse_out_header out = {.len = sizeof(out) + sizeof(what), .error = FUSE_NOTIFY_INVAL_INODE};
        struct iovec parts[2] = {{&out, sizeof(out)}, {&what, sizeof(what)}};

        if (writev(fuse, parts, 2) < 0 && errno != ENOENT)
            perror("fuse_server: forget");
    }
}

static bool obey(void)
{
    char line[64];
    ssize_t got = read(STDIN_FILENO, line, sizeof(line) - 1);

    if (got <= 0)
        return false;
    line[got] = '\0';
    silent |= strcmp(line, "silent\n") == 0;
    if (strcmp(line, "forget\n") == 0)
        forget_pages();
    fputs(line, stdout);
    return fflush(stdout) == 0;
}

static int fail(const char *what)
{
    fprintf(stderr, "fuse_server: %s: %s\n", what, strerror(errno));
    return 77;
}

int main(int argc, char **argv)
{
    static _Alignas(struct fuse_in_header) char request[BUFFER];
    char options[128];

    if (argc != 3)
        return 2;
    snprintf(nodes[1], PATH_ROOM, "%s", argv[1]);
    fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fuse < 0)
        return fail("/dev/fuse");
    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other", fuse, (int)getuid(),
             (int)getgid());
    if (mount("fuse_server", argv[2], "fuse.hang", MS_NOSUID | MS_NODEV, options) < 0)
        return fail("mount");
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = fuse, .events = POLLIN}};
        ssize_t got;

        if (poll(fds, 2, -1) < 0)
            continue;
        if (fds[0].revents && !obey())
            break;
        if (!fds[1].revents)
            continue;
        got = read(fuse, request, sizeof(request));
        if (got < 0 && errno == ENODEV)
            break;
        if (got >= (ssize_t)sizeof(struct fuse_in_header) && !silent)
            serve((const struct fuse_in_header *)request);
    }
    umount2(argv[2], MNT_DETACH);
    return 0;
}
