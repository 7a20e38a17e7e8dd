/*
 * Temporary files: O_TMPFILE and linkat(2), or a random name and rename(2).
 */
#include "out/temp_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define NAME_TRIES 16
#define OPEN_TRIES 8 /* see open_retrying in output_file.c */

/* getrandom needs Linux 3.17. A poor number only costs retries, since names are created exclusively. */
static uint64_t random_number(void)
{
    uint64_t number;
    struct timespec now = {0};

    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) == sizeof(number))
        return number;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec << 16 ^ (uint64_t)getpid();
}

/* Not derived from the name of the file, which may already have the maximum length. */
static void make_name(struct temp_file *t)
{
    snprintf(t->name, sizeof(t->name), ".spyglass-%016" PRIx64 ".tmp", random_number());
}

static int open_retrying(int dir, const char *name, int flags, mode_t mode)
{
    int fd = -1;

    errno = EINTR;
    for (int i = 0; i < OPEN_TRIES && fd < 0 && errno == EINTR; i++)
        fd = openat(dir, name, flags | O_WRONLY | O_CLOEXEC, mode);
    return fd;
}

int temp_file_open(int dir, mode_t mode, bool named, struct temp_file *ret)
{
    struct temp_file t = {.dir = dir, .fd = -1};

    if (!named)
        t.fd = open_retrying(dir, ".", O_TMPFILE, mode);
    errno = EEXIST;
    for (int i = 0; i < NAME_TRIES && t.fd < 0 && errno == EEXIST; i++) {
        make_name(&t);
        t.fd = open_retrying(dir, t.name, O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    }
    if (t.fd < 0)
        return -1;
    *ret = t;
    return 0;
}

/* AT_EMPTY_PATH needs CAP_DAC_READ_SEARCH; the link in /proc does not. */
static int link_as(const struct temp_file *t, const char *name)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", t->fd);
    return linkat(AT_FDCWD, path, t->dir, name, AT_SYMLINK_FOLLOW);
}

/* linkat(2) replaces nothing: over an existing file, link to a temporary name and rename that. */
int temp_file_publish(struct temp_file *t, const char *name)
{
    if (!t->name[0]) {
        if (link_as(t, name) == 0)
            return 0;
        for (int i = 0; i < NAME_TRIES && errno == EEXIST; i++) {
            make_name(t);
            if (link_as(t, t->name) == 0)
                break;
            t->name[0] = '\0';
        }
        if (!t->name[0])
            return -1;
    }
    if (renameat(t->dir, t->name, t->dir, name) < 0)
        return -1;
    t->name[0] = '\0';
    return 0;
}

void temp_file_close(struct temp_file *t)
{
    if (t->name[0])
        unlinkat(t->dir, t->name, 0);
    close(t->fd);
}
